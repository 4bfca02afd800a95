"""What memray has recorded of a run's processes, joined with what necropsy measured of them."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from necropsy.model import Gap, HeapFrame, HeapStack, HeapUse, Process, RunRecord
from necropsy.profile import memray_reader
from necropsy.profile.memray_recording import FAILED, INTERPRETER, RECORDING, without

_READING_S, _LOOK_S = 500, 0.5
_PART = "heap"


def joined(ended: RunRecord, folder: Path) -> RunRecord:
    """The run with who allocated the memory of its processes, as recorded in ``folder``."""
    heaps: dict[int, tuple[HeapUse, float | None]] = {}
    why: list[str] = []
    groups = _by_interpreter(folder, why)
    for (interpreter, packages), recordings in groups.items():
        for said in _read(interpreter, packages, recordings, why):
            recording = Path(said["recording"])
            if "error" in said:
                why.append(f"the recording of process {_pid(recording)} cannot be read: {said['error']}")
            else:
                heaps[_pid(recording)] = (_use(said, recording.stat().st_size), said["peak_at"])
    if not groups and not why:
        why.append("no Python process that has memray was started; --heap sample needs no memray")
    known = {one.pid for one in ended.processes}
    unknown = len(heaps.keys() - known)
    if unknown:
        why.append(f"{unknown} recorded process{'es are' if unknown > 1 else ' is'} not among those that were traced")
    gaps = tuple(Gap(part=_PART, why=one) for one in why[:20])
    processes = tuple(_with(one, *heaps[one.pid]) if one.pid in heaps else one for one in ended.processes)
    return dataclasses.replace(ended, processes=processes, gaps=(*ended.gaps, *gaps))


def _with(process: Process, heap: HeapUse, peak_at: float | None) -> Process:
    if peak_at is not None and process.started is not None:
        began = dt.datetime.fromisoformat(process.started.replace("Z", "+00:00")).timestamp()
        heap = msgspec.structs.replace(heap, peak_at=round(max(peak_at - began, 0.0), 3))
    if process.exit is not None and process.exit.kind != "exited":
        heap = msgspec.structs.replace(heap, complete=False)
    return msgspec.structs.replace(process, heap=heap)


def _by_interpreter(folder: Path, why: list[str]) -> dict[tuple[str, str], list[Path]]:
    """The recordings of each interpreter: only the one that wrote them is sure to read them."""
    groups: dict[tuple[str, str], list[Path]] = {}
    why += [
        f"memray did not begin in process {note.stem}: {note.read_text('utf-8', 'replace')[:300]}"
        for note in sorted(folder.glob(f"*{FAILED}"))
    ]
    for note in sorted(folder.glob(f"*{INTERPRETER}")):
        interpreter, _, packages = note.read_text("utf-8", "surrogateescape").partition("\n")
        # A forked process appends its own number.
        found = sorted(folder.glob(f"{note.stem}{RECORDING}*"))
        groups.setdefault((interpreter, packages), []).extend(found)
    return groups


def _read(interpreter: str, packages: str, recordings: Sequence[Path], why: list[str]) -> Iterator[dict[str, Any]]:
    command = [interpreter, memray_reader.__file__, packages, *map(str, recordings)]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    try:
        process = subprocess.Popen(command, stdin=null, stdout=pipe, stderr=pipe, env=without(os.environ))
    except OSError as error:
        why.append(f"the recordings were not read: {interpreter}: {error.strerror or error}")
        return
    text, failed = _said(process)
    if process.returncode:
        last = (failed.strip().splitlines() or [b"it was ended"])[-1].decode("utf-8", "backslashreplace")
        why.append(f"the recordings were not all read: {last[:300]}")
    for line in text.splitlines():
        if line.startswith(b"{") and line.endswith(b"}"):
            yield json.loads(line)


def _said(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """What it wrote. It is looked at often: who waits for the report takes one that only sleeps for dead."""
    for _ in range(int(_READING_S / _LOOK_S)):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=_LOOK_S)
    process.kill()
    return process.communicate()


def _pid(recording: Path) -> int:
    """``12.bin`` is of process 12, and ``12.bin.34`` of 34, which 12 has forked."""
    return int(recording.name.rpartition(".")[2] if not recording.name.endswith(RECORDING) else recording.stem)


def _use(said: Mapping[str, Any], octets: int) -> HeapUse:
    return HeapUse(
        how="memray",
        peak=said["peak"],
        allocated=said["allocated"],
        count=said["count"],
        stacks=_stacks(said["stacks"]),
        temporaries=_stacks(said["temporaries"]),
        lines=_stacks(said["lines"]),
        left_out=said["left_out"] or None,
        recorded=octets,
    )


def _stacks(said: Sequence[Any]) -> tuple[HeapStack, ...]:
    return tuple(HeapStack(bytes=size, count=count, frames=_frames(frames)) for frames, size, count in said)


def _frames(frames: Sequence[Any]) -> tuple[HeapFrame, ...]:
    return tuple(
        HeapFrame(function=function, file=file or None, line=line or None) for function, file, line in reversed(frames)
    )
