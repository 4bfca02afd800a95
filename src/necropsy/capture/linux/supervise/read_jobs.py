"""What a process is held for: to be read because it dies or hangs, or to have its stacks measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO, Literal

import msgspec

from necropsy.capture.linux.stderr.log_source import Log
from necropsy.capture.linux.supervise import fatal_signals, first_chance
from necropsy.capture.linux.supervise.crash_context import CrashContext, Request, Sent
from necropsy.capture.linux.supervise.traced_processes import Traced, now, state_of
from necropsy.capture.run_options import Cores, RunOptions
from necropsy.model import Crash, Exit, Gap

REQUEST_BUDGET_S = 3.0
"""For reading a process that somebody asks to end: Docker kills after 10 seconds, SLURM after 30."""


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
    core: BinaryIO | None = None
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
            core=self.core,
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
