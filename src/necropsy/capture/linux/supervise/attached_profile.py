"""``profile --attach``: the stacks and the memory of a process that runs already, and of its children.

The process is not traced. It is stopped twice for some milliseconds: at the beginning, to find the stacks of its
threads, and at the end, to read them. A thread that starts meanwhile is stopped once, alone. Between these, only files
of ``/proc`` are read. The kernel has kept how deep each stack was ever touched, so that the stacks of the threads that
are alive are known from their beginning.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from necropsy.capture.linux.inspect import registers
from necropsy.capture.linux.inspect.resident_pages import TooLargeError
from necropsy.capture.linux.supervise.attach import STOP_S, held, process_of
from necropsy.capture.linux.supervise.resource_profile import ResourceProfile
from necropsy.capture.linux.supervise.stack_profile import StackProfile
from necropsy.capture.linux.supervise.traced_processes import Traced, command_of, executable_of, is_dead
from necropsy.errors import AttachRefusedError, NoInputError
from necropsy.model import Exit, Gap, RunRecord

_EARLIER = "memory over time and counts before it was attached to, and the stacks of threads that had ended by then"
_TICKS = os.sysconf("SC_CLK_TCK")
_STARTED, _STACK = 19, 25
"""Of ``/proc/PID/stat`` after the name: starttime and startstack (proc_pid_stat(5))."""
_MOST_PROCESSES = 200
_CHILDREN_S = 0.5
"""How often it is looked for new processes and threads, at most."""


class AttachedProfile:
    """What is seen of one process and its descendants until ``end``."""

    def __init__(self, pid: int, interval_s: float, *, sample: bool = False) -> None:
        """Stops the process and finds its stacks. ``sample``: also what is running while its memory grows.

        Raises NoInputError where there is no such process, AttachRefusedError where the kernel or another tracer
        forbids it.
        """
        self.gaps: list[Gap] = []
        self._bases: dict[int, int] = {}
        """By thread: where its control block is."""
        self._stack_at: dict[int, int] = {}
        """By process: where its main stack began, which exec changes and fork does not."""
        self._stacks = StackProfile(interval_s, lambda tid: self._bases.get(tid, 0), self._parent_of)
        self._resources = ResourceProfile(interval_s, sample=sample)
        self._processes: dict[int, Traced] = {}
        """The living ones."""
        self._ended: list[Traced] = []
        self._next_search = 0.0
        self.root = self._begin(process_of(pid), parent=None)
        if not Path(f"/proc/{self.root.pid}/task/{self.root.pid}/children").exists():
            self.gaps.append(Gap(part="process", why="its children: this kernel does not list them"))

    def look(self) -> float:
        """See what all of them use now; the seconds until the next look is worth it."""
        for process in list(self._processes.values()):
            if is_dead(process.pid):
                self._over(process)
            elif _place_of_stack(process.pid) != self._stack_at[process.pid]:
                self._executed(process)
        if time.monotonic() >= self._next_search:
            self._search()
        if not self._wait_s():
            living = list(self._processes.values())
            self._resources.look(living)
            self._stacks.look(living)
        return self._wait_s()

    def _wait_s(self) -> float:
        return min(self._stacks.wait_s, self._resources.wait_s)

    def follow(self, for_s: float | None, stopped: Callable[[], bool]) -> RunRecord:
        """Measure for this many seconds, or until the process ends or ``stopped`` returns true."""
        until = time.monotonic() + for_s if for_s is not None else None
        while True:
            wait_s = max(self.look(), 0.001)
            left = until - time.monotonic() if until is not None else wait_s
            if self.is_over or stopped() or left <= 0:
                return self.end()
            time.sleep(min(wait_s, left, _CHILDREN_S))

    @property
    def is_over(self) -> bool:
        """The process has ended."""
        return self.root.pid not in self._processes

    def end(self) -> RunRecord:
        """Stop each once more, read its stacks, and let it go on."""
        for process in list(self._processes.values()):
            if is_dead(process.pid):
                self._over(process)
                continue
            self._resources.at_exit(process)
            with self._refusal_as_gap(process), held(process.pid) as (stopped, running):
                self._note_running(process, running)
                self._stacks.at_end(process, stopped)
                self._stacks.over(process)
            process.exit = Exit(kind="running")
            process.wall_s = time.monotonic() - process.begun
        told = [self.root, *(one for one in (*self._processes.values(), *self._ended) if one is not self.root)]
        for process in told:
            process.stacks = self._stacks.uses(process)
            process.memory, process.peaks = self._resources.memory(process), self._resources.peaks(process)
            process.limits = self._resources.limits(process)
            process.heap = self._resources.heap(process)
            process.marks = self._resources.marks(process, told)
            process.memory_of_tree = self._resources.memory_of_tree(process)
        gaps = [Gap(part="earlier", why=_EARLIER), *self._stacks.not_measured(told), *self.gaps[:20]]
        return RunRecord(processes=tuple(one.as_noun() for one in told), gaps=tuple(gaps))

    # ------------------------------------------------------------ processes and threads that come and go

    def _begin(self, pid: int, parent: int | None) -> Traced:
        """Raises NoInputError, AttachRefusedError."""
        process = Traced(pid, parent, "child" if parent is not None else "command")
        process.command, process.executable = command_of(pid), executable_of(pid)
        process.begun = _begun(pid)
        with held(pid) as (stopped, running):
            self._bases |= {tid: registers.read(tid).thread_pointer for tid in stopped}
            self._note_running(process, running)
            self._stack_at[pid] = _place_of_stack(pid)
            process.executed = parent is None or self._stack_at[pid] != self._stack_at.get(parent)
            self._processes[pid] = process
            with contextlib.suppress(OSError, TooLargeError):
                self._stacks.begin_late(process)
        return process

    def _search(self) -> None:
        begun = time.monotonic()
        for process in list(self._processes.values()):
            tids = _tids(process.pid)
            for tid in tids - self._bases.keys():
                self._found(process, tid)
            for child in _children(process.pid, tids) - self._processes.keys():
                if len(self._processes) < _MOST_PROCESSES:
                    with self._refusal_as_gap(child):
                        self._begin(child, process.pid)
        self._next_search = time.monotonic() + max(_CHILDREN_S, 100 * (time.monotonic() - begun))

    def _found(self, process: Traced, tid: int) -> None:
        self._bases[tid] = 0
        with self._refusal_as_gap(process), held(process.pid, only=tid) as (stopped, _):
            self._bases |= {one: registers.read(one).thread_pointer for one in stopped}

    def _executed(self, process: Traced) -> None:
        process.become_another()
        with self._refusal_as_gap(process), held(process.pid) as (stopped, _):
            self._bases |= {tid: registers.read(tid).thread_pointer for tid in stopped}
            self._stack_at[process.pid] = _place_of_stack(process.pid)

    def _over(self, process: Traced) -> None:
        del self._processes[process.pid]
        self._ended.append(process)
        self._stacks.over(process)
        process.exit = Exit(kind="unknown")
        process.wall_s = time.monotonic() - process.begun
        why = f"process {process.pid} ended while it was looked at; its peaks are those of the last look"
        self.gaps.append(Gap(part="process", why=why))

    def _parent_of(self, process: Traced) -> Traced | None:
        return self._processes.get(process.parent or 0)

    def _note_running(self, process: Traced, running: list[int]) -> None:
        if running:
            why = f"{len(running)} threads of process {process.pid} did not stop within {STOP_S:g} s"
            self.gaps.append(Gap(part="stack", why=why))

    @contextlib.contextmanager
    def _refusal_as_gap(self, process: Traced | int) -> Iterator[None]:
        """One that may not be read, though its parent may; one that has ended meanwhile is no gap."""
        pid = process if isinstance(process, int) else process.pid
        try:
            yield
        except NoInputError:
            pass
        except (AttachRefusedError, OSError) as error:
            if not is_dead(pid):
                self.gaps.append(Gap(part="process", why=f"{error}"))


def _begun(pid: int) -> float:
    """The start of a process, in seconds of the monotonic clock."""
    started = int(_stat(pid)[_STARTED]) / _TICKS
    return time.monotonic() - max(time.clock_gettime(time.CLOCK_BOOTTIME) - started, 0.0)


def _place_of_stack(pid: int) -> int:
    """0 where it is gone, or the kernel does not say."""
    try:
        return int(_stat(pid)[_STACK])
    except NoInputError:
        return 0


def _stat(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
    except OSError:
        raise NoInputError(f"process {pid} has ended already") from None


def _tids(pid: int) -> set[int]:
    try:
        return {int(name) for name in os.listdir(f"/proc/{pid}/task")}  # noqa: PTH208 - often; Path takes longer
    except OSError:
        return set()


def _children(pid: int, tids: set[int]) -> set[int]:
    """Those that each thread has started; none on a kernel that does not list them."""
    found: set[int] = set()
    for tid in tids:
        with contextlib.suppress(OSError):
            found |= set(map(int, Path(f"/proc/{pid}/task/{tid}/children").read_bytes().split()))
    return found
