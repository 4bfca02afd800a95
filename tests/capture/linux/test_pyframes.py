"""Our own reading of CPython's frames, compared with py-spy's and with what the program itself says."""

from __future__ import annotations

import dataclasses
import gzip
import io
import random
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from harness import dying
from hypothesis import given
from hypothesis import strategies as st
from python_program import PROGRAM

from necropsy.capture import open_core
from necropsy.capture.linux.inspect import crash_builder
from necropsy.capture.linux.inspect.interpreter import LinuxFrameReader
from necropsy.capture.linux.unwind import py_spy
from necropsy.capture.process import cpython_frames, cpython_offsets
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.python_stacks import PythonStackError
from necropsy.model import Crash

READ = {"3.8", "3.9", "3.10", "3.11", "3.12", "3.13"}
PYTHONS = [
    path
    for path in sorted({Path(sys.executable), *Path.home().glob(".pyenv/versions/3.*/bin/python")})
    if subprocess.run(
        [path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=False
    ).stdout.strip()
    in READ
]
each_python = pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.parts[-3])


def minor_of(python: Path) -> int:
    """11 for CPython 3.11."""
    return int(next(python.parents[1].glob("lib/python3.*")).name.removeprefix("python3."))


DEEP = """
import ctypes, sys, threading
sys.setrecursionlimit(100_000)
threading.stack_size(512 << 20)
def down(left):
    if not left:
        ctypes.string_at(0)
    return down(left - 1)
thread = threading.Thread(target=down, args=(5000,))
thread.start()
thread.join()
"""


def stacks(crash: Crash) -> dict[int | None, list[tuple[object, ...]]]:
    return {
        thread.tid: [(one.function, one.source, one.line, one.evaluated_by) for one in thread.python or ()]
        for thread in crash.threads or ()
    }


@each_python
def test_a_core_shows_what_py_spy_saw(python: Path, tmp_path: Path) -> None:
    script = tmp_path / "skript.py"
    script.write_text(PROGRAM)
    packed = io.BytesIO()
    with dying([str(python), str(script)]) as death:
        alive = crash_builder.capture(dataclasses.replace(death, core=packed, full_memory=True))
    path = tmp_path / "full.core"
    path.write_bytes(gzip.decompress(packed.getvalue()))
    dead = open_core.read(path)
    assert alive.gap("python") is None
    assert dead.gap("python") is None
    assert stacks(dead) == stacks(alive)
    names = [one[0] for one in stacks(dead)[dead.pid]]
    assert names[-1] == "<module>"
    assert "many_lines" in names
    assert any(stack and stack[0][0] == "waiting" for stack in stacks(dead).values())


@each_python
def test_deeper_than_py_spy_reads(python: Path, tmp_path: Path) -> None:
    script = tmp_path / "deep.py"
    script.write_text(DEEP)
    with dying([str(python), str(script)]) as death:
        crash = crash_builder.capture(death)
    assert crash.gap("python") is None
    thread = crash.crashed_thread
    assert thread is not None
    assert thread.python is not None
    inner = [(one.function, one.line) for one in thread.python[:4]]
    assert inner[0][0] == "string_at"
    assert inner[1:] == [("down", 7), ("down", 8), ("down", 8)]
    assert thread.python[0].evaluated_by is not None


def test_locals_that_were_asked_for_and_not_read_are_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(py_spy, "find_py_spy", lambda: None)
    with dying([sys.executable, "-c", "import ctypes; ctypes.string_at(0)"]) as death:
        crash = crash_builder.capture(dataclasses.replace(death, python_locals=True))
    assert crash.gap("python") is None
    gap = crash.gap("locals")
    assert gap is not None
    assert gap.why == "py-spy is not installed"


class _Bytes(Memory):
    def __init__(self, data: bytes) -> None:
        self._data = data

    def some(self, address: int, size: int) -> bytes:
        return self._data[address : address + size]


def offsets(*numbers: int, cookie: bytes = b"xdebugpy", version: int = 0x030D00F0, free_threaded: int = 0) -> _Bytes:
    values = (list(numbers) + list(range(41)))[:41]
    return _Bytes(struct.pack("<8sQQ41Q", cookie, version, free_threaded, *values))


def test_a_table_is_believed_only_where_it_is_one() -> None:
    assert cpython_offsets.layout_of("3.13.0", offsets(), 0) is not None
    assert cpython_offsets.layout_of("3.13.0", offsets(cookie=b"xdebug__"), 0) is None
    assert cpython_offsets.layout_of("3.13.0", offsets(version=0x030E00F0), 0) is None
    assert cpython_offsets.layout_of("3.13.0", offsets(free_threaded=1), 0) is None
    assert cpython_offsets.layout_of("3.13.0", offsets(1 << 60), 0) is None
    assert cpython_offsets.layout_of("3.13.0", _Bytes(b""), 0) is None
    assert cpython_offsets.layout_of("3.7.1", offsets(), 0) is None
    assert cpython_offsets.layout_of("3.14.0", offsets(), 0) is None


def test_lines_of_3_10() -> None:
    """The example of ``Objects/lnotab_notes.txt``: bytes 0-5 are line 1, 6-49 line 2, 50-349 line 7, then 207 and 368."""
    table = bytes([6, 0, 44, 1, 254, 5, 46, 0, 8, 127, 0, 73, 6, 127, 0, 34])
    said = {0: 1, 5: 1, 6: 2, 49: 2, 50: 7, 349: 7, 350: 134, 400: None, -4: None}
    assert {offset: cpython_frames.old_line_of(table, 1, offset) for offset in said} == said
    assert cpython_frames.old_line_of(bytes([4, 1, 4, 0x80, 4, 2]), 1, 5) is None
    assert cpython_frames.old_line_of(bytes([4, 1, 4, 0x80, 4, 2]), 1, 9) == 4


def test_lines_of_3_9() -> None:
    """The example of 3.9's ``Objects/lnotab_notes.txt``: line 1 to 5, line 2 to 49, line 7 to 349, then 207, then 368."""
    table = bytes([6, 1, 44, 5, 255, 0, 45, 127, 0, 73, 6, 127, 0, 34])
    said = {0: 1, 5: 1, 6: 2, 49: 2, 50: 7, 349: 7, 350: 207, 355: 207, 356: 368, 400: 368, -1: None}
    assert {offset: cpython_frames.oldest_line_of(table, 1, offset) for offset in said} == said
    assert cpython_frames.oldest_line_of(bytes([4, 3, 4, 0xFE]), 1, 9) == 2


@given(st.binary(max_size=200), st.integers(-10, 10_000))
def test_any_table_of_lines_ends(table: bytes, offset: int) -> None:
    cpython_frames.oldest_line_of(table, 1, offset)
    cpython_frames.old_line_of(table, 1, offset)
    cpython_frames.line_of(table, 1, offset)


@given(st.integers(0, 1 << 64), st.sampled_from(sorted(READ)))
def test_memory_of_nonsense_is_read_or_refused(seed: int, version: str) -> None:
    # Numbers that lead to other places of the same memory, mostly.
    source = random.Random(seed)
    data = struct.pack("<1000Q", *(source.choice((0, 1, 16, source.randrange(8000), 1 << 63)) for _ in range(1000)))

    class Files:
        files = ()

    reader = LinuxFrameReader(_Bytes(data), Files())  # type: ignore[arg-type] # all that it asks of them
    layout = cpython_offsets.layout_of(version, _Bytes(data), 0)
    if layout is None:
        return
    reader._find = lambda: (0, layout)  # type: ignore[method-assign] # these bytes have no interpreter to find
    try:
        reader.collect(1.0)
    except PythonStackError:
        return
