"""How deep the stacks of all threads of a run get: looked at from time to time, and read when a thread ends.

glibc returns the pages of a thread's stack to the kernel before the thread ends. The peak of such a thread comes from
one of three sources:

- A breakpoint where the thread begins to end (``thread_ends``). The contents of the stack are saved as well.
- The page faults that the kernel has recorded (``page_faults``). They cost little, and tell the peak only.
- The last look at the stack, which is not exact. The report says so.

With page faults, a process has breakpoints during its first CPU second, and later while threads with deep stacks end.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Callable, Iterable, Sequence

from necropsy.capture.linux.inspect import registers
from necropsy.capture.linux.inspect.resident_pages import PageMap, TooLargeError
from necropsy.capture.linux.inspect.stack_marks import (
    ForkedStacks,
    StackMark,
    is_backed_by_huge_pages,
    is_locked,
    name_of,
)
from necropsy.capture.linux.inspect.time_budget import TimeBudget
from necropsy.capture.linux.supervise import hardware_breakpoint, ptrace
from necropsy.capture.linux.supervise.process_stacks import MOST_THREADS, ProcessStacks, gaps_of
from necropsy.capture.linux.supervise.stack_faults import StackFaults
from necropsy.capture.linux.supervise.traced_processes import Traced, status_of
from necropsy.model import Gap, StackUse

_LENT_S, _SHARE = 0.05, 1 / 1000
"""A look at all stacks takes at most this part of the time; how deep they were is not lost between two looks."""
_TOP = 32 << 10
"""Bytes at the top of an ended thread's stack that are there still, if they were touched (``PTHREAD_STACK_MIN``)."""


class StackProfile:
    """The stacks of a run.

    ``base_of`` tells where the control block of a thread is, 0 if that is not known; ``parent_of`` the living process
    that started another one. ``by_faults``: those of threads that have ended are known too (``ended``).
    """

    def __init__(
        self,
        interval_s: float,
        base_of: Callable[[int], int],
        parent_of: Callable[[Traced], Traced | None],
        *,
        by_faults: bool = False,
    ) -> None:
        self.interval_s = interval_s
        self._base_of, self._parent_of = base_of, parent_of
        self.ended: list[tuple[Traced, int, int]] = []
        """Threads that have ended, each with its process and its base, as ``ProcessTree.ended_threads``."""
        self._faults = StackFaults(is_wanted=by_faults)
        self._of: dict[int, ProcessStacks] = {}
        """By ``id`` of the process's ``Traced``, which lives as long as the run."""
        self._next = time.monotonic() + interval_s
        self._budget, self._budget_of_ended = TimeBudget(_LENT_S, _SHARE), TimeBudget(_LENT_S, _SHARE)
        self.gaps: list[Gap] = []
        self._refused: str | None = None
        """Why threads are not stopped at their ends."""

    @property
    def wait_s(self) -> float:
        """How long to wait before ``look`` is called."""
        return max(self._next - time.monotonic(), 0.0)

    @property
    def rings(self) -> Sequence[mmap.mmap]:
        """Where the kernel writes page faults."""
        return self._faults.rings

    def pause_s(self, process: Traced) -> float:
        """Seconds until the next look at the stacks of the process; 0 where its page faults alone do not suffice."""
        profiled = self._of.get(id(process))
        if not self._faults.are_read or profiled is None or profiled.ends.are_waited_for:
            return 0.0
        return self._budget.pause_s()

    # ------------------------------------------------------------ from outside

    def look(self, living: Sequence[Traced]) -> None:
        """See how deep all stacks were touched, if it is time to."""
        # Or will be soon: the resources and the stacks have looks of their own, and to wake up twice costs more.
        if self.wait_s > self.interval_s / 2:
            return
        now = time.monotonic()
        self._next = now + self.interval_s
        self._catch_up()
        # Page faults have told most of what there is to see.
        self._budget.share = _SHARE / 2 if self._faults.are_read else _SHARE
        if not self._budget.pause_s():
            begun = time.thread_time()
            self._look_closer(living)
            self._budget.spend(time.thread_time() - begun)
        for process in living:
            if (profiled := self._of.get(id(process))) is not None:
                self._choose_how(profiled)

    def _look_closer(self, living: Sequence[Traced]) -> None:
        for process in living:
            with contextlib.suppress(OSError, TooLargeError):  # it is gone, or is another program by now
                self._look_at(process)
        for process in living:
            if (profiled := self._of.get(id(process))) is not None and profiled.ended_alone is None:
                profiled.read_names()
                with contextlib.suppress(OSError, ValueError):
                    for mark in profiled.marks.values():
                        profiled.live.look(mark)
                    profiled.live.probe(tuple(profiled.marks.values()))

    def _choose_how(self, profiled: ProcessStacks) -> None:
        """Whether threads are stopped at their ends."""
        if self._faults.gave_up:
            profiled.wait_always()
        elif self._faults.are_read:
            profiled.wait_less()
            if not profiled.ends.are_waited_for:
                profiled.keep_what_is_deeper()

    def _catch_up(self) -> None:
        """Take in what was touched since the last time, and who has ended."""
        self._faults.read()
        ended, self.ended[:] = self.ended[:], []
        begun = time.thread_time()
        for process, tid, base in ended:
            profiled = self._of.get(id(process))
            if profiled is not None and profiled.ended_alone is None and self._faults.are_read:
                self._ended(process, profiled, tid, base)
            self._faults.forget(tid)
        self._budget_of_ended.spend(time.thread_time() - begun)

    def _ended(self, process: Traced, profiled: ProcessStacks, tid: int, base: int) -> None:
        mark = profiled.marks.get(tid)
        if mark is None and base and len(profiled.ended) < MOST_THREADS:
            mark = profiled.found_later(tid, base, known_only=self._budget_of_ended.pause_s() > 0)
            if mark is not None:
                self._faults.follow(mark)
                if mark.lowest is None and process.executed:
                    with contextlib.suppress(OSError, TooLargeError):
                        mark.lowest = profiled.top_of(mark, _TOP)
        if mark is None:
            return
        mark.name = self._faults.name_of(mark)
        if not mark.exact:
            if self._faults.know_all_of(mark, profiled.looked):
                self._is_exact(process, mark, keep=False)
            profiled.outlives(mark)
        profiled.over(mark)

    def begin_late(self, process: Traced) -> None:
        """Look at a process that has run for a while: when its stacks got as deep as they are is not known."""
        self._look_at(process)
        for mark in self._of[id(process)].every():
            mark.at = None

    def _look_at(self, process: Traced) -> None:
        profiled = self._profiled(process)
        if profiled.ended_alone is not None:
            return  # it is about to end, and was read for that
        tids = {int(name) for name in os.listdir(f"/proc/{process.pid}/task")}  # noqa: PTH208 - often; Path takes longer
        self._are_gone(profiled, tids)
        profiled.unknown &= tids
        try:
            opened = PageMap(process.pid)
        except (FileNotFoundError, PermissionError) as error:
            if profiled.marks or "VmSize" not in status_of(process.pid):
                raise  # it is about to be gone
            self._no_page_map(error)
            return
        with opened as pages:
            for tid in tids - profiled.unknown:
                self._mark_of(process, profiled, tid, self._base_of(tid), pages)
        profiled.looked = time.monotonic()

    def _are_gone(self, profiled: ProcessStacks, left: set[int]) -> None:
        """Forget all threads but these. Where page faults are read, ``_catch_up`` does so when it hears of an end."""
        if not self._faults.are_read:
            for tid in profiled.marks.keys() - left:
                profiled.over(profiled.marks[tid])

    def _mark_of(
        self, process: Traced, profiled: ProcessStacks, tid: int, base: int, pages: PageMap
    ) -> StackMark | None:
        now = time.monotonic()
        mark = profiled.marks.get(tid)
        if mark is None:
            mark = self._found(process, profiled, tid, base)
            if mark is None:
                if base:
                    profiled.unknown.add(tid)
                return None
            profiled.marks[tid] = mark
            self._faults.follow(mark)
        mark.look(pages, now)
        if mark.is_main and mark.has_grown(pages) and (grown := profiled.reader.main(tid)) is not None:
            mark.low = grown.low
            mark.look(pages, now)
        if not process.executed and process.role == "child" and mark.inherited is None:
            if tid != process.pid and profiled.forked is not None:
                mark.inherited = profiled.forked.inherited(mark)
            if mark.inherited is None:
                parent = self._parent_of(process)
                # Whatever it is, the fork came with no more than both of them show now.
                mark.inherit(parent.pid if parent is not None else None)
        return mark

    def _no_page_map(self, error: OSError) -> None:
        """The process is there, and how deep its stacks were touched cannot be read."""
        why = "this kernel has no page map (CONFIG_PROC_PAGE_MONITOR)"
        if isinstance(error, PermissionError):
            why = "its page map may not be read: it runs with rights that necropsy lacks"
        gap = Gap(part="stack", why=f"how deep the stacks of a process were used: {why}; the rest was measured")
        if gap not in self.gaps:
            self._gap(gap.why)

    def _found(self, process: Traced, profiled: ProcessStacks, tid: int, base: int) -> StackMark | None:
        """A thread that was not seen before."""
        if len(profiled.marks) >= MOST_THREADS:
            return None
        is_main = tid == process.pid
        # The first thread of a fork runs on the stack of the thread that forked.
        if base and not (is_main and process.executed):
            mark = profiled.reader.other(tid, base)
            if mark is not None:
                return mark
        return profiled.reader.main(tid) if is_main else None

    # ------------------------------------------------------------ while it is stopped

    def executed(self, process: Traced) -> None:
        """The process is stopped at its exec; its stacks are new. Raises nothing."""
        self._catch_up()
        self._faults.begin(process.pid)
        old = self._of.pop(id(process), None)
        if old is not None:
            old.close()
            for tid in old.marks:
                self._faults.forget(tid)
        try:
            self._profiled(process, executions=process.executions + 1).ends.wait_for_entry(process.pid)
        except (OSError, ValueError) as error:
            self._refused = f"a breakpoint was not permitted ({error}); see kernel.perf_event_paranoid"

    def threaded(self, process: Traced) -> None:
        """The process is a fork, stopped where it creates its first thread. Raises nothing."""
        with contextlib.suppress(OSError, TooLargeError, ValueError):
            profiled = self._profiled(process)
            profiled.forked = ForkedStacks(process.pid, profiled.reader.maps(fresh=True))

    def noticed(self, process: Traced, tid: int) -> int | None:
        """The address of the breakpoint at which the thread is stopped, if it is one of ours. Raises nothing."""
        profiled = self._of.get(id(process))
        with contextlib.suppress(OSError, TooLargeError, ValueError):
            address = hardware_breakpoint.address_of(ptrace.getsiginfo(tid))
            if profiled is None or address is None or address not in {profiled.ends.entry, profiled.ends.end}:
                return None
            if address == profiled.ends.entry:
                profiled.ends.at_entry(process.pid)
            elif tid != process.pid:
                self._ends(process, profiled, tid)
            return address
        return None

    def _ends(self, process: Traced, profiled: ProcessStacks, tid: int) -> None:
        profiled.unknown.discard(tid)
        known = profiled.marks.get(tid)
        with PageMap(process.pid) as pages:
            mark = self._mark_of(process, profiled, tid, registers.read(tid).thread_pointer, pages)
        if mark is not None:
            self._is_exact(process, mark)
            profiled.stopped_at_its_end(mark)
            if mark is known:
                mark.name = name_of(process.pid, tid) or mark.name

    def at_exit(self, process: Traced) -> None:
        """One thread is stopped where the process is about to end; the others are about to stop. Raises nothing.

        What the report reads of the process from now on may touch pages.
        """
        self._catch_up()
        profiled = self._of.get(id(process))
        with contextlib.suppress(OSError, TooLargeError):
            self._look_at(process)
            profiled = self._of[id(process)]
        if profiled is not None:
            profiled.ended_alone = process.threads_ended
            for mark in profiled.marks.values():
                self._is_exact(process, mark)

    def at_end(self, process: Traced, tids: Iterable[int]) -> None:
        """All threads of the process are stopped, and it is about to end. Raises nothing."""
        self._catch_up()
        with contextlib.suppress(OSError):
            profiled = self._profiled(process)
            if profiled.ended_alone is None:
                self._are_gone(profiled, set(map(int, os.listdir(f"/proc/{process.pid}/task"))))  # noqa: PTH208 - short
            for tid in tids:
                mark = profiled.marks.get(tid)
                with contextlib.suppress(OSError, TooLargeError):
                    if mark is None or not mark.exact:
                        profiled.unknown.discard(tid)
                        base = registers.read(tid).thread_pointer
                        with PageMap(process.pid) as pages:
                            mark = self._mark_of(process, profiled, tid, base, pages)
                if mark is not None:
                    with contextlib.suppress(OSError):
                        mark.note_pointer(registers.read(tid).sp)
                    self._is_exact(process, mark)
                    mark.name = name_of(process.pid, tid) or mark.name

    def over(self, process: Traced) -> None:
        """The process is gone, or about to be."""
        self._catch_up()
        self._faults.forget(process.pid)
        profiled = self._of.get(id(process))
        if profiled is not None:
            profiled.close()

    def _is_exact(self, process: Traced, mark: StackMark, *, keep: bool = True) -> None:
        """``keep``: what is on it is there still."""
        if mark.exact:
            return
        mark.exact = True
        if keep:
            self._of[id(process)].keep(mark)
        if is_backed_by_huge_pages(process.pid, mark):
            mark.exact = False
            self._gap(f"thread {mark.tid} has huge pages for a stack: its peak is known to 2 MiB only")
        if is_locked(process.pid, mark):
            mark.lowest = None
            self._gap(f"thread {mark.tid} keeps all pages of its stack in memory (mlockall): its peak is not known")

    def _gap(self, why: str) -> None:
        if len(self.gaps) < 20:
            self.gaps.append(Gap(part="stack", why=why))

    # ------------------------------------------------------------ what came of it

    def uses(self, process: Traced) -> tuple[StackUse, ...] | None:
        """The stacks of a process, of living threads first; None of one that was never looked at."""
        profiled = self._of.get(id(process))
        if profiled is None:
            return None
        for mark in profiled.every():
            if mark.copy is not None:
                from necropsy.capture.linux.unwind import dead_frames  # where there is something to read

                mark.functions = dead_frames.functions(mark.copy, mark.live)
                mark.copy = mark.live = None
        return tuple(mark.as_noun(process.begun) for mark in profiled.every())

    def not_measured(self, processes: Sequence[Traced]) -> list[Gap]:
        """Threads that ended between two looks, and those of whose peak only the last look is known."""
        too_many = self._faults.are_read or self._faults.gave_up
        why = "page faults came faster than they were read" if too_many else self._refused
        measured = ((one, self._of[id(one)]) for one in processes if id(one) in self._of)
        return [*self.gaps, *gaps_of(measured, why)]

    def _profiled(self, process: Traced, executions: int | None = None) -> ProcessStacks:
        found = self._of.get(id(process))
        wanted = process.executions if executions is None else executions
        if found is not None and found.executions == wanted:
            return found
        if found is not None:
            found.close()
        profiled = self._of[id(process)] = ProcessStacks.of(process.pid, wanted)
        parent = None if process.executed or executions is not None else self._parent_of(process)
        origin = self._of.get(id(parent)) if parent is not None else None
        if origin is not None:
            profiled.ends.end = origin.ends.end
            profiled.ends.wait(process.pid)
        return profiled
