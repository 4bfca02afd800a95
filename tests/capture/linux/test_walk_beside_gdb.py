"""Programs made of dice die, and their stacks are read by necropsy, from the living process, and by gdb, from its core.

gdb is the judge of where each frame stands, and of what the program's functions are called, inlined ones included.
"""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import chains
import pytest
from harness import dying

from necropsy.capture.linux.inspect import crash_builder
from necropsy.model import Crash
from necropsy.predicates import bare_name

pytestmark = pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed: it is what is compared with")
SCRIPT = """
import gdb, json
frame = gdb.newest_frame()
while frame is not None:
    where = gdb.solib_name(frame.pc())
    print("FRAME", json.dumps([frame.type(), frame.pc(), frame.name(), where is None]))
    frame, last = frame.older(), frame
print("ENDS", last.unwind_stop_reason())
"""
_INLINE, _TAILCALL, _SIGTRAMP = 2, 3, 4
"""Frames of functions inlined into others; those that were there before a jump took their place, which gdb knows by other
means than the stack; and the kernel's call of a handler."""
_WHOLE = (0, 1, 2)
"""Reasons for the end of a walk that say that nobody called the last frame."""
Frames = list[tuple[int, str | None]]
"""Where each frame stands, and the last part of its name, where it is the program's own."""
COMPILERS = ("gcc", "g++", "clang", "clang++")
LEVELS = ("-O0", "-O1", "-O2", "-O3")


def last_part(name: str) -> str:
    """Scopes are left out: debug information tells those of inlined functions in other ways than symbols do."""
    return "operator()" if "operator()" in name else bare_name(name).rsplit("::", 1)[-1]


def by_gdb(program: Path, core: Path) -> tuple[Frames, bool]:
    """The frames, and whether gdb got to the first one: it does not believe in stacks that lie below their callers'."""
    script = core.with_name("frames.py")
    script.write_text(SCRIPT)
    settings = ["set debuginfod enabled off", "set backtrace past-main on"]
    command = ["gdb", "-nx", "-batch", *(word for one in settings for word in ("-iex", one)), str(program), str(core)]
    done = subprocess.run(
        [*command, "-x", str(script)], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    rows: list[Any] = [json.loads(row[6:]) for row in done.stdout.splitlines() if row.startswith("FRAME ")]
    ends = [int(row[5:]) for row in done.stdout.splitlines() if row.startswith("ENDS ")]
    assert rows and ends, done
    frames = [
        (pc, last_part(name) if own and name and kind != _SIGTRAMP else None)
        for kind, pc, name, own in rows
        if kind != _TAILCALL and (own or kind != _INLINE)  # gdb may have the C library's debug information
    ]
    return frames, ends[0] in _WHOLE


def by_necropsy(crash: Crash, program: Path) -> Frames:
    thread = crash.crashed_thread
    assert thread is not None
    assert thread.complete, crash.gaps
    frames = thread.frames or ()
    return [
        (frame.address or 0, last_part(frame.function) if frame.module == program.name and frame.function else None)
        for frame, caller in zip(frames, (*frames[1:], None), strict=True)
        # The C library's debug information may be here: what is inlined there stands where its caller stands.
        if frame.module == program.name or caller is None or frame.address != caller.address
    ]


def both(folder: Path, seed: int, words: str, level: str) -> tuple[Frames, Frames]:
    """Of one program: what necropsy says, as far as gdb got, and what gdb says."""
    program = chains.build(folder, chains.program(seed, cpp=words.endswith("++")), words, level, seed)
    packed = io.BytesIO()
    with dying([program]) as death:
        crash = crash_builder.capture(dataclasses.replace(death, core=packed))
    core = folder / "kept.core"
    core.write_bytes(gzip.decompress(packed.getvalue()))
    ours, (theirs, is_whole) = by_necropsy(crash, program), by_gdb(program, core)
    return ours if is_whole else ours[: len(theirs)], theirs


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("words", COMPILERS)
def test_frames_are_where_gdb_finds_them(words: str, level: str, tmp_path: Path) -> None:
    seed = 4 * COMPILERS.index(words) + LEVELS.index(level)
    ours, theirs = both(tmp_path, seed, words, level)
    assert ours == theirs
