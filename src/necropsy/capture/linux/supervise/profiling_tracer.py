"""The tracer of ``necropsy profile``: as any other, and it measures the stacks and the memory of what it traces."""

from __future__ import annotations

import math

from necropsy.capture.linux.stderr.log_source import Log
from necropsy.capture.linux.supervise.c_loop import CLoop
from necropsy.capture.linux.supervise.event_loop import Baseline, Event, Kind
from necropsy.capture.linux.supervise.read_jobs import ReadJob
from necropsy.capture.linux.supervise.resource_profile import MOST_QUIET, ResourceProfile
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.supervise.stack_profile import StackProfile
from necropsy.capture.linux.supervise.traced_processes import Traced
from necropsy.capture.linux.supervise.tracer import Tracer
from necropsy.capture.run_options import RunOptions


class ProfilingTracer(Tracer):
    """As ``Tracer``; ``options.profile_s`` is the interval between two looks."""

    def __init__(self, root: int, log: Log, facts: Facts, options: RunOptions, front: int) -> None:
        super().__init__(root, log, facts, options, front)
        loop = self._loop
        # Without the C loop, stacks are found when their threads are stopped.
        self.stacks = StackProfile(
            options.profile_s or 0.1,
            loop.base if isinstance(loop, CLoop) else lambda _tid: 0,
            lambda one: self.members.living.get(one.parent or 0),
            by_faults=isinstance(loop, CLoop),
        )
        self.members.ended_threads = self.stacks.ended
        self.resources = ResourceProfile(options.profile_s or 0.1, sample=options.heap_sample)

    @property
    def processes(self) -> list[Traced]:
        """As ``Tracer.processes``, with what was measured of each."""
        processes = super().processes
        for process in processes:
            process.stacks = self.stacks.uses(process)
            process.memory, process.peaks = self.resources.memory(process), self.resources.peaks(process)
            process.limits = self.resources.limits(process)
            process.heap = self.resources.heap(process)
            process.marks = self.resources.marks(process, processes)
            process.memory_of_tree = self.resources.memory_of_tree(process)
        return processes

    def _patience(self) -> float | None:
        patience = super()._patience()
        if not self.members.living or self.root.exit is not None:
            return patience
        wait_s = self._wait_s()
        seen = self._baseline(math.inf if patience is None else patience - wait_s)
        if seen is not None and isinstance(self._loop, CLoop):
            self._loop.wait_while(seen)
        return wait_s if patience is None else min(patience, wait_s)

    def _baseline(self, most_s: float) -> Baseline | None:
        """The values that the C loop compares for up to ``most_s`` seconds; None if each look must be made here."""
        if len(self.members.living) > 1 or self._jobs:
            return None
        (process,) = self.members.living.values()
        looks = min(int(min(most_s, self.stacks.pause_s(process)) / self.resources.interval_s), MOST_QUIET)
        return self.resources.baseline(process, looks, self.stacks.rings) if looks > 0 else None

    def _wait_s(self) -> float:
        return min(self.stacks.wait_s, self.resources.wait_s)

    def _nothing(self) -> None:
        super()._nothing()
        if self._wait_s():
            return
        free = [one for one in self.members.living.values() if one.pid not in self._jobs]
        self.stacks.look(free)
        self.resources.look(free)

    def _ended(self, process: Traced, status: int) -> bool:
        self.stacks.over(process)
        is_over = super()._ended(process, status)
        if is_over:
            self.gaps += self.stacks.not_measured(self.members.table.processes)
            self.resources.gpu.stop()
        return is_over

    def _executed(self, process: Traced) -> None:
        self.stacks.executed(process)
        super()._executed(process)
        self.resources.executed(process)

    def _exiting(self, process: Traced, tid: int, ending: int) -> None:
        self.stacks.at_exit(process)
        self.resources.at_exit(process)
        super()._exiting(process, tid, ending)

    def _stopped(self, process: Traced, event: Event) -> None:
        if event.kind is Kind.THREADED:
            self.stacks.threaded(process)
        if event.kind is Kind.NOTICED:
            address = self.stacks.noticed(process, event.tid)
            if address is not None and not self.members.bell.waits_at(process.pid, address):
                self._loop.resume(event.tid)
                return
        super()._stopped(process, event)

    def _ready(self, job: ReadJob, running: int) -> None:
        if job.purpose in {"measure", "death", "exit"}:
            self.resources.at_exit(job.process)
            self.stacks.at_end(job.process, self._loop.held(job.process.pid))
            self.stacks.over(job.process)
            job.process.stacks = ()  # it was measured
        if job.purpose == "measure":
            self.gaps += job.not_stopped(self._loop.held(job.process.pid)) if running else ()
            self._finish(job)
            return
        super()._ready(job, running)
