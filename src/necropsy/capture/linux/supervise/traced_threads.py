"""Which thread is of which process: what the loop in Python knows of everybody that it traces."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from dataclasses import dataclass, field

from necropsy.capture.linux.supervise import fatal_signals, interrupted_calls, ptrace
from necropsy.capture.linux.supervise.crash_context import FirstChance
from necropsy.capture.linux.supervise.event_loop import Finished, Journal, Started
from necropsy.capture.linux.supervise.ptrace import Stop
from necropsy.capture.linux.supervise.traced_processes import status_of

MOST_GONE, GONE_S = 64, 1.0
"""So many ends are remembered, and for so long."""
_DYING_S = 0.1
"""How long the other threads stay held when one of them goes on with a signal that ends the process."""
_NOT_LETHAL = fatal_signals.HARMLESS | fatal_signals.STOPS
NEW = frozenset({ptrace.EVENT_FORK, ptrace.EVENT_VFORK, ptrace.EVENT_CLONE})
"""Events that announce a new thread or process."""


@dataclass(eq=False)
class ThreadGroup:
    """A process, as the loop knows it."""

    pid: int
    threads: dict[int, Tracee] = field(default_factory=dict)
    signals: dict[int, bytes] = field(default_factory=dict)
    chances: dict[int, tuple[FirstChance, ...]] = field(default_factory=dict)
    peaks: tuple[int | None, int | None, tuple[int, int] | None] = (None, None, None)
    holding: bool = False
    held_since: float = 0.0
    last_held: float = 0.0
    quiet_until: float = 0.0
    """Until then, by the monotonic clock in seconds, it is not returned as REQUESTED."""
    told: bool = False
    killed: bool = False
    measured: bool = False
    threaded: bool = False
    """It has executed something, or was returned when it created its first thread."""

    @property
    def running(self) -> list[int]:
        """The threads that are neither held nor about to end."""
        return [one.tid for one in self.threads.values() if one.held is None and not one.exiting]


@dataclass(eq=False)
class Tracee:
    """A thread, as the loop knows it."""

    tid: int
    process: ThreadGroup
    held: int | None = None
    """The stop that it is held in: event << 8 | signal."""
    exiting: bool = False
    rested: bool = False
    unannounced: bool = False
    """The journal was told of it before the event of its creator arrived."""


def keep_stopped(thread: Tracee, stop: int) -> None:
    """The thread stays in this stop."""
    thread.held = stop
    thread.process.last_held = time.monotonic()


def taken(tid: int, stop: int) -> int:
    """A signal-delivery-stop was only looked at: take it, or the newer one that has come in its place."""
    newer = ptrace.waiting(tid) if stop >> 8 == 0 else ()
    return newer[0] >> 8 if newer and os.WIFSTOPPED(newer[0]) else stop


def _go_on(thread: Tracee, signo: int) -> None:
    stop, thread.held = thread.held or 0, None
    if stop >> 8 == ptrace.EVENT_EXIT:
        thread.exiting, signo = True, 0
    elif ptrace.has_moved_on(Stop(thread.tid, stop & 0x7F, stop >> 8)):
        return
    with contextlib.suppress(OSError):
        ptrace.cont(thread.tid, signo)


class TracedThreads:
    """All threads and processes by their ids."""

    def __init__(self, journal: Journal) -> None:
        self.told = journal
        self.threads: dict[int, Tracee] = {}
        self.processes: dict[int, ThreadGroup] = {}
        self.early: dict[int, float] = {}
        """When threads stopped for the first time whose creator has not told of them yet."""
        self.gone: dict[int, tuple[int | None, float]] = {}
        """Threads that ended before the event of their creator arrived: when, and their wait status, which is None if
        the journal already has them."""
        self.holds: list[ThreadGroup] = []
        """Processes whose threads are being stopped."""
        self.queue: deque[Tracee] = deque()
        """Those left in a stop (``held``) that is to get its ordinary turn."""
        self.dying: tuple[ThreadGroup, float] | None = None
        """A process whose threads are held until it has ended, or until then, by the monotonic clock in seconds."""

    def add(self, tid: int, pid: int) -> Tracee:
        """A thread of a process, which may be new too; nobody is told."""
        process = self.processes.get(pid)
        if process is None:
            process = self.processes[pid] = ThreadGroup(pid)
        thread = process.threads[tid] = self.threads[tid] = Tracee(tid, process)
        return thread

    def started(self, tid: int, pid: int, parent: int) -> Tracee:
        """A new thread, and perhaps a new process: the journal is told."""
        thread = self.add(tid, pid)
        self.told.started(Started(tid, pid, parent, time.monotonic()))
        return thread

    def adopt(self, tid: int) -> Tracee | None:
        """A thread that nobody told of: /proc says whose it is."""
        status = status_of(tid)
        if not status:
            return None
        return self.started(tid, int(status.get("Tgid") or tid), int(status.get("PPid") or 0))

    def created(self, by: Tracee, event: int, *, go_on: bool) -> None:
        """The event of ``by`` announces a new thread or process. The creator goes on first, as it would untraced."""
        tid, pid, held = ptrace.geteventmsg(by.tid), by.process.pid, by.process.holding
        if ptrace.has_moved_on(Stop(by.tid, signal.SIGTRAP, event)):
            return  # it was killed here, and the kernel's word is of its end
        if go_on:
            ptrace.cont(by.tid)
        waits = self.early.pop(tid, None) is not None
        ending, at = self.gone.pop(tid, (0, float("-inf")))
        gone = time.monotonic() < at + GONE_S
        if tid in self.threads:
            self.threads[tid].unannounced = False
            return
        if gone and ending is None:
            return
        own, parent = tid, pid
        if event == ptrace.EVENT_CLONE:
            status = status_of(tid)
            own = int(status.get("Tgid") or pid)
            parent = int(status.get("PPid") or pid) if own == tid else pid
        thread = self.started(tid, own, parent)
        if gone and ending is not None:
            self.finish(thread, ending)
        elif waits and held and own == pid:
            keep_stopped(thread, ptrace.EVENT_STOP << 8 | signal.SIGTRAP)
        elif waits and own == pid and not go_on:
            thread.held = ptrace.EVENT_STOP << 8 | signal.SIGTRAP
            self.queue.append(thread)
        elif waits:
            ptrace.cont(tid)

    def release(self, process: ThreadGroup, first: Tracee | None, signo: int) -> None:
        """Let a held process go on, ``first`` with this signal.

        If that is the end of the process, the other threads are killed where they are held: they see nothing of the
        time that the reading took.
        """
        is_lethal = False
        if first is not None and first.held is not None:
            if first.held >> 8 != ptrace.EVENT_EXIT and signo and signo not in _NOT_LETHAL:
                is_lethal = fatal_signals.is_default(first.tid, signo)
            _go_on(first, signo)
        if is_lethal:
            if self.dying is not None and self.dying[0] is not process:
                self.release_in_time(float("inf"))
            self.dying = process, time.monotonic() + _DYING_S
        # Those that were ending by themselves are not killed where a core is written.
        self._release_others(process, only_ending=is_lethal)

    def release_in_time(self, now: float) -> None:
        """The threads of the dying process go on if it is time."""
        if self.dying is None:
            return
        process, until = self.dying
        is_there = self.processes.get(process.pid) is process
        if now < until and is_there:
            return
        self.dying = None
        if is_there and not process.holding:
            self._release_others(process)

    def _release_others(self, process: ThreadGroup, *, only_ending: bool = False) -> None:
        for thread in process.threads.values():
            if thread.held is None:
                continue
            event = thread.held >> 8
            if only_ending and event != ptrace.EVENT_EXIT:
                continue
            ours = thread.held == (ptrace.EVENT_STOP << 8 | signal.SIGTRAP) and not thread.rested
            if ours:
                with contextlib.suppress(OSError):
                    interrupted_calls.resume_after_interrupt(thread.tid)
            if ours or event in NEW:  # whom it created is known already
                _go_on(thread, 0)
            else:
                self.queue.append(thread)

    def ended_early(self, tid: int, status: int | None) -> None:
        """A thread ended before the event of its creator arrived. ``status`` is None if the journal already has it."""
        self.gone[tid] = status, time.monotonic()
        if len(self.gone) > MOST_GONE:
            del self.gone[next(iter(self.gone))]

    def finish(self, thread: Tracee, status: int) -> None:
        """It has ended: the journal is told."""
        process = thread.process
        if thread.unannounced:
            self.ended_early(thread.tid, None)
        peaks = process.peaks if thread.tid == process.pid else (None, None, None)
        self.told.finished(Finished(thread.tid, process.pid, status, time.monotonic(), *peaks))
        self.threads.pop(thread.tid, None)
        process.threads.pop(thread.tid, None)
        process.chances.pop(thread.tid, None)
        if thread.tid == process.pid:
            self.drop(process)

    def drop(self, process: ThreadGroup) -> None:
        """Nothing more is to be known of it."""
        for tid in process.threads:
            self.threads.pop(tid, None)
        process.threads.clear()
        self.processes.pop(process.pid, None)
        if process in self.holds:
            self.holds.remove(process)
