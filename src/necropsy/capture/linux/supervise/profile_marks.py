"""For the marks on the time line of a profiled process: the line of Python that it is at, arrays, and its children."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from necropsy.capture.linux.inspect.time_budget import TimeBudget
from necropsy.capture.linux.supervise.traced_processes import Traced
from necropsy.capture.process.python_stacks import PythonStackError
from necropsy.model import ProfileMark, PythonPlace

if TYPE_CHECKING:  # loaded when the first process's memory rises
    from necropsy.capture.linux.inspect.running_line import RunningPython
    from necropsy.capture.process.held_arrays import Running

_MOST_CHILDREN = 50
"""Children that are marked."""
_LENT_S, _SHARE = 0.02, 1 / 200
"""Lines are read for at most so long, and this part of the time that passed."""
_LENT_FOR_LARGE_S = 0.2
"""The same at a large rise: imports, which rise often and by little, shall leave something for it."""
_AGAIN_S = 0.5
"""A process that has no interpreter yet is asked again after this time."""
_Read = TypeVar("_Read")


class PythonLines:
    """The line that a process is at, when it is asked for, at a bounded cost."""

    def __init__(self, pid: int, *, often: bool = False) -> None:
        """``often``: it may cost ten times as much."""
        self._pid = pid
        self._budget = TimeBudget(0.0, (10 if often else 1) * _SHARE)
        self._lent = 10 if often else 1
        self._python: RunningPython | None = None
        self._next = 0.0

    def now(self) -> PythonPlace | None:
        """The line; None without a known interpreter, or where too much time was spent on this. Raises nothing."""
        return self._asked(lambda python: python.line(), _LENT_S)

    def seen(self, with_arrays: bool) -> Running | None:
        """As ``now``; ``with_arrays``: of a large rise, and with the arrays that the function there holds."""
        lent_s = _LENT_FOR_LARGE_S if with_arrays else _LENT_S
        return self._asked(lambda python: python.seen(with_arrays=with_arrays), lent_s)

    def _asked(self, read: Callable[[RunningPython], _Read | None], lent_s: float) -> _Read | None:
        now = time.monotonic()
        if now < self._next or self._budget.pause_s(self._lent * lent_s):
            return None
        from necropsy.capture.linux.inspect.running_line import RunningPython

        begun, loaded = time.thread_time(), len(sys.modules)
        found: _Read | None = None
        if self._python is None:
            with contextlib.suppress(OSError, PythonStackError, ValueError, LookupError):
                self._python = RunningPython(self._pid)
        if self._python is not None:
            found = read(self._python)
        else:
            self._next = now + _AGAIN_S
        if len(sys.modules) == loaded:  # what a reading had to import, no other one has to
            self._budget.spend(time.thread_time() - begun)
        return found

    def close(self) -> None:
        """No more are asked for."""
        if self._python is not None:
            self._python.close()
        self._python, self._next = None, float("inf")


def children_of(process: Traced, processes: Iterable[Traced]) -> Iterator[ProfileMark]:
    """The first of the processes that it started, each at its time."""
    left = _MOST_CHILDREN
    for one in processes:
        at = one.begun - process.begun
        ended = process.wall_s if process.wall_s is not None else at
        if left and one.parent == process.pid and one is not process and 0 <= at <= ended:
            left -= 1
            yield ProfileMark(at=round(at, 3), kind="child", pid=one.pid)
