"""What a process said last, where its stderr was not read, as messages and last words of a crash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from necropsy.capture.linux.supervise.traced_processes import Traced
from necropsy.capture.process.secret_bytes import masked_log
from necropsy.capture.run_options import Said
from necropsy.formats import log, tracebacks
from necropsy.model import Crash, LastWords, Message, Thread

_FOUND = "found in memory, not read from stderr"
_FINAL = frozenset({"uncaught", "left"})
_LINES = 6
_SOON_S = 2.0
"""A command passes on how its child ended within this time."""


def ends_of(processes: Sequence[Traced]) -> dict[int, Crash]:
    """What those said last that ended badly; of a silent command what its last child said that ended likewise."""
    bad = [one for one in processes if one.exit is not None and one.exit.code]
    ends = {one.pid: as_crash(one.pid, one.said) for one in bad if one.said is not None}
    command = processes[0]
    if command not in bad or (command.said is not None and command.said.text):
        return ends
    alike = [(_end_of(one), one.pid, one.said) for one in bad if one.said is not None and one.exit == command.exit]
    at, pid, said = max(
        ((at, pid, said) for at, pid, said in alike if said.text and said.kind in _FINAL), default=(0.0, 0, None)
    )
    if said is not None and _end_of(command) - at < _SOON_S:
        ends[command.pid] = as_crash(pid, replace(said, callers=()))
    return ends


def _end_of(process: Traced) -> float:
    return process.begun + (process.wall_s or 0)


def as_crash(pid: int, said: Said) -> Crash:
    """The process with what it said, and nothing else."""
    text = masked_log(said.text)
    where = f"memory of process {pid}, not read from stderr"
    found = tuple(_known(one, said) for one in log.scan(text, where=where))
    raised = said.kind in {"uncaught", "handled"}
    lines = text.rstrip().splitlines()[-1:] if raised else text.strip().splitlines()[-_LINES:]
    return Crash(
        pid=pid,
        messages=found,
        last_words=LastWords(text="\n".join(lines), where=said.where or _FOUND) if lines else None,
        threads=(Thread(tid=pid, crashed=True, python=said.frames or None, frames=said.callers or None),)
        if said.frames or said.callers
        else None,
    )


def _known(message: Message, said: Said) -> Message:
    if message.kind != tracebacks.KIND or said.kind != "handled":
        return message
    return msgspec.structs.replace(message, fields={**message.fields, "handled": "yes"})
