"""Python stacks of a stopped process, by py-spy."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from necropsy.capture.process.python_stacks import ENTRY, MOST_FRAMES, PythonStackError
from necropsy.model import Frame

_LONGEST_LOCAL = 200


def find_py_spy() -> str | None:
    """The py-spy that was installed with this tool, else one on PATH."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        path = folder / "py-spy"
        if path.is_file():
            return str(path)
    return shutil.which("py-spy")


class Dump:
    """py-spy at work beside us: started at once, collected when its answer is needed."""

    def __init__(self, pid: int, *, with_locals: bool) -> None:
        """Start it. Raises PythonStackError where it is not installed or does not start."""
        self.holds_gil: int | None = None
        """The thread that held the GIL, once collected; None where none did or py-spy cannot tell."""
        path = find_py_spy()
        if path is None:
            raise PythonStackError("py-spy is not installed")
        command = [path, "dump", "--nonblocking", "--json", "--pid", str(pid)]
        if with_locals:
            command.insert(4, "--locals")
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise PythonStackError(f"py-spy does not start: {error.strerror}") from None

    def collect(self, limit_s: float, pointers: Mapping[int, int] | None = None) -> dict[int, tuple[Frame, ...]]:
        """The Python frames of each thread by its id, innermost first; threads without Python are not in it.

        ``pointers``: thread pointer (``fs_base``) -> id of the thread. CPython before 3.11 knows its threads by what
        ``pthread_self`` returns, which on x86-64 is this pointer. Raises PythonStackError where py-spy was refused,
        failed, or took more than ``limit_s`` seconds.
        """
        try:
            out, complaint = self._process.communicate(timeout=max(limit_s, 0.1))
        except subprocess.TimeoutExpired:
            self.stop()
            raise PythonStackError(f"py-spy gave no answer within {limit_s:.0f} s") from None
        if self._process.returncode:
            raise PythonStackError(f"py-spy: {_last_words(complaint)}")
        stacks, self.holds_gil = parse(out, pointers)
        return stacks

    def stop(self) -> None:
        """End it, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def _last_words(complaint: bytes) -> str:
    text = complaint.decode("utf-8", "replace").partition("Stack backtrace")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # "Error: ..." comes first, its reasons after it.
    said = [line.removeprefix("Error: ").removeprefix("Reason: ") for line in lines if "RUST_BACKTRACE" not in line]
    return "; ".join(said[:3]) or "failed without a word"


class _Local(msgspec.Struct):
    name: str
    repr: Any = None


class _Frame(msgspec.Struct):
    name: str | None = None
    filename: str | None = None
    line: int | None = None
    locals: list[_Local] | None = None
    is_entry: bool | None = None
    is_shim_entry: bool | None = None


class _Thread(msgspec.Struct):
    frames: list[_Frame]
    os_thread_id: int | None = None
    thread_id: int | None = None
    owns_gil: bool | None = None


_DUMP = msgspec.json.Decoder(list[_Thread])


def parse(data: bytes, pointers: Mapping[int, int] | None = None) -> tuple[dict[int, tuple[Frame, ...]], int | None]:
    """What ``py-spy dump --json`` printed: the frames of each thread by its id, and the thread that holds the GIL.

    Equal stacks share their frames. Raises PythonStackError for any other input.
    """
    try:
        threads = _DUMP.decode(data)
    except (ValueError, TypeError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise PythonStackError(f"py-spy said something unexpected: {type(error).__name__}") from None
    known: dict[tuple[object, ...], tuple[Frame, ...]] = {}
    stacks: dict[int, tuple[Frame, ...]] = {}
    holder: int | None = None
    for thread in threads:
        tid = thread.os_thread_id or (pointers or {}).get(thread.thread_id or 0)
        if thread.owns_gil and holder is None:
            holder = tid
        if tid:
            stacks[tid] = _frames(thread.frames, known)
    return stacks, holder


def _frames(frames: list[_Frame], known: dict[tuple[object, ...], tuple[Frame, ...]]) -> tuple[Frame, ...]:
    if any(one.locals is not None for one in frames):
        return tuple(map(_frame, range(MOST_FRAMES), frames))
    key = tuple((one.name, one.filename, one.line, one.is_entry, one.is_shim_entry) for one in frames)
    found = known.get(key)
    if found is None:
        found = known[key] = tuple(map(_frame, range(MOST_FRAMES), frames))
    return found


def _frame(index: int, one: _Frame) -> Frame:
    return Frame(
        index=index,
        kind="python",
        function=one.name,
        source=one.filename,
        line=one.line or None,
        locals=None if one.locals is None else {each.name: str(each.repr)[:_LONGEST_LOCAL] for each in one.locals},
        evaluated_by=ENTRY if one.is_entry or one.is_shim_entry else None,
    )
