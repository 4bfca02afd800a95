"""The stacks of the threads of this process itself, from its own page map, without a tracer.

A mark never goes back, so that one look says how deep a thread has ever been, and two looks how much deeper it got
between them. Threads that ended before a look are not seen: the C library has given their stacks back.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import msgspec

from necropsy.capture.linux.inspect.resident_pages import PageMap, TooLargeError
from necropsy.capture.linux.inspect.stack_marks import StackMark, StackReader, is_locked
from necropsy.model import Gap, StackUse

_MOST = 4096
"""Threads that are looked at."""


class OwnStacks:
    """What was touched of the stacks of this process's threads, since ``begin`` was called last.

    ``gaps``: what the last look could not read.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.gaps: tuple[Gap, ...] = ()
        self._reader = StackReader(self.pid)
        self._marks: dict[tuple[int, str], StackMark] = {}
        """By thread, and by when it was started: the numbers of threads are used again."""
        self._begun = 0.0

    def begin(self) -> None:
        """Whatever is touched by now was touched before; twice, because the first look itself takes some stack."""
        for _ in range(2):
            self._look()
        self._begun = time.monotonic()
        for mark in self._marks.values():
            mark.inherited, mark.at = mark.lowest, None

    def uses(self) -> tuple[StackUse, ...]:
        """The stacks of living threads; ``peak`` is None where a thread got no deeper since ``begin``."""
        self._look()
        names = {one.native_id: one.name for one in threading.enumerate() if one.native_id != self.pid}
        found = (mark.as_noun(self._begun) for mark in self._marks.values() if mark.lowest is not None)
        return tuple(msgspec.structs.replace(one, python_name=names.get(one.tid)) for one in found)

    def _look(self) -> None:
        try:
            tids = [int(name) for name in os.listdir("/proc/self/task")]  # noqa: PTH208 - before each test
        except OSError as error:
            self.gaps = (Gap(part="stacks", why=f"/proc/self/task: {error.strerror}"),)
            return
        tids.sort(key=lambda tid: tid != self.pid)  # the main thread's look reads the mappings for the others
        # Where Python's own threads keep their control blocks; those of native libraries say nothing of theirs.
        bases = {one.native_id: one.ident for one in threading.enumerate() if one.native_id and one.ident}
        living: dict[tuple[int, str], StackMark] = {}
        unread = max(len(tids) - _MOST, 0)
        why = f"more than {_MOST} threads" if unread else ""
        now = time.monotonic()
        for tid in tids[:_MOST]:
            try:
                key = (tid, _start_of(tid))
                mark = self._marks.get(key)
                if mark is None or mark.is_main:
                    mark = self._found(tid, bases.get(tid), mark)
                if mark is None:
                    unread += 1
                    why = why or "their stacks were not found"
                    continue
                with PageMap(self.pid) as pages:
                    mark.look(pages, now)
                mark.exact = not is_locked(self.pid, mark) if mark.lowest == mark.low else True
                living[key] = mark
            except FileNotFoundError:
                continue  # it has just ended
            except (OSError, TooLargeError) as error:
                unread += 1
                why = why or f"{type(error).__name__}: {error}"
        self._marks = living
        text = f"{unread} thread{'s' if unread > 1 else ''} could not be looked at: {why}"
        self.gaps = (Gap(part="stacks", why=text),) if unread else ()

    def _found(self, tid: int, base: int | None, known: StackMark | None) -> StackMark | None:
        if tid == self.pid:
            fresh = self._reader.main(tid)
            if known is None or fresh is None:
                return fresh
            known.low = fresh.low  # it has grown
            return known
        if base is not None:
            return self._reader.other(tid, base)
        pointer = _stack_pointer(tid)
        return None if pointer is None else self._reader.around(tid, pointer)


def _start_of(tid: int) -> str:
    """When a thread was started, in ticks since the boot."""
    text = Path(f"/proc/self/task/{tid}/stat").read_text(errors="replace")
    return text.rpartition(")")[2].split()[19]


def _stack_pointer(tid: int) -> int | None:
    """Of a thread that waits in a system call; None where it runs, or the kernel does not tell."""
    try:
        words = Path(f"/proc/self/task/{tid}/syscall").read_text().split()
    except PermissionError:
        return None
    return int(words[-2], 16) if len(words) >= 3 else None
