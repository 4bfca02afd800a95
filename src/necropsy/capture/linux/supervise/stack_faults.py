"""How deep stacks were touched, by the page faults of their threads: of living threads and of those that have ended."""

from __future__ import annotations

import math
import mmap
import time
from collections.abc import Sequence

from necropsy.capture.linux.inspect.resident_pages import PAGE
from necropsy.capture.linux.inspect.stack_marks import StackMark
from necropsy.capture.linux.inspect.time_budget import TimeBudget
from necropsy.capture.linux.supervise.page_faults import PageFaults

_MOST_OF_A_MAIN_STACK = 1 << 30
_LENT_S, _SHARE = 0.5, 1 / 200
"""What reading them may take, in CPU seconds at first and of the time that passes."""


class StackFaults:
    """Those of all processes of a run, once ``begin`` was called."""

    def __init__(self, *, is_wanted: bool) -> None:
        self._faults: PageFaults | None = None
        self._budget = TimeBudget(_LENT_S, _SHARE)
        self._marks: dict[int, StackMark] = {}
        self._partly: set[int] = set()
        """Threads of which some touches were not noted."""
        self._lost_at = -math.inf
        """When it was last seen that some were lost, in seconds of the monotonic clock."""
        self._is_wanted = is_wanted
        self.gave_up = False
        """There were too many to be read."""

    @property
    def are_read(self) -> bool:
        """The kernel writes them down."""
        return self._faults is not None

    @property
    def rings(self) -> Sequence[mmap.mmap]:
        """Where the kernel writes them."""
        return self._faults.rings if self._faults is not None else ()

    def begin(self, pid: int) -> None:
        """The command is stopped where it begins. Raises nothing: without, breakpoints tell it."""
        if self._is_wanted:
            self._is_wanted = False
            try:
                self._faults = PageFaults(pid)
            except (OSError, ValueError):
                self._faults = None

    def read(self) -> None:
        """Move the marks to what was touched since the last time."""
        if self._faults is None:
            return
        begun = time.thread_time()
        complete = self._faults.read()
        now = time.monotonic()
        if not complete:
            self._lost_at = now
        self._move(now)
        self._budget.spend(time.thread_time() - begun)
        if self._budget.pause_s():
            self.gave_up = True
            self.close()  # breakpoints cost less of a program that touches so much memory

    def _move(self, now: float) -> None:
        for tid in self._faults.moved() if self._faults is not None else ():
            mark = self._marks.get(tid)
            lowest = self._faults.lowest(tid) if self._faults is not None else None
            if mark is not None and lowest is not None:
                page = max(lowest // PAGE * PAGE, mark.low)
                if mark.lowest is None or page < mark.lowest:
                    mark.lowest, mark.at = page, now

    def follow(self, mark: StackMark) -> None:
        """A thread whose stack was found; what it has touched before counts too."""
        if self._faults is None:
            return
        low = mark.high - (mark.size or _MOST_OF_A_MAIN_STACK) if mark.is_main else mark.low
        self._partly.discard(mark.tid)
        if not self._faults.watch(mark.tid, max(low, 0), mark.high):
            self._partly.add(mark.tid)
        self._marks[mark.tid] = mark
        self._move(time.monotonic())

    def know_all_of(self, mark: StackMark, looked: float) -> bool:
        """Nothing that the thread, which has ended, has touched was missed. ``looked``: at the others of its process.

        A look at its pages makes up for what was lost before.
        """
        if self._faults is None or mark.tid in self._partly:
            return False
        return self._lost_at < (mark.looked if mark.looked is not None else looked)

    def name_of(self, mark: StackMark) -> str | None:
        """The last name of a thread that has ended: as recorded, else as it was last read, else that of its creator."""
        name = self._faults.name(mark.tid) if self._faults is not None else None
        if isinstance(name, str):
            return name
        creator = self._marks.get(name) if name is not None and mark.name is None else None
        # A creator that has got a name since was called otherwise before.
        if creator is None or self._faults is None or isinstance(self._faults.name(creator.tid), str):
            return mark.name
        return creator.name

    def forget(self, tid: int) -> None:
        """The thread has ended, or another one has its number."""
        if self._faults is not None:
            self._faults.forget(tid)
        self._marks.pop(tid, None)
        self._partly.discard(tid)

    def close(self) -> None:
        """All is over."""
        if self._faults is not None:
            self._faults.close()
        self._faults = None
