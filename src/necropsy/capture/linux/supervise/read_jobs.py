"""What a process is held for: to be read because it dies or hangs, or to have its stacks measured.

Other processes read: as many jobs at a time as ``MOST``, the others wait for their turn.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from necropsy.capture.linux.stderr.log_source import Log
from necropsy.capture.linux.supervise import crash_capture, fatal_signals, first_chance
from necropsy.capture.linux.supervise.crash_context import CrashContext, Request, Sent
from necropsy.capture.linux.supervise.secondary_exits import LOOK_S
from necropsy.capture.linux.supervise.traced_processes import Traced, now, state_of
from necropsy.capture.run_options import CoreFile, Cores, RunOptions
from necropsy.model import Crash, Exit, Gap

if TYPE_CHECKING:
    from necropsy.capture.linux.supervise.crash_reader import Reader  # it loads what healthy runs need not

REQUEST_BUDGET_S = 3.0
"""For reading a process that somebody asks to end: Docker kills after 10 seconds, SLURM after 30."""
MOST = 2
"""Processes that read at the same time."""
WARM_S = 1.0
"""Seconds after which a run gets a reader; starting it takes about 0.15 s of CPU time."""
_SLACK_S = 10.0
"""How much longer than its budget reading may take before its process is stopped."""
_REQUEST_SLACK_S = 2.0
"""The same for a process that somebody asks to end, who may have little patience."""


@dataclass(eq=False)
class ReadJob:
    """One process that is held, from the moment that its threads are asked to stop until they go on."""

    process: Traced
    tid: int
    """The thread that goes on first."""
    purpose: Literal["death", "exit", "hang", "measure", "request", "release", "killed"]
    """``exit``: after a handled fault; ``request``: a signal asks it to end; ``release``: it is to be detached."""
    signo: int = 0
    """The signal that kills it, 0 for none."""
    info: bytes | None = None
    """128 bytes of ``siginfo_t``."""
    delivers: int = 0
    """The signal with which ``tid`` goes on."""
    request: Request | None = None
    at: str = field(default_factory=now)
    running: int = 0
    """Threads that did not stop in time."""
    core: CoreFile | None = None
    until: float = 0.0
    """When the reader is stopped, in seconds of the monotonic clock."""
    is_void: bool = False
    """The process has executed something else meanwhile."""

    def not_stopped(self, held: Mapping[int, int]) -> tuple[Gap, ...]:
        """The threads that cannot be read, because they did not stop."""
        if not self.running:
            return ()
        missing = fatal_signals.task_ids(self.process.pid) - held.keys()
        running = sorted(tid for tid in missing if state_of(tid) not in {"Z", "X", None})
        why = f"{len(running)} did not stop in time: {', '.join(map(str, running[:5]))}"
        return (Gap(part="threads", why=why),) if running else ()

    def death(
        self, held: Mapping[int, int], chances: first_chance.Chances, log: Log, cores: Cores, options: RunOptions
    ) -> CrashContext:
        """What its reader needs. ``held``: the threads that stand, and the stop of each (event << 8 | signal)."""
        pid, signo, info = self.process.pid, self.signo, self.info
        match self.purpose:
            case "exit":
                first = first_chance.left_by(pid, self.tid, chances)
            case "hang" | "request":
                first = first_chance.stuck(pid, chances, held)
            case _:
                first = first_chance.unfinished(pid, self.tid, chances, held)
        if first is not None and first.is_why:
            signo, info = first_chance.number_of(first), first.siginfo
        tail, gaps = log.tail(pid)
        self.core = cores.new() if self.request is None else None
        return CrashContext(
            pid=pid,
            tid=self.tid,
            signo=signo,
            siginfo=info,
            threads=tuple(sorted(held)),
            first_chance=first,
            also_crashing=tuple(
                tid for tid, stop in held.items() if tid != self.tid and fatal_signals.is_fatal(tid, stop)
            ),
            log_tail=tail,
            gaps=(*gaps, *self.not_stopped(held)),
            python_locals=options.python_locals,
            budget_s=self.budget_s(options.budget_s),
            core=self.core.file if self.core is not None else None,
            full_memory=cores.full_memory,
            sender_command=self.process.sent.get(self.signo, Sent()).command,
        )

    def budget_s(self, most: float) -> float:
        """Seconds for reading it."""
        return most if self.request is None else min(most, REQUEST_BUDGET_S)

    def measure(self, held: Mapping[int, int]) -> tuple[Gap, ...]:
        """Measure how much of its stack each thread used: at the end of all threads, before any stack is gone.

        A thread that ends alone is not measured: glibc gives its pages back first (``advise_stack_range``).
        """
        process = self.process
        try:
            from necropsy.capture.linux.inspect.stack_use import stack_use

            process.stacks = stack_use(process.pid, tuple(sorted(held)))
        except Exception as error:  # noqa: BLE001 - a measurement must not cost the process anything
            process.stacks = ()
            return (Gap(part="stack", why=f"not measured: {type(error).__name__}: {error}"),)
        if not process.threads_ended:
            return ()
        why = f"threads of {process.pid} that had ended before were not measured: {process.threads_ended}"
        return (Gap(part="stack", why=why),)


def known(crash: Crash) -> Callable[[], Crash]:
    """What needs no unpacking, as what does."""
    return lambda: crash


def changed(crash: Callable[[], Crash], **fields: object) -> Callable[[], Crash]:
    """The same with other fields, once it is unpacked."""
    return lambda: msgspec.structs.replace(crash(), **fields)


def with_end(process: Traced, crash: Callable[[], Crash], end: Exit | None) -> Callable[[], Crash]:
    """The same with how the process ended, and what it was forked from."""
    return changed(crash, exit=end, forked_from_threads=process.forked_from_threads)


class ReaderPool:
    """Reads jobs in the order in which they come. No process is held longer than its own reading takes."""

    def __init__(
        self,
        budget_s: float,
        death_of: Callable[[ReadJob], CrashContext],
        on_read: Callable[[ReadJob, Callable[[], Crash], bool], None],
    ) -> None:
        """``on_read`` is called with the job, a function that returns the crash, and whether the core was written."""
        self._budget_s, self._death_of, self._on_read = budget_s, death_of, on_read
        self._readers: dict[int, Reader] = {}
        self._busy: dict[int, ReadJob] = {}
        """Both by the process that reads."""
        self._killed: set[int] = set()
        self._waiting: deque[ReadJob] = deque()
        self._warm_at: float | None = time.monotonic() + WARM_S

    @property
    def wait_s(self) -> float | None:
        """How long to wait before ``look`` is called; None where nothing is awaited."""
        waits = [LOOK_S] if self._busy else []
        waits += [max(self._warm_at - time.monotonic(), 0.0)] if self._warm_at is not None else []
        return min(waits, default=None)

    def add(self, job: ReadJob) -> None:
        """All threads of its process stand."""
        self._waiting.append(job)
        self._next()

    def look(self) -> None:
        """Collect what has been read, stop what takes too long; have a reader ready where the run lasts a while."""
        for pid, job in list(self._busy.items()):
            reader = self._readers[pid]
            if reader.has_finished():
                self._collect(reader, None)
            elif time.monotonic() > job.until:
                reader.stop()
        self._next()
        if self._warm_at is not None and time.monotonic() >= self._warm_at:
            self._warm_at = None
            with contextlib.suppress(OSError):  # no process is left
                self._start()

    def ended(self, pid: int, status: int) -> bool:
        """A child of this process has ended with this wait status; false where it is none of the readers."""
        reader = self._readers.pop(pid, None)
        if reader is None:
            return False
        if reader.was_killed(os.WTERMSIG(status)):
            self._killed.add(pid)
        self._collect(reader, status)
        self._next()
        return True

    def killed(self) -> int:
        """How many readers were killed so far, but not by necropsy: usually by the kernel, because memory ran out."""
        for pid, reader in self._readers.items():
            found = None
            with contextlib.suppress(ChildProcessError):
                found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is not None and found.si_code == os.CLD_KILLED and reader.was_killed(found.si_status):
                self._killed.add(pid)
        return len(self._killed)

    def drop(self, process: Traced) -> None:
        """The process has executed something else: what was to be read is gone."""
        for job in self._waiting:
            job.is_void = job.is_void or job.process is process
        for pid, job in self._busy.items():
            if job.process is process:
                job.is_void = True
                self._readers[pid].stop()

    def close(self) -> None:
        """Nothing more is to be read, for now: at the next death a reader is started."""
        while self._readers:
            _, reader = self._readers.popitem()
            if reader.leave():
                with contextlib.suppress(OSError):
                    os.waitpid(reader.pid, 0)
        self._warm_at = None

    def _start(self) -> Reader:
        from necropsy.capture.linux.supervise.crash_reader import Reader

        reader = Reader.start()
        self._readers[reader.pid] = reader
        return reader

    def _next(self) -> None:
        while self._waiting:
            reader = next((one for one in self._readers.values() if one.is_free), None)
            if reader is None and len(self._readers) >= MOST:
                break
            job = self._waiting.popleft()
            if not job.is_void:
                self._read(job, self._death_of(job), reader)

    def _read(self, job: ReadJob, death: CrashContext, reader: Reader | None) -> None:
        slack_s = _SLACK_S if job.request is None else _REQUEST_SLACK_S
        job.until = time.monotonic() + job.budget_s(self._budget_s) + slack_s
        self._warm_at = None
        try:
            reader = reader or self._start()
            reader.read(death, job.core)
        except OSError:  # no process is left: then here, while all others wait
            crash = crash_capture.read(death)
            self._on_read(job, lambda: crash, crash.gap("core") is None)
        else:
            self._busy[reader.pid] = job

    def _collect(self, reader: Reader, status: int | None) -> None:
        job = self._busy.pop(reader.pid, None)
        if job is not None:
            crash, has_core = reader.collect(status)
            if not job.is_void:
                self._on_read(job, crash, has_core)
