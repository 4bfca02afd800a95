"""The Python threads of a running process: their names (``threading.Thread(name=...)``), and their frames.

Names are read without stopping it. The kernel learns of them from CPython 3.14 on only. A thread's entry is gone when
the thread is about to end.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping

from necropsy.capture.linux.inspect import memory_map, modules
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.inspect.python_objects import ObjectsOfThreads
from necropsy.capture.linux.inspect.time_budget import TimeBudget
from necropsy.capture.process.python_stacks import PythonStackError
from necropsy.model import Frame

_LENT_S, _SHARE = 0.05, 1 / 1000
"""Reading takes at most so much CPU time at first, and this part of the time that passes."""
_COST = 100
"""A pause between two readings, as a multiple of what the last one took."""
_MOST_TRIES, _MOST_SEARCHES = 50, 20
"""Readings in a row that may find nothing new, and searches for an interpreter."""


class PythonThreads:
    """Those of one process, if it runs Python."""

    def __init__(self, pid: int) -> None:
        """Nothing is read yet."""
        self._pid = pid
        self._memory: ProcessMemory | None = None
        self._objects: ObjectsOfThreads | None = None
        self._tids: dict[int, int] = {}
        self._next = 0.0
        self._budget = TimeBudget(_LENT_S, _SHARE)
        self._tries = self._searches = 0

    def names(self, tids: Mapping[int, int]) -> dict[int, str]:
        """The names that are known of these threads, by thread id; empty if it is too early to look again.

        ``tids``: control block -> thread id. Raises nothing.
        """
        if time.monotonic() < self._next or self._budget.pause_s() or self._tries >= _MOST_TRIES:
            return {}
        found: dict[int, str] = {}
        is_first, begun = self._objects is None, time.thread_time()
        with contextlib.suppress(PythonStackError, ArithmeticError, ValueError, LookupError, OSError):
            objects = self.find()
            self._tids.clear()
            self._tids.update(tids)
            found = objects.names() if objects is not None else {}
        self._tries = 0 if found else self._tries + 1
        # To find the interpreter takes longer, but is done once.
        took_s = 0.0 if is_first and found else time.thread_time() - begun
        self._budget.spend(took_s)
        self._next = time.monotonic() + _COST * took_s
        return found

    def frames(self, tid: int, pointer: int, limit_s: float) -> tuple[Frame, ...]:
        """The frames of a thread that is stopped, innermost first, those that are read in time. Raises nothing.

        Empty where ``find`` has found no interpreter. ``pointer``: the thread's control block; ``limit_s``: CPU time.
        """
        if self._objects is None:
            return ()
        with contextlib.suppress(PythonStackError, ArithmeticError, ValueError, LookupError, OSError):
            self._tids[pointer] = tid
            return self._objects.stack_of(tid, limit_s)
        return ()

    def find(self) -> ObjectsOfThreads | None:
        """Find the interpreter, if that was not done; None where there is none, or none that has begun to work."""
        if self._objects is None and self._searches < _MOST_SEARCHES:
            self._searches += 1
            with contextlib.suppress(PythonStackError, ArithmeticError, ValueError, LookupError, OSError):
                mapped = memory_map.MemoryMap(
                    one for one in memory_map.read(self._pid) if one.path is not None and "python" in one.path
                )
                self.close()
                self._memory = ProcessMemory(self._pid)
                files = modules.find(self._pid, mapped, self._memory)
                self._objects = ObjectsOfThreads(self._memory, files, self._tids, None)
        return self._objects

    def close(self) -> None:
        """It is not looked into any more."""
        if self._memory is not None:
            self._memory.close()
        self._memory = self._objects = None
