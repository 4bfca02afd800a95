"""Source lines of Python frames, read while the process is stopped, as a traceback would show them.

A file that was written after the process had started may not be what it runs: then no line is shown.
"""

from __future__ import annotations

import os
import stat
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from necropsy.formats import foreign_calls, tracebacks
from necropsy.model import ForeignCall, Frame, NodeLine, Thread

_LARGEST = 4 << 20
"""Bytes of a file that is read."""
_MOST_FILES = 64
_INNERMOST = 24
"""Of the thread that crashed; of another one the place where it stands, and its callers."""
_OF_OTHERS = 4
_MOST_SCRIPTS = 4
"""Files of the user's that are searched for calls through ctypes."""
_LONGEST = 300
"""Characters of a line."""
_ENDS = dict.fromkeys((0x0B, 0x0C, 0x0D, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029), " ")
"""What Python takes for the end of a line, and the reader of a file's bytes does not."""
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Sources:
    """The Python files of one process, as they are now."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._started: float | None = None
        self._files: dict[str, Sequence[bytes] | None] = {}
        self.changed: list[str] = []
        """Files that were written since the process started."""

    def line(self, file: str, number: int) -> str | None:
        """A line of a file without its indentation; None where it cannot be known."""
        return self._text(file, number).strip()[:_LONGEST] or None

    def excerpt(self, file: str, number: int) -> tuple[str, ...]:
        """A line with the one before and the one after it, without their common indentation; a missing one is empty."""
        around = [self._text(file, one).rstrip() for one in (number - 1, number, number + 1)]
        return tuple(one[:_LONGEST] for one in textwrap.dedent("\n".join(around)).split("\n"))

    def _text(self, file: str, number: int) -> str:
        """A line as it is in the file, tabs as spaces; empty where it cannot be known."""
        lines = self._lines(file)
        if lines is None or not 0 < number <= len(lines):
            return ""
        return lines[number - 1].decode("utf-8", "replace").expandtabs().translate(_ENDS)

    def part(self, file: str, number: int, first: int, last: int) -> tuple[int, int] | None:
        """Where bytes ``[first, last)`` of the line are in ``line``, in characters; None for all of it, or unknown."""
        shown, lines = self.line(file, number), self._lines(file)
        if shown is None or lines is None:
            return None
        whole = lines[number - 1]
        indent = len(whole) - len(whole.lstrip())
        start = len(whole[indent:first].decode("utf-8", "replace"))
        end = min(len(whole[indent:last].decode("utf-8", "replace")), len(shown))
        return (start, end) if 0 < end - start < len(shown) else None

    def undeclared(self, file: str) -> tuple[ForeignCall, ...]:
        """The calls through ctypes in a file of functions whose argument types are not set there."""
        lines = self._lines(file)
        return foreign_calls.undeclared(b"\n".join(lines), file) if lines is not None else ()

    def _lines(self, file: str) -> Sequence[bytes] | None:
        if file not in self._files and len(self._files) < _MOST_FILES:
            try:
                self._files[file] = self._read(file)
            except OSError:
                self._files[file] = None
        return self._files.get(file)

    def _read(self, file: str) -> Sequence[bytes] | None:
        """Its lines, looked up in the process's root and working directory. Raises OSError where unreadable."""
        if file.startswith("<"):
            return None
        base = Path(f"/proc/{self._pid}/root") if file.startswith("/") else Path(f"/proc/{self._pid}/cwd")
        # Never a pipe or a device, which could block: the process is stopped, and everybody waits.
        handle = os.open(base / file.lstrip("/"), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as opened:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode) or about.st_size > _LARGEST:
                return None
            if about.st_mtime > self._start():
                self.changed.append(file)
                return None
            return opened.read(_LARGEST).splitlines()

    def _start(self) -> float:
        """The process's start, in s since 1970 (proc(5), stat, field 22: in ticks). Raises OSError if it is gone."""
        if self._started is None:
            import time

            fields = Path(f"/proc/{self._pid}/stat").read_bytes().rpartition(b")")[2].split()
            age = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS
            self._started = time.time() - age
        return self._started


def added(threads: Iterable[Thread], sources: Sources) -> tuple[Thread, ...]:
    """The threads with the source lines of their innermost Python frames. Never raises."""
    return tuple(_of_thread(thread, sources) for thread in threads)


def undeclared_calls(threads: Iterable[Thread], sources: Sources) -> tuple[ForeignCall, ...]:
    """The calls through ctypes without declared types, in the user's files on these stacks. Never raises."""
    frames = (frame for thread in threads for frame in thread.python or ())
    files = dict.fromkeys(one.source for one in frames if one.source and not tracebacks.is_library(one.source))
    return tuple(found for file in list(files)[:_MOST_SCRIPTS] for found in sources.undeclared(file))


def of_nodes(lines: Sequence[NodeLine], sources: Sources) -> tuple[NodeLine, ...]:
    """The lines that made a node of a graph, with their source. Never raises."""
    return tuple(
        msgspec.structs.replace(one, code=sources.line(one.source, one.line)) if one.source and one.line else one
        for one in lines
    )


def _of_thread(thread: Thread, sources: Sources) -> Thread:
    if not thread.python:
        return thread
    count = _INNERMOST if thread.crashed else _OF_OTHERS
    first = tuple(_of_frame(frame, sources) for frame in thread.python[:count])
    return msgspec.structs.replace(thread, python=(*first, *thread.python[count:]))


def _of_frame(frame: Frame, sources: Sources) -> Frame:
    if frame.source is None or frame.line is None:
        return frame
    code = sources.line(frame.source, frame.line)
    if code is None:
        return frame
    return msgspec.structs.replace(frame, code=code, excerpt=sources.excerpt(frame.source, frame.line))
