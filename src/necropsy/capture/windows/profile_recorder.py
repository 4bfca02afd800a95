"""What `necropsy profile` measures on Windows: the stacks of all threads, and memory and threads over time.

A thread's end is a debug event, and its stack is still there then, so that no peak is missed. In between, the process
is not stopped: its counters are asked for, and the blocks of its threads are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from necropsy.capture.process.profile_series import MarkRecorder, ThinnedSeries
from necropsy.capture.windows import live_target, stack_peaks, winapi
from necropsy.capture.windows.debuggee import Debuggee
from necropsy.capture.windows.live_target import LiveMemory, LiveProcess, LiveRegions
from necropsy.capture.windows.stack_peaks import StackRange
from necropsy.model import Gap, Process, ProfileMark, ResourceUse, StackUse

_COST, _LONGEST_S = 50, 1.0
"""A look at all processes takes at most this part of the time, unless there was none for so long."""
_RECENT_S = 5.0
"""A thread that ended so shortly before its process, with the same exit code, may have been ended by that."""
_MOST_STACKS = 4096
NOT_MEASURED = Gap(
    part="profile",
    why="on Windows these are not measured: what filled the stacks and what set their sizes, the limits of the system, "
    "handles, mappings, and the Python line at a rise of memory",
)
UNDER_WINE = Gap(
    part="stack",
    why="wine commits whole stacks at once, so that a peak is the lowest page that was written to; of threads that "
    "end with their process, the last look counts",
)


@dataclass(frozen=True)
class _Mark:
    """The lowest page of a thread's stack that was seen in use, and when it was first seen."""

    stack: StackRange
    lowest: int
    at: float


@dataclass
class _Measured:
    series: ThinnedSeries[ResourceUse] = field(default_factory=ThinnedSeries)
    marks: MarkRecorder = field(default_factory=lambda: MarkRecorder(lambda _: None))
    peaks: ResourceUse | None = None
    known: dict[int, _Mark] = field(default_factory=dict)
    """By thread that has not ended."""
    stacks: list[tuple[float, int | None, StackUse]] = field(default_factory=list)
    """With the times at which their threads ended, and their exit codes."""


class ProfileRecorder:
    """The processes of a run."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._of: dict[int, _Measured] = {}
        """By ``id`` of the process's ``Debuggee``, which lives as long as the run."""
        self._next = time.monotonic()

    @property
    def wait_s(self) -> float:
        """How long to wait before ``look`` is called."""
        return max(self._next - time.monotonic(), 0.0)

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What is not measured here."""
        return (NOT_MEASURED, *((UNDER_WINE,) if winapi.is_wine() else ()))

    def look(self, living: Iterable[Debuggee]) -> None:
        """See what all of them use, if it is time to."""
        begun = time.monotonic()
        if begun < self._next:
            return
        for process in living:
            measured = self._measured(process)
            at = begun - process.begun
            self._count(process, measured, at)
            for tid, thread in process.threads.items():
                self._look_at_thread(process, measured, tid, thread, at)
        self._next = begun + max(self._interval_s, min(_COST * (time.monotonic() - begun), _LONGEST_S))

    @staticmethod
    def _look_at_thread(process: Debuggee, measured: _Measured, tid: int, thread: LiveProcess, at: float) -> bool:
        """Whether its stack could be read."""
        memory, known = LiveMemory(process.handle), measured.known.get(tid)
        stack = stack_peaks.range_of(thread.teb, memory, LiveRegions(process.handle))
        if stack is None:
            return False
        lowest = live_target.lowest_page(stack, memory, known.lowest if known is not None else None)
        if lowest is not None and (known is None or lowest < known.lowest):
            measured.known[tid] = _Mark(stack, lowest, at)
        return True

    def thread_ends(self, process: Debuggee, tid: int, code: int | None) -> None:
        """A thread is about to end, with an exit code or (None) with its process; its stack is still there."""
        measured, thread = self._measured(process), process.threads.get(tid)
        if thread is None or len(measured.stacks) >= _MOST_STACKS:
            return
        at = time.monotonic() - process.begun
        is_read = self._look_at_thread(process, measured, tid, thread, at)
        mark = measured.known.pop(tid, None)
        name = "main" if tid == process.main_tid else winapi.thread_name(thread.handle) or thread.name
        use = stack_peaks.use_of(
            tid, name, mark.stack if mark is not None else None, mark.lowest if mark is not None else None
        )
        use = msgspec.structs.replace(
            use,
            ended=code is not None,
            exact=is_read and mark is not None,
            peak_at=round(mark.at, 3) if mark is not None else None,
        )
        measured.stacks.append((at, code, use))

    def ended(self, process: Debuggee, code: int) -> None:
        """All of its threads are about to end with it. Those that it has ended itself have its exit code."""
        for tid in process.threads:
            self.thread_ends(process, tid, None)
        measured, at = self._measured(process), time.monotonic() - process.begun
        self._count(process, measured, at, last=True)
        measured.stacks = [
            (when, own, msgspec.structs.replace(use, ended=None) if own == code and when > at - _RECENT_S else use)
            for when, own, use in measured.stacks
        ]

    def described(self, process: Debuggee, noun: Process, children: Iterable[Debuggee]) -> Process:
        """The process in the model, with what was measured of it."""
        measured = self._of.get(id(process))
        if measured is None:
            return noun
        started = [(one.begun - process.begun, one.pid) for one in children]
        marks = [
            *measured.marks.whole(),
            *(ProfileMark(at=round(at, 3), kind="child", pid=pid) for at, pid in started if at >= 0),
        ]
        return msgspec.structs.replace(
            noun,
            stacks=tuple(use for _, _, use in measured.stacks),
            memory=measured.series.whole() or None,
            peaks=measured.peaks,
            marks=tuple(sorted(marks, key=lambda one: one.at)) or None,
        )

    # ------------------------------------------------------------ memory

    def _count(self, process: Debuggee, measured: _Measured, at: float, *, last: bool = False) -> None:
        counters = winapi.memory_counters(process.handle)
        now = ResourceUse(
            at=round(at, 3),
            rss=counters.working_set or None if counters is not None else None,
            data=counters.private or None if counters is not None else None,
            minor_faults=counters.page_faults or None if counters is not None else None,
            threads=len(process.threads) or None,
        )
        measured.series.add(now)
        if now.rss is not None:
            measured.marks.look(now, last=last)
        before = measured.peaks or ResourceUse(at=now.at)
        peak = counters.peak_working_set if counters is not None else 0
        measured.peaks = ResourceUse(
            at=now.at if (now.rss or 0) > (before.rss or 0) else before.at,
            rss=max(before.rss or 0, now.rss or 0, peak) or None,
            data=max(before.data or 0, now.data or 0, counters.peak_private if counters is not None else 0) or None,
            minor_faults=now.minor_faults or before.minor_faults,
            threads=max(before.threads or 0, now.threads or 0) or None,
        )

    def _measured(self, process: Debuggee) -> _Measured:
        return self._of.setdefault(id(process), _Measured())
