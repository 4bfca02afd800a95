"""The supervisor's loop: what it serves by itself, and what its caller decides.

A traced program stops thousands of times for nothing: a new thread or process, a signal that has a handler, a healthy
end. The loop continues it at once, and keeps a journal; it returns for decisions. There are two of the same kind:
``c_loop`` (a C library called through ctypes, at the cost of ptrace itself), and ``python_loop`` where that is missing.
"""

from __future__ import annotations

import mmap
import signal
from collections.abc import Collection, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from necropsy.capture.linux.supervise.crash_context import FirstChance

WAKES = signal.SIGUSR1
"""Sent to the tracer, which has blocked it, when a death has been read: ``next`` then returns at once."""


class Kind(IntEnum):
    """What a loop returns. The numbers are those of ``csrc/state.h``."""

    NOTHING = 0
    """The time is up."""
    OVER = 1
    """Nobody is left."""
    CHILD = 2
    """A process that was never traced has ended; ``value`` is its wait status."""
    EXECUTED = 3
    """Stopped at its exec; ``value`` is the thread's former id. Not for files that ``Loop.ordinary`` has named."""
    RESTS = 4
    """Stopped by a signal (``value``), and to be left so: ``Loop.listen``."""
    RESUMED = 5
    """To be continued after that."""
    FATAL = 6
    """Stopped at a signal (``value``) that kills; the other threads of the process are being stopped."""
    HELD = 7
    """All threads of a process stand; ``value`` counts those that did not stop in time."""
    ASKED = 8
    """The command is stopped at a signal (``value``) that the front sent because the time is up."""
    EXITING = 9
    """At its end: by a signal, to measure stacks, or exiting after a handled fault; ``value``: the status to come."""
    ENDED = 10
    """A process has ended by a signal, or the command, or one with a report; ``value`` is its wait status."""
    DRAIN = 11
    """The journal was full, and has been read."""
    INTERRUPTED = 12
    """Stopped at a signal (``value``) that it ignores, or by us (0), which has interrupted a system call.

    On AArch64 at any signal that may have done so: what becomes of the call takes more than one look there."""
    REQUESTED = 13
    """Stopped at a signal (``value``) that asks it to end and that it did not send itself: see ``Loop.requests``."""
    NOTICED = 14
    """Stopped at a breakpoint of ``hardware_breakpoint``, to be continued without a signal."""
    THREADED = 15
    """A fork that has executed nothing, stopped at a clone(2): as a rule its first thread. Only with ``always``."""


class Baseline(NamedTuple):
    """What the last look saw of the only process, and the ranges within which its values count as unchanged.

    While they do, a wait is extended by ``interval_s``, up to ``looks`` times.
    """

    pid: int
    interval_s: float
    looks: int
    resident: range
    """Bytes."""
    descriptors: int
    """Their number, which only Linux 6.2 and later give without a list; elsewhere no wait is extended."""
    threads: range
    rings: Sequence[mmap.mmap]
    """Rings of page faults, of the same size: the wait ends before one of them is full."""


class Event(NamedTuple):
    """What a loop returns: a thread, its process, and what ``kind`` says of ``value``."""

    kind: Kind
    tid: int
    pid: int
    value: int


class Started(NamedTuple):
    """A new thread of process ``pid``; a new process where both are the same. ``parent`` is 0 where it is not known."""

    tid: int
    pid: int
    parent: int
    at: float
    """Seconds of the monotonic clock."""


class Executed(NamedTuple):
    """A process has executed an ordinary file."""

    pid: int
    executable: str
    command: tuple[str, ...] | None


class Finished(NamedTuple):
    """A thread has ended; a process where ``tid`` is ``pid``. Peaks are in bytes, None where they were not read.

    ``main_stack``: how large the main thread's stack was, and its limit, where less than 12 % of that was left.
    ``base``: where its control block was, as ``CLoop.base``; 0 if unknown.
    """

    tid: int
    pid: int
    status: int
    at: float
    peak_rss: int | None
    peak_size: int | None
    main_stack: tuple[int, int] | None = None
    base: int = 0


class Journal(Protocol):
    """Receives what the loop has served, in order, before ``Loop.next`` returns."""

    def started(self, entry: Started) -> None:
        """A new thread or process."""

    def executed(self, entry: Executed) -> None:
        """What a process runs now."""

    def finished(self, entry: Finished) -> None:
        """The end of one."""


class Loop(Protocol):
    """One for each process that traces. All its methods are for the thread that attached."""

    def next(self, wait_s: float | None) -> Event:
        """Serve stops until one takes a decision, or until ``wait_s`` have passed (None: for as long as it takes)."""

    def adopt(self, tid: int, /) -> object:
        """Follow a running thread that the calling thread has seized. Its process is reported as new."""

    def resume(self, tid: int, signo: int = 0) -> None:
        """Let a thread that was returned go on, with this signal."""

    def listen(self, tid: int) -> None:
        """Leave a thread that was returned as RESTS in its group-stop."""

    def let_exit(self, tid: int) -> None:
        """A thread that was returned as EXITING goes on to its end."""

    def hold(self, tid: int, *, stop: int | None, again: int = 0, interrupt: bool = True) -> bool:
        """Stop all threads of the process of ``tid``; true where all are stopped already, else HELD comes.

        ``stop``: the stop in which ``tid`` was returned (event << 8 | signal), None where it runs. ``again``: a fatal
        signal that it is stopped at, to be sent once more: the kernel forgets a signal whose stop was waited for, and
        the thread would survive if this process were killed now. ``interrupt``: false where all are about to stop.
        """

    def release(self, pid: int, first: int, signo: int = 0) -> None:
        """Let all threads of a held process go on; ``first`` before the others, with this signal.

        If the signal ends the process, the others are killed where they are held.
        """

    def ordinary(self, pid: int) -> None:
        """What the process has just executed is nothing special: whoever executes it again need not be returned."""

    def forget(self, pid: int) -> None:
        """The process was detached."""

    def told(self, pid: int) -> None:
        """The process has a report: of its threads only the process's end is of interest."""

    def requests(self, signals: Collection[int]) -> None:
        """Return processes as REQUESTED at these signals."""

    def quiet(self, pid: int, seconds: float) -> None:
        """Do not return the process as REQUESTED for so long; without this call, for a tenth of a second each time."""

    def held(self, pid: int) -> dict[int, int]:
        """The threads that are held, and the stop of each (event << 8 | signal)."""

    def chances(self, pid: int) -> Mapping[int, tuple[FirstChance, ...]]:
        """By thread, the faults that a handler took and that it may still work at, the last one first."""

    def signals(self, pid: int) -> Mapping[int, bytes]:
        """By signal, the siginfo of the last one that the process got."""


def go_on(loop: Loop, event: Event) -> None:
    """Let the thread or the process of an event go on, where nothing could be decided about it."""
    if event.kind in {Kind.ASKED, Kind.INTERRUPTED, Kind.RESUMED, Kind.REQUESTED, Kind.NOTICED, Kind.THREADED}:
        loop.resume(event.tid, event.value)
    elif event.kind is Kind.EXECUTED:
        loop.resume(event.tid)
    elif event.kind is Kind.RESTS:
        loop.listen(event.tid)
    elif event.kind is Kind.EXITING:
        loop.let_exit(event.tid)
    elif event.kind in {Kind.FATAL, Kind.HELD}:
        loop.release(event.pid, event.tid, event.value if event.kind is Kind.FATAL else 0)
