"""What the tracer hands over at a death: the process is stopped, all its threads are, and nothing is read yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

from necropsy.model import Crash, Gap


@dataclass(frozen=True)
class FirstChance:
    """A fatal kind of signal that had a handler: remembered, because the re-raised one has lost its address."""

    tid: int
    siginfo: bytes
    """128 bytes of ``siginfo_t``."""
    registers: bytes
    """As ``ptrace.getregset`` gives them, or those of NT_PRSTATUS."""
    at: float = 0.0
    """Seconds of the monotonic clock."""
    is_why: bool = False
    """Nothing else is wrong: its handler, which still runs, ends the process by an exit code, or does not end."""


@dataclass(frozen=True)
class Sent:
    """A sent signal: its ``siginfo_t`` with the sender's number here, and the ``command`` of another sender."""

    info: bytes | None = None
    command: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Request:
    """A signal from outside that asks a process to end, at which its threads are read; see ``termination_requests``."""

    signo: int
    sent: Sent
    handled: bool
    """It has a handler, and may live on."""
    begun: float
    """When its threads were asked to stop, in seconds of the monotonic clock."""
    read_at: float = 0.0
    """When they had been read, and went on: the same clock."""
    at: str | None = None
    """ISO 8601."""
    crash: Callable[[], Crash] | None = None
    """What was read, to be unpacked where it is needed."""


@dataclass(frozen=True)
class CrashContext:
    """A process about to die. Every thread in ``threads`` is ptrace-stopped by the tracer when this is built."""

    pid: int
    tid: int
    """The thread that took the fatal signal."""
    signo: int
    """0 where no signal ends it: it is read because its time is up, and ``tid`` is just any of its threads."""
    siginfo: bytes | None
    """128 bytes of ``siginfo_t``; None at PTRACE_EVENT_EXIT after SIGKILL."""
    threads: tuple[int, ...]
    """Stopped threads, ``tid`` among them."""
    first_chance: FirstChance | None = None
    also_crashing: tuple[int, ...] = ()
    """Other threads stopped at a fatal signal of their own."""
    log_tail: str | None = None
    """The end of what the process wrote to stderr, if that is known."""
    gaps: tuple[Gap, ...] = field(default=())
    python_locals: bool = False
    budget_s: float = 20.0
    """Reading stops when this much time has passed; what is left out becomes a gap."""
    core: BinaryIO | None = None
    """Where to write a core in gzip; None where none is wanted."""
    deferred: list[Callable[[], None]] | None = None
    """Functions are added to it that can be called after the process has gone on; None if all is to be done before."""
    memory: int | None = None
    """A descriptor of its memory that the tracer has opened; None where the reader may open it."""
    sender_command: tuple[str, ...] | None = None
    """Of the process that sent the signal, where that is another one."""
    full_memory: bool = False
    """The core holds all memory that can be written, not only what a debugger needs to show the stacks."""
