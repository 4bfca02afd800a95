"""What the processes of a run use over time: a series of bounded length for each, its peaks, and the limits it has."""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from necropsy.capture.linux.inspect import resource_limits
from necropsy.capture.linux.inspect.resource_use import (
    ResourceReader,
    count_of_threads,
    dear_readings,
    resident,
    resident_and_proportional,
)
from necropsy.capture.linux.inspect.time_budget import TimeBudget
from necropsy.capture.linux.supervise.event_loop import Baseline
from necropsy.capture.linux.supervise.gpu_memory import GpuMemory
from necropsy.capture.linux.supervise.profile_marks import PythonLines, children_of
from necropsy.capture.linux.supervise.traced_processes import Traced
from necropsy.capture.process.heap_samples import HeapSamples
from necropsy.capture.process.profile_series import MarkRecorder, ThinnedSeries
from necropsy.model import HeapUse, Limit, ProfileMark, ResourceUse, TreeUse

_LENT_S, _SHARE = 0.1, 1 / 600
"""What looks at all processes may take: CPU seconds at first, and of the time that passes; dear looks at a tree too."""
MOST_QUIET, _SAME, _SAME_THREADS = 3, 256 << 10, 3
"""Looks in a row that only see that nothing has changed; bytes and threads more or less that are no change."""


@dataclass
class _Measured:
    """One process since its last exec."""

    reader: ResourceReader
    executions: int
    lines: PythonLines
    marks: MarkRecorder
    series: ThinnedSeries[ResourceUse] = field(default_factory=ThinnedSeries)
    heap: HeapSamples | None = None
    is_over: bool = False
    last: ResourceUse | None = None
    """What the last closer look has seen."""
    quiet: int = 0
    """Looks since then."""
    most_threads: int = 0

    @classmethod
    def of(cls, process: Traced, dear: TimeBudget, *, sample: bool) -> _Measured:
        """A process that was not seen before, or that has executed another program."""
        lines = PythonLines(process.pid, often=sample)
        heap = HeapSamples(lines.now) if sample else None
        marks = MarkRecorder(lines.seen)
        return cls(ResourceReader(process.pid, dear), process.executions, lines, marks, heap=heap)

    @property
    def may_be_quiet(self) -> bool:
        """Whether looks may be skipped while nothing changes."""
        return self.heap is None and not self.reader.has_cuda and not self.is_over

    def has_changed(self) -> bool:
        """Whether a closer look is worth it: most looks at a program that works steadily would tell the same again."""
        pid, use = self.reader.pid, self.last
        if use is None or self.quiet == MOST_QUIET or not self.may_be_quiet:
            return True
        rss, threads = resident(pid), count_of_threads(pid)
        if rss is None or abs(rss - (use.rss or 0)) > _SAME or resource_limits.open_files(pid) != use.descriptors:
            return True
        if threads > self.most_threads or abs(threads - (use.threads or 0)) > _SAME_THREADS:
            return True
        self.quiet += 1
        return False

    def seen(self, use: ResourceUse, *, last: bool = False) -> None:
        """What was in use at one time."""
        self.last, self.quiet = use, 0
        self.most_threads = max(use.threads or 0, self.most_threads)
        self.marks.look(use, last=last)
        if self.heap is not None:
            self.heap.look(use, last=last)


class TreeSeries:
    """What the processes of a run use together."""

    def __init__(self) -> None:
        self._series: ThinnedSeries[TreeUse] = ThinnedSeries()
        self._budget = TimeBudget(_LENT_S, _SHARE)

    def add(self, at: float, uses: Sequence[tuple[int, int]]) -> None:
        """At one time: process and resident memory, of each that is alive."""
        if not uses:
            return
        rss, pss = self._exactly(uses) or (sum(one for _, one in uses), None)
        self._series.add(TreeUse(at=round(at, 3), processes=len(uses), rss=rss, pss=pss))

    def whole(self) -> tuple[TreeUse, ...]:
        """All that were kept."""
        return self._series.whole()

    def _exactly(self, uses: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
        """All resident memory, and the same with each shared page divided, if there is something to divide."""
        if len(uses) == 1 or self._budget.pause_s():
            return None
        begun = time.thread_time()
        found = [one for pid, _ in uses if (one := resident_and_proportional(pid)) is not None]
        self._budget.spend(time.thread_time() - begun)
        return (sum(rss for rss, _ in found), sum(pss for _, pss in found)) if len(found) == len(uses) else None


class ResourceProfile:
    """The resources of all processes of a run."""

    def __init__(self, interval_s: float, *, sample: bool = False) -> None:
        """``sample``: also what was running while memory grew."""
        self.interval_s, self._sample = interval_s, sample
        self._of: dict[int, _Measured] = {}
        """By ``id`` of the process's ``Traced``, which lives as long as the run."""
        self._next = time.monotonic()
        self._budget, self._at_exits = TimeBudget(_LENT_S, _SHARE), TimeBudget(_LENT_S, _SHARE)
        self._dear = dear_readings()
        self._tree = TreeSeries()
        self._alive: set[int] = set()
        """Those that the last look has seen and that have not ended since."""
        self.gpu = GpuMemory(interval_s)
        self._begun: float | None = None
        """When the command began."""

    @property
    def wait_s(self) -> float:
        """How long to wait before ``look`` is called."""
        return max(self._next - time.monotonic(), 0.0)

    def look(self, living: Iterable[Traced]) -> None:
        """See what all of them use, if it is time to."""
        # Or will be soon: the resources and the stacks have looks of their own, and to wake up twice costs more.
        if self.wait_s > self.interval_s / 2:
            return
        now = time.monotonic()
        cost_s = 0.0
        together: list[tuple[int, int]] = []
        for process in living:
            measured = self._measured(process)
            begun = time.thread_time() - measured.reader.dear_s
            has_changed = measured.has_changed()
            use = self._look_at(process, measured) if has_changed else measured.last
            cost_s += time.thread_time() - measured.reader.dear_s - begun
            if use is not None and not self._may_share_all(process, now):
                together.append((process.pid, use.rss or 0))
            if use is not None and has_changed:
                measured.seen(use)
            if measured.reader.has_cuda:
                self.gpu.start()
        if self._begun is not None:
            self._tree.add(now - self._begun, together)
        self._alive = {pid for pid, _ in together}
        self._budget.spend(cost_s)
        self._next = now + max(self.interval_s, self._budget.pause_s())

    def baseline(self, process: Traced, looks: int, rings: Sequence[mmap.mmap]) -> Baseline | None:
        """The values that the C loop compares for up to ``looks`` looks; None if the process must be read at each look.

        The next look reads everything. ``rings``: as ``Baseline.rings``.
        """
        measured = self._of.get(id(process))
        use = measured.last if measured is not None else None
        if measured is None or not measured.may_be_quiet:
            return None
        if use is None or not use.rss or use.descriptors is None:
            return None
        measured.quiet = MOST_QUIET
        threads = use.threads or 0
        return Baseline(
            process.pid,
            self.interval_s,
            looks,
            range(max(use.rss - _SAME, 0), use.rss + _SAME),
            use.descriptors,
            range(threads - _SAME_THREADS, min(threads + _SAME_THREADS, measured.most_threads) + 1),
            rings,
        )

    def executed(self, process: Traced) -> None:
        """It has just begun another program."""
        self._measured(process)

    def at_exit(self, process: Traced) -> None:
        """The process is about to end; its memory is still there. Raises nothing."""
        measured = self._measured(process)
        use = self._look_at(process, measured, last=True)
        if use is not None:
            measured.seen(use, last=True)
            if not self._may_share_all(process, time.monotonic()):
                self._see_all_once_more(process.pid, use.rss or 0)
        measured.is_over = True
        measured.lines.close()

    def _may_share_all(self, process: Traced, now: float) -> bool:
        """Whether it may be about to execute another program: until then it has its parent's memory, or a copy."""
        return process.role != "command" and not process.executed and now - process.begun < self.interval_s

    def _see_all_once_more(self, ending: int, rss: int) -> None:
        """What all use together while this one is still there: no look may have seen it."""
        self._alive.discard(ending)
        now, begun = time.monotonic(), time.thread_time()
        if self._begun is None or self._at_exits.pause_s() or not self._alive:
            return
        others = [(pid, found) for pid in self._alive if (found := resident(pid)) is not None]
        self._at_exits.spend(time.thread_time() - begun)
        self._tree.add(now - self._begun, [(ending, rss), *others])

    def _measured(self, process: Traced) -> _Measured:
        found = self._of.get(id(process))
        if found is None or found.executions != process.executions:
            if found is not None:
                found.lines.close()
            found = self._of[id(process)] = _Measured.of(process, self._dear, sample=self._sample)
            if process.role == "command":
                self._begun = process.begun
        return found

    def _look_at(self, process: Traced, measured: _Measured, *, last: bool = False) -> ResourceUse | None:
        if measured.is_over:
            return None  # what necropsy reads of it from now on may take memory
        with contextlib.suppress(OSError, ValueError):  # it is gone
            at = time.monotonic() - process.begun
            use = measured.reader.look(at, last=last, gpu=self.gpu.of(process.pid))
            measured.series.add(use)
            return use
        return None

    # ------------------------------------------------------------ what came of it

    def memory(self, process: Traced) -> tuple[ResourceUse, ...] | None:
        """What was in use over time; None of a process that was never looked at."""
        measured = self._of.get(id(process))
        return (measured.series.whole() or None) if measured is not None else None

    def heap(self, process: Traced) -> HeapUse | None:
        """What was running while its memory grew, if that was asked for."""
        measured = self._of.get(id(process))
        return measured.heap.whole() if measured is not None and measured.heap is not None else None

    def peaks(self, process: Traced) -> ResourceUse | None:
        """The most of each; None of a process that was never looked at."""
        measured = self._of.get(id(process))
        return measured.reader.peaks() if measured is not None and measured.series.whole() else None

    def marks(self, process: Traced, processes: Iterable[Traced]) -> tuple[ProfileMark, ...] | None:
        """What happened to it, by time; ``processes``: those among which its children are."""
        measured = self._of.get(id(process))
        if measured is None:
            return None
        found = [*measured.marks.whole(), *children_of(process, processes)]
        return tuple(sorted(found, key=lambda one: one.at)) or None

    def memory_of_tree(self, process: Traced) -> tuple[TreeUse, ...] | None:
        """What the run's processes used together over time; None of other processes than the command."""
        return (self._tree.whole() or None) if process.role == "command" else None

    def limits(self, process: Traced) -> tuple[Limit, ...] | None:
        """The limits that were set, with the most that was seen of each, and those that were read at its end."""
        measured = self._of.get(id(process))
        if measured is None:
            return process.limits
        own = {one.name: one for one in measured.reader.limits()}
        for one in process.limits or ():
            seen = own.get(one.name)
            peak = max((n for n in (one.peak, seen.peak if seen else None) if n is not None), default=None)
            own[one.name] = msgspec.structs.replace(one, peak=peak)
        return tuple(own.values()) or None
