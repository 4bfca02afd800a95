"""The stacks of one process that is profiled: their marks, and what was kept of the deepest ones."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from necropsy.capture.linux.inspect.python_threads import PythonThreads
from necropsy.capture.linux.inspect.resident_pages import PAGE, PageMap
from necropsy.capture.linux.inspect.stack_marks import ForkedStacks, StackMark, StackReader
from necropsy.capture.linux.supervise.live_stacks import LiveStacks
from necropsy.capture.linux.supervise.thread_ends import ThreadEnds
from necropsy.capture.linux.supervise.traced_processes import Traced
from necropsy.model import Gap

_COPIES = 5
"""Stacks of a process of which it is said what filled them."""
DEEP, _MOST_COPIED = 64 << 10, 64 << 20
"""Bytes in use of those."""
MOST_THREADS = 4096
"""The most threads of one process whose stacks are reported."""
_FIRST_S, _AGAIN_S = 1.0, 10.0
"""How long threads are stopped at their ends, in CPU seconds: at first, and after a deep one that was not."""
_CPU_CLOCK = 2
"""CPUCLOCK_SCHED of a process (clock_getcpuclockid(3) of the C libraries)."""


@dataclass
class ProcessStacks:
    """One process since its last exec."""

    reader: StackReader
    python: PythonThreads
    live: LiveStacks
    executions: int
    marks: dict[int, StackMark] = field(default_factory=dict)
    """Of living threads."""
    ended: list[StackMark] = field(default_factory=list)
    ends: ThreadEnds = field(default_factory=ThreadEnds)
    wait_until: float = _FIRST_S
    """Until then threads are stopped at their ends, in CPU seconds of the process; longer without page faults."""
    looked: float = field(default_factory=time.monotonic)
    """When all its threads were last looked at, in seconds of the monotonic clock."""
    ended_alone: int | None = None
    """How many threads had ended when the process was about to end, and all others with it."""
    unknown: set[int] = field(default_factory=set)
    """Threads whose stacks were not found."""
    forked: ForkedStacks | None = None
    unkept: int = 0
    """Threads with deep stacks that ended before what filled these was read."""
    _copied: list[StackMark] = field(default_factory=list)
    """Those whose contents are kept, the one that came least close first."""

    @classmethod
    def of(cls, pid: int, executions: int) -> ProcessStacks:
        """The stacks of process ``pid`` after its exec number ``executions`` (0: as it was forked)."""
        reader, python = StackReader(pid), PythonThreads(pid)
        return cls(reader, python, LiveStacks(reader, python), executions)

    def every(self) -> Iterator[StackMark]:
        """All stacks, those of living threads first."""
        yield from self.marks.values()
        yield from self.ended

    def read_names(self) -> None:
        """See what Python calls its threads, where that is not known."""
        unnamed = {one.base: one.tid for one in self.marks.values() if one.base and one.python_name is None}
        for tid, name in (self.python.names(unnamed) if unnamed else {}).items():
            self.marks[tid].python_name = name

    def over(self, mark: StackMark) -> None:
        """The thread is gone, or about to be."""
        self.marks.pop(mark.tid, None)
        mark.ended = True
        if len(self.ended) < MOST_THREADS:
            self.ended.append(mark)

    def found_later(self, tid: int, base: int, *, known_only: bool) -> StackMark | None:
        """The stack of a thread that has ended and was never looked at, as long as it lies there. Raises nothing.

        ``known_only``: if another thread had it before, which is cheap to see.
        """
        with contextlib.suppress(OSError):
            return self.reader.reused(tid, base) or (None if known_only else self.reader.other(tid, base))
        return None

    def keep(self, mark: StackMark) -> None:
        """Keep what is on the stack, if this is one of the few that came closest to their ends."""
        used = mark.high - mark.lowest if mark.lowest is not None else 0
        if not DEEP <= used <= _MOST_COPIED:
            return
        kept = [one for one in self._copied if one is not mark]
        if len(kept) >= _COPIES and kept[0].share >= mark.share:
            return
        with contextlib.suppress(OSError):
            reused = any(one.high == mark.high and one is not mark for one in self.every())
            mark.take_copy(self.reader.pid, self.reader.maps(fresh=True), reused=reused)
            self._copied = sorted([*kept, mark], key=lambda one: one.share)
            while len(self._copied) > _COPIES:
                self._copied.pop(0).copy = None

    def keep_what_is_deeper(self) -> None:
        """The same of living threads that are deeper than when they were kept: nobody stops them at their ends."""
        for mark in self.marks.values():
            if mark.lowest is not None and not mark.is_main and (mark.copy is None or mark.lowest < mark.copy.low):
                self.keep(mark)

    def outlives(self, mark: StackMark) -> None:
        """The thread ended without a stop. What was kept of it counts if it holds the deepest call."""
        if mark.copy is not None and (mark.lowest is None or mark.lowest < mark.copy.low - PAGE):
            mark.copy = None
            self._copied = [one for one in self._copied if one is not mark]
        if mark.copy is None and mark.lowest is not None and mark.high - mark.lowest >= DEEP:
            if len(self._copied) < _COPIES or self._copied[0].share < mark.share:
                self.unkept += 1
            with contextlib.suppress(OSError):
                self.ends.wait(self.reader.pid)
            self.wait_until = self._cpu_s() + _AGAIN_S

    def wait_always(self) -> None:
        """Stop threads at their ends from now on: page faults are not read any more."""
        if self.wait_until != math.inf and self.ended_alone is None:
            self.wait_until = math.inf
            with contextlib.suppress(OSError):
                self.ends.wait(self.reader.pid)

    def wait_less(self) -> None:
        """Take out the breakpoints where the time for them is over; page faults tell how deep threads were."""
        if self.ends.are_waited_for and self.ends.end is not None and self._cpu_s() >= self.wait_until:
            self.ends.close()

    def _cpu_s(self) -> float:
        """The CPU time of the process; of one that has ended, none."""
        with contextlib.suppress(OSError):
            return time.clock_gettime(~self.reader.pid << 3 | _CPU_CLOCK)
        return 0.0

    def stopped_at_its_end(self, mark: StackMark) -> None:
        """One of the threads was, and was kept if it was deep: then there may be more of that kind."""
        if mark.lowest is not None and mark.high - mark.lowest >= DEEP:
            self.wait_until = max(self.wait_until, self._cpu_s() + _FIRST_S)

    def top_of(self, mark: StackMark, size: int) -> int | None:
        """The lowest page that is there in the uppermost ``size`` bytes. Raises OSError, TooLargeError."""
        with PageMap(self.reader.pid) as pages:
            return pages.lowest(max(mark.low, mark.high - size), mark.high)

    def close(self) -> None:
        """Forget the breakpoints, and read no more."""
        self.python.close()
        self.ends.close()


def gaps_of(measured: Iterable[tuple[Traced, ProcessStacks]], why_late: str | None) -> list[Gap]:
    """What is not known of the stacks of these processes; ``why_late``: of threads that were not looked at last."""
    unseen = late = unkept = 0
    away: list[StackMark] = []
    for process, profiled in measured:
        alone = profiled.ended_alone
        # Without that word, those that were alive may have ended with the process.
        most = process.threads_ended - len(profiled.marks) if alone is None else alone
        unseen += max(most - len(profiled.ended), 0)
        late += sum(not one.exact for one in profiled.ended)
        unkept += profiled.unkept
        away += [one for one in profiled.every() if one.elsewhere]
    gaps = []
    if away:
        first = "main" if away[0].is_main else away[0].python_name or away[0].name or str(away[0].tid)
        what = f"thread {first}" if len(away) == 1 else f"{len(away):,} threads, {first} among them,"
        why = f"{what} ran on memory that is not a thread's stack, as coroutines, fibers and signal handlers do"
        gaps.append(Gap(part="stack", why=f"{why}; it is not measured"))
    if unseen:
        what = "1 thread" if unseen == 1 else f"{unseen:,} threads"
        gaps.append(Gap(part="stack", why=f"{what} began and ended between two looks"))
    if unkept:
        what = "1 thread" if unkept == 1 else f"{unkept:,} threads"
        gaps.append(Gap(part="stack", why=f"what filled the stack of {what}: ended before it could be read"))
    if late:
        what = "1 thread that ended early is that" if late == 1 else f"{late:,} threads that ended early are those"
        why = f"the peak of {what} of the last look"
        gaps.append(Gap(part="stack", why=f"{why}: {why_late}" if why_late is not None else why))
    return gaps
