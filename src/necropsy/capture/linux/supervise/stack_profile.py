"""How deep the stacks of all threads of a run get: looked at from time to time, and read when a thread ends.

glibc gives a thread's pages back before the thread ends (``advise_stack_range``), so that its end is too late. A
breakpoint in the processor (``hardware_breakpoint``) stops each thread of glibc's where it begins to end, and its mark
is exact then. Where the kernel permits none, the last look counts, and the report says so.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.capture.linux.inspect import modules, registers
from necropsy.capture.linux.inspect.link_map import auxiliary
from necropsy.capture.linux.inspect.python_threads import PythonThreads
from necropsy.capture.linux.inspect.resident_pages import PageMap, TooLargeError
from necropsy.capture.linux.inspect.stack_marks import (
    ForkedStacks,
    StackMark,
    StackReader,
    is_backed_by_huge_pages,
    is_locked,
    name_of,
)
from necropsy.capture.linux.supervise import hardware_breakpoint, ptrace
from necropsy.capture.linux.supervise.live_stacks import LiveStacks
from necropsy.capture.linux.supervise.traced_processes import Traced, status_of
from necropsy.model import Gap, StackUse

_END = "__call_tls_dtors"
"""glibc calls it first when a thread ends (2.18 and later), with signals still allowed; hardly anything else does."""
_AT_ENTRY = 9
_COPIES = 5
"""Stacks of a process of which it is said what filled them."""
_LEAST_COPIED, _MOST_COPIED = 64 << 10, 64 << 20
"""Bytes in use of those."""
_COST = 600
"""A look at all stacks takes at most this part of the time; how deep they were is not lost between two looks."""
_MOST_THREADS = 4096
"""The most threads of one process whose stacks are reported."""


@dataclass
class _Profiled:
    """One process since its last exec."""

    reader: StackReader
    python: PythonThreads
    live: LiveStacks
    executions: int
    marks: dict[int, StackMark] = field(default_factory=dict)
    """Of living threads."""
    ended: list[StackMark] = field(default_factory=list)
    entry: int | None = None
    """Where it begins to run: its libraries are mapped then."""
    thread_end: int | None = None
    handles: list[int] = field(default_factory=list)
    ended_alone: int | None = None
    """How many threads had ended when the process was about to end, and all others with it."""
    copied: list[StackMark] = field(default_factory=list)
    """Those whose contents are kept, the one that came least close first."""
    unknown: set[int] = field(default_factory=set)
    """Threads whose stacks were not found."""
    forked: ForkedStacks | None = None

    def every(self) -> Iterator[StackMark]:
        """All stacks, those of living threads first."""
        yield from self.marks.values()
        yield from self.ended

    def read_names(self) -> None:
        """See what Python calls its threads, where that is not known."""
        unnamed = {one.base: one.tid for one in self.marks.values() if one.base and one.python_name is None}
        for tid, name in (self.python.names(unnamed) if unnamed else {}).items():
            self.marks[tid].python_name = name

    def close(self) -> None:
        """Forget the breakpoints, and read no more."""
        self.python.close()
        for handle in self.handles:
            os.close(handle)
        self.handles.clear()


class StackProfile:
    """The stacks of a run.

    ``base_of`` tells where the control block of a thread is, 0 if that is not known; ``parent_of`` the living process
    that started another one.
    """

    def __init__(
        self, interval_s: float, base_of: Callable[[int], int], parent_of: Callable[[Traced], Traced | None]
    ) -> None:
        self.interval_s = interval_s
        self._base_of, self._parent_of = base_of, parent_of
        self._of: dict[int, _Profiled] = {}
        """By ``id`` of the process's ``Traced``, which lives as long as the run."""
        self._next = time.monotonic() + interval_s
        self.gaps: list[Gap] = []
        self._refused: str | None = None
        """Why threads are not stopped at their ends."""

    @property
    def wait_s(self) -> float:
        """How long to wait before ``look`` is called."""
        return max(self._next - time.monotonic(), 0.0)

    # ------------------------------------------------------------ from outside

    def look(self, living: Sequence[Traced]) -> None:
        """See how deep all stacks were touched, if it is time to."""
        now, begun = time.monotonic(), time.thread_time()
        if now < self._next:
            return
        for process in living:
            with contextlib.suppress(OSError, TooLargeError):  # it is gone, or is another program by now
                self._look_at(process)
        cost_s = time.thread_time() - begun
        for process in living:
            if (profiled := self._of.get(id(process))) is not None and profiled.ended_alone is None:
                profiled.read_names()
                with contextlib.suppress(OSError, ValueError):
                    for mark in profiled.marks.values():
                        profiled.live.look(mark)
                    profiled.live.probe(tuple(profiled.marks.values()))
        self._next = now + max(self.interval_s, _COST * cost_s)

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
        for tid in profiled.marks.keys() - tids:
            self._over(profiled, tid)
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

    def _mark_of(self, process: Traced, profiled: _Profiled, tid: int, base: int, pages: PageMap) -> StackMark | None:
        now = time.monotonic()
        mark = profiled.marks.get(tid)
        if mark is None:
            mark = self._found(process, profiled, tid, base)
            if mark is None:
                if base:
                    profiled.unknown.add(tid)
                return None
            profiled.marks[tid] = mark
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

    def _found(self, process: Traced, profiled: _Profiled, tid: int, base: int) -> StackMark | None:
        """A thread that was not seen before."""
        if len(profiled.marks) >= _MOST_THREADS:
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
        old = self._of.pop(id(process), None)
        if old is not None:
            old.close()
        try:
            profiled = self._profiled(process, executions=process.executions + 1)
            entry = auxiliary(Path(f"/proc/{process.pid}/auxv").read_bytes()).get(_AT_ENTRY)
            if entry is not None and hardware_breakpoint.is_supported():
                profiled.entry = entry
                profiled.handles.append(hardware_breakpoint.opened(process.pid, entry))
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
            if profiled is None or address is None or address not in {profiled.entry, profiled.thread_end}:
                return None
            if address == profiled.thread_end:
                if tid != process.pid:
                    self._ends(process, profiled, tid)
            else:
                profiled.close()
                profiled.thread_end = modules.address_of(process.pid, _END, "/libc")
                self._wait_for_ends(process.pid, profiled)
            return address
        return None

    def _wait_for_ends(self, pid: int, profiled: _Profiled) -> None:
        if profiled.thread_end is None:
            return
        for name in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with contextlib.suppress(OSError):
                opened = hardware_breakpoint.opened(int(name), profiled.thread_end, with_new_threads=True)
                profiled.handles.append(opened)

    def _ends(self, process: Traced, profiled: _Profiled, tid: int) -> None:
        profiled.unknown.discard(tid)
        known = profiled.marks.get(tid)
        with PageMap(process.pid) as pages:
            mark = self._mark_of(process, profiled, tid, registers.read(tid)["fs_base"], pages)
        if mark is not None:
            self._is_exact(process, mark)
            if mark is known:
                mark.name = name_of(process.pid, tid) or mark.name

    def at_exit(self, process: Traced) -> None:
        """One thread is stopped where the process is about to end; the others are about to stop. Raises nothing.

        What the report reads of the process from now on may touch pages.
        """
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
        with contextlib.suppress(OSError):
            profiled = self._profiled(process)
            if profiled.ended_alone is None:
                left = set(map(int, os.listdir(f"/proc/{process.pid}/task")))  # noqa: PTH208
                for tid in profiled.marks.keys() - left:
                    self._over(profiled, tid)
            for tid in tids:
                mark = profiled.marks.get(tid)
                with contextlib.suppress(OSError, TooLargeError):
                    if mark is None or not mark.exact:
                        profiled.unknown.discard(tid)
                        base = registers.read(tid)["fs_base"]
                        with PageMap(process.pid) as pages:
                            mark = self._mark_of(process, profiled, tid, base, pages)
                if mark is not None:
                    with contextlib.suppress(OSError):
                        mark.note_pointer(registers.read(tid).sp)
                    self._is_exact(process, mark)
                    mark.name = name_of(process.pid, tid) or mark.name

    def over(self, process: Traced) -> None:
        """The process is gone, or about to be."""
        profiled = self._of.get(id(process))
        if profiled is not None:
            profiled.close()

    def _is_exact(self, process: Traced, mark: StackMark) -> None:
        if mark.exact:
            return
        mark.exact = True
        self._copy(process, mark)
        if is_backed_by_huge_pages(process.pid, mark):
            mark.exact = False
            self._gap(f"thread {mark.tid} has huge pages for a stack: its peak is known to 2 MiB only")
        if is_locked(process.pid, mark):
            mark.lowest = None
            self._gap(f"thread {mark.tid} keeps all pages of its stack in memory (mlockall): its peak is not known")

    def _copy(self, process: Traced, mark: StackMark) -> None:
        """Keep what is on the stack, if this is one of the few that came closest to their ends."""
        used = mark.high - mark.lowest if mark.lowest is not None else 0
        profiled = self._of[id(process)]
        if not _LEAST_COPIED <= used <= _MOST_COPIED:
            return
        kept = profiled.copied
        if len(kept) >= _COPIES and kept[0].share >= mark.share:
            return
        with contextlib.suppress(OSError):
            reused = any(one.high == mark.high and one is not mark for one in profiled.every())
            mark.take_copy(process.pid, profiled.reader.maps(fresh=True), reused=reused)
            profiled.copied = sorted([*kept, mark], key=lambda one: one.share)
            while len(profiled.copied) > _COPIES:
                profiled.copied.pop(0).copy = None

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
        unseen = late = 0
        for process in processes:
            profiled = self._of.get(id(process))
            if profiled is not None:
                alone = profiled.ended_alone
                # Without that word, those that were alive may have ended with the process.
                most = process.threads_ended - len(profiled.marks) if alone is None else alone
                unseen += max(most - len(profiled.ended), 0)
                late += sum(not one.exact for one in profiled.ended)
        gaps = list(self.gaps)
        away = [one for process in processes for one in self._marks(process) if one.elsewhere]
        if away:
            first = "main" if away[0].is_main else away[0].python_name or away[0].name or str(away[0].tid)
            what = f"thread {first}" if len(away) == 1 else f"{len(away):,} threads, {first} among them,"
            why = f"{what} ran on memory that is not a thread's stack, as coroutines, fibers and signal handlers do"
            gaps.append(Gap(part="stack", why=f"{why}; it is not measured"))
        if unseen:
            what = "1 thread" if unseen == 1 else f"{unseen:,} threads"
            gaps.append(Gap(part="stack", why=f"{what} began and ended between two looks"))
        if late:
            what = "1 thread that ended early is that" if late == 1 else f"{late:,} threads that ended early are those"
            why = f"the peak of {what} of the last look"
            gaps.append(Gap(part="stack", why=f"{why}: {self._refused}" if self._refused is not None else why))
        return gaps

    def _marks(self, process: Traced) -> Iterator[StackMark]:
        profiled = self._of.get(id(process))
        return profiled.every() if profiled is not None else iter(())

    @staticmethod
    def _over(profiled: _Profiled, tid: int) -> None:
        mark = profiled.marks.pop(tid)
        mark.ended = True
        if len(profiled.ended) < _MOST_THREADS:
            profiled.ended.append(mark)

    def _profiled(self, process: Traced, executions: int | None = None) -> _Profiled:
        found = self._of.get(id(process))
        wanted = process.executions if executions is None else executions
        if found is not None and found.executions == wanted:
            return found
        if found is not None:
            found.close()
        reader, python = StackReader(process.pid), PythonThreads(process.pid)
        profiled = self._of[id(process)] = _Profiled(reader, python, LiveStacks(reader, python), wanted)
        parent = None if process.executed or executions is not None else self._parent_of(process)
        origin = self._of.get(id(parent)) if parent is not None else None
        if origin is not None:
            profiled.thread_end = origin.thread_end
            self._wait_for_ends(process.pid, profiled)
        return profiled
