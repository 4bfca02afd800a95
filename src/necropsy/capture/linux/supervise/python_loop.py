"""The loop in Python, for where the C library was not built: the same stops, the same answers, at a higher cost."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Collection, Mapping

from necropsy.capture.linux.supervise import fatal_signals, hardware_breakpoint, interrupted_calls, ptrace
from necropsy.capture.linux.supervise.crash_context import FirstChance
from necropsy.capture.linux.supervise.event_loop import WAKES, Event, Journal, Kind
from necropsy.capture.linux.supervise.first_chance import remembered
from necropsy.capture.linux.supervise.ptrace import Stop
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.supervise.signal_wait import take
from necropsy.capture.linux.supervise.traced_processes import main_stack, state_of, status_of
from necropsy.capture.linux.supervise.traced_threads import NEW, ThreadGroup, TracedThreads, Tracee, keep_stopped, taken

FREEZE_S = 2.0
"""How long any of the other threads of a dying process may take to stop; one in an uninterruptible sleep does not."""
LONGEST_FREEZE_S = 8.0
"""How long all of them may take: thousands need more than one."""
_EARLY_S = 0.02
"""How long a new thread waits for the event of its creator, which was killed in the middle if it takes longer."""
_ASK_AGAIN_S = 0.1
_LOOK_S = 0.05
_LOOK_EVERY = 64


class PythonLoop:
    """As ``loop.Loop``."""

    def __init__(self, root: int, *, front: int, facts: Facts, journal: Journal, always: bool, failures: bool) -> None:
        """Take over the command ``root``, which this thread has seized; 0: who is traced comes by ``adopt``."""
        self._root, self._front, self._facts = root, front, facts
        self._always, self._failures = always, failures
        self._known = TracedThreads(journal)
        self.adopt = self._known.adopt
        self._root_ended, self._requests = False, frozenset[int]()
        self._leaving: ThreadGroup | None = None
        _ = root and self._known.add(root, root)

    # ------------------------------------------------------------ waiting

    def next(self, wait_s: float | None) -> Event:
        """As ``Loop.next``."""
        until = None if wait_s is None else time.monotonic() + wait_s
        self._leaving = None
        for served in itertools.count(1):
            event = self._queued() or self._awaited(until)
            if event is not None:
                return event
            if until is not None and not served % _LOOK_EVERY and time.monotonic() >= until:
                break  # events without end must not keep the caller from what it waits for
        return Event(Kind.NOTHING, 0, 0, 0)

    def _queued(self) -> Event | None:
        while self._known.queue:
            thread = self._known.queue.popleft()
            if thread.held is not None and self._known.threads.get(thread.tid) is thread and not thread.process.holding:
                stop, thread.held = thread.held, None
                moved_on = ptrace.has_moved_on(Stop(thread.tid, stop & 0x7F, stop >> 8))
                event = None if moved_on else self._served(thread.tid, stop)
                if event is not None:
                    return event
        return None

    def _awaited(self, until: float | None) -> Event | None:
        try:
            if until is None and not (self._known.holds or self._known.early or self._known.dying):
                found: tuple[int, int] | None = ptrace.wait()
            else:
                found = ptrace.wait_at_once()
        except ChildProcessError:
            return Event(Kind.OVER, 0, 0, 0)
        if found is not None:
            self._facts.beat()
            tid, status = found
            return self._served(tid, status >> 8) if os.WIFSTOPPED(status) else self._end(tid, status)
        now = time.monotonic()
        self._adopt_early(now)
        self._known.release_in_time(now)
        late = self._late(now)
        if late is not None:
            return late
        if until is not None and now >= until:
            return Event(Kind.NOTHING, 0, 0, 0)
        left = _LOOK_S if until is None or self._known.holds or self._known.dying else until - now
        said = take({signal.SIGCHLD, WAKES}, min(left, _EARLY_S) if self._known.early else left)
        return Event(Kind.NOTHING, 0, 0, 0) if said is not None and said.signo == WAKES else None

    def _adopt_early(self, now: float) -> None:
        for tid in [tid for tid, since in self._known.early.items() if now > since + _EARLY_S]:
            del self._known.early[tid]
            thread = self._known.threads.get(tid)
            if thread is None and (thread := self._known.adopt(tid)) is not None:
                thread.unannounced = True
            if thread is not None and thread.process.holding:
                keep_stopped(thread, ptrace.EVENT_STOP << 8 | signal.SIGTRAP)
                continue
            with contextlib.suppress(OSError):
                ptrace.cont(tid)

    # ------------------------------------------------------------ stops

    def _served(self, tid: int, stop: int) -> Event | None:
        """Serve a stop; no exception may leave it, because a tracer that hangs blocks the command."""
        try:
            return self._stop(tid, stop)
        except ProcessLookupError:  # killed while it was stopped: its end comes next
            return None

    def _stop(self, tid: int, stop: int) -> Event | None:
        event, signo = stop >> 8, stop & 0x7F
        thread = self._known.threads.get(tid)
        if thread is None and event == ptrace.EVENT_STOP:
            # New, and its creator has not said so yet: it is about to, and goes first.
            self._known.early[tid] = time.monotonic()
            return None
        thread = thread or self._known.adopt(tid)
        if thread is None:
            ptrace.cont(tid, 0 if event else signo)
            return None
        process = thread.process
        if event == ptrace.EVENT_EXEC:
            return self._exec(process, tid)
        if process.holding:
            if event in NEW:
                self._known.created(thread, event, go_on=False)
            keep_stopped(thread, taken(tid, stop))
            return self._held_event(process)
        if event == 0 and self._always and ptrace.is_at_its_end(tid):
            return None  # killed in this stop; its end is what comes next
        if event == 0 and hardware_breakpoint.is_hit(tid, signo):
            taken(tid, stop)  # the kernel forgets the signal then, should this process end now
            return Event(Kind.NOTICED, tid, process.pid, 0)
        if event == 0:
            return self._signal(thread, signo)
        if event == ptrace.EVENT_STOP:
            return self._event_stop(thread, signo)
        if self._always and event == ptrace.EVENT_CLONE and not process.threaded:
            self._known.created(thread, event, go_on=False)
            process.threaded = len(process.threads) > 1
            return Event(Kind.THREADED, tid, process.pid, 0)
        if event in NEW:
            self._known.created(thread, event, go_on=True)
        elif event == ptrace.EVENT_EXIT:
            return self._exit(thread)
        else:
            ptrace.cont(tid)
        return None

    def _event_stop(self, thread: Tracee, signo: int) -> Event | None:
        process = thread.process
        if signo in fatal_signals.STOPS:
            thread.rested = True
            return Event(Kind.RESTS, thread.tid, process.pid, signo)
        if thread.rested:
            thread.rested = False
            return Event(Kind.RESUMED, thread.tid, process.pid, 0)
        interrupted_calls.resume_after_interrupt(thread.tid)  # by ``exception_watch``, and it stopped late
        ptrace.cont(thread.tid)
        return None

    def _exec(self, process: ThreadGroup, tid: int) -> Event:
        former = ptrace.geteventmsg(tid)
        for one in process.threads:
            self._known.threads.pop(one, None)
        if process in self._known.holds:
            self._known.holds.remove(process)
        signals = process.signals
        fresh = self._known.processes[process.pid] = ThreadGroup(process.pid, signals=signals, threaded=True)
        fresh.threads[tid] = self._known.threads[tid] = Tracee(tid, fresh)
        return Event(Kind.EXECUTED, tid, process.pid, former)

    # ------------------------------------------------------------ signals

    def _signal(self, thread: Tracee, signo: int) -> Event | None:
        process, tid = thread.process, thread.tid
        is_root = process.pid == self._root
        if signo in fatal_signals.HARMLESS and not is_root:
            return self._pass_on(thread, signo)
        info = ptrace.getsiginfo(tid)
        sender = fatal_signals.sent_by(info)
        if is_root and sender is not None:
            self._facts.delivered(signo, sender)
        if signo in fatal_signals.HARMLESS or signo in fatal_signals.STOPS:
            return self._pass_on(thread, signo)
        process.signals[signo] = info
        if is_root and sender == self._front and self._facts.timed_out:
            return Event(Kind.ASKED, tid, process.pid, signo)
        if signo not in fatal_signals.CORE or self._root_ended:
            return self._requested(thread, signo, sender) or self._pass_on(thread, signo)
        if fatal_signals.is_default(tid, signo):
            keep_stopped(thread, int(signo))
            self._begin_hold(process, interrupt=True)
            return Event(Kind.FATAL, tid, process.pid, signo)
        if sender is None or sender == process.pid:
            new = FirstChance(tid, info, ptrace.getregset(tid), time.monotonic())
            process.chances[tid] = remembered(process.chances.get(tid, ()), new)
        return self._requested(thread, signo, sender) or self._pass_on(thread, signo)

    def _requested(self, thread: Tracee, signo: int, sender: int | None) -> Event | None:
        """Another process asks it to end, and it was not returned for that a short while ago."""
        process, time_now = thread.process, time.monotonic()
        if signo not in self._requests or self._root_ended or process.told or sender == process.pid:
            return None
        if time_now < process.quiet_until:
            return None
        process.quiet_until = time_now + _ASK_AGAIN_S
        return Event(Kind.REQUESTED, thread.tid, process.pid, signo)

    @staticmethod
    def _pass_on(thread: Tracee, signo: int) -> Event | None:
        """Even an ignored signal wakes a traced thread; what happens to its call is decided elsewhere."""
        if interrupted_calls.was_interrupted(thread.tid, signo):
            return Event(Kind.INTERRUPTED, thread.tid, thread.process.pid, signo)
        ptrace.cont(thread.tid, signo)
        return None

    # ------------------------------------------------------------ ends

    def _exit(self, thread: Tracee) -> Event | None:
        process, tid = thread.process, thread.tid
        ending = ptrace.geteventmsg(tid)
        killed = os.WIFSIGNALED(ending)
        others = any(not one.exiting for one in process.threads.values() if one is not thread)
        alone = not killed and others and fatal_signals.ends_alone(tid)
        if not alone and process.peaks == (None, None, None):
            status = status_of(tid)
            if "VmHWM" in status and "VmPeak" in status:
                rss, size = (int(status[name].split()[0]) * 1024 for name in ("VmHWM", "VmPeak"))
                process.peaks = rss, size, main_stack(tid, status)
        is_first = os.WTERMSIG(ending) == signal.SIGSYS or not process.killed
        if killed and is_first and not self._root_ended and not process.told:
            process.killed = True
            return Event(Kind.EXITING, tid, process.pid, ending)
        gives_up = tid in process.chances and os.WEXITSTATUS(ending) and not self._root_ended and not process.told
        is_wanted = self._always or (ending and (self._failures or process.pid == self._root))
        if not killed and (gives_up or (is_wanted and not alone and not process.measured)):
            process.measured = True
            return Event(Kind.EXITING, tid, process.pid, ending)
        self.let_exit(tid)
        return None

    def _end(self, tid: int, status: int) -> Event | None:
        thread = self._known.threads.get(tid)
        if thread is None:
            self._known.ended_early(tid, status)
            return None if self._known.early.pop(tid, None) is not None else Event(Kind.CHILD, tid, tid, status)
        process = thread.process
        self._known.finish(thread, status)
        if tid != process.pid:
            return self._held_event(process)
        if os.WIFSIGNALED(status) or tid == self._root or process.told:
            self._root_ended = self._root_ended or tid == self._root
            self._leaving = process
            return Event(Kind.ENDED, tid, tid, status)
        return None

    # ------------------------------------------------------------ stopping a process

    def _begin_hold(self, process: ThreadGroup, *, interrupt: bool) -> None:
        if process.holding:
            return
        process.holding = True
        process.held_since = process.last_held = time.monotonic()
        self._known.holds.append(process)
        for tid in process.running if interrupt else ():
            with contextlib.suppress(OSError):
                ptrace.interrupt(tid)

    def _held_event(self, process: ThreadGroup) -> Event | None:
        if process not in self._known.holds or process.running:
            return None
        self._known.holds.remove(process)
        return Event(Kind.HELD, process.pid, process.pid, 0)

    def _late(self, now: float) -> Event | None:
        """A process whose time for stopping is up, or whose running threads have died unseen."""
        for process in list(self._known.holds):
            late = now > process.last_held + FREEZE_S or now > process.held_since + LONGEST_FREEZE_S
            left = [tid for tid in process.running if late or state_of(tid) not in {"Z", "X", None}]
            if late or not left:
                self._known.holds.remove(process)
                return Event(Kind.HELD, process.pid, process.pid, len(left))
        return None

    # ------------------------------------------------------------ what the caller decides

    def resume(self, tid: int, signo: int = 0) -> None:
        """As ``Loop.resume``."""
        thread = self._known.threads.get(tid)
        if thread is not None:
            thread.held = None
        with contextlib.suppress(OSError):
            if not self._always or not ptrace.is_at_its_end(tid):  # else it was killed, and its end is of interest
                ptrace.cont(tid, signo)

    def listen(self, tid: int) -> None:
        """As ``Loop.listen``."""
        with contextlib.suppress(OSError):
            ptrace.listen(tid)

    def let_exit(self, tid: int) -> None:
        """As ``Loop.let_exit``."""
        thread = self._known.threads.get(tid)
        if thread is not None:
            thread.exiting = True
        with contextlib.suppress(OSError):
            ptrace.cont(tid)

    def hold(self, tid: int, *, stop: int | None, again: int = 0, interrupt: bool = True) -> bool:
        """As ``Loop.hold``."""
        thread = self._known.threads.get(tid)
        if thread is None:
            return True
        process = thread.process
        if again:
            with contextlib.suppress(OSError):
                ptrace.tgkill(process.pid, tid, again)
        if stop is not None:
            keep_stopped(thread, taken(tid, stop))
        self._begin_hold(process, interrupt=interrupt)
        return self._held_event(process) is not None

    def release(self, pid: int, first: int, signo: int = 0) -> None:
        """As ``Loop.release``."""
        process = self._known.processes.get(pid)
        if process is None:
            return
        if process in self._known.holds:
            self._known.holds.remove(process)
        process.holding = False
        self._known.release(process, process.threads.get(first), signo)

    def ordinary(self, pid: int) -> None:
        """As ``Loop.ordinary``: every exec is returned here."""

    def forget(self, pid: int) -> None:
        """As ``Loop.forget``."""
        process = self._known.processes.get(pid)
        if process is not None:
            self._known.drop(process)

    def told(self, pid: int) -> None:
        """As ``Loop.told``."""
        process = self._known.processes.get(pid)
        if process is not None:
            process.told = True

    def requests(self, signals: Collection[int]) -> None:
        """As ``Loop.requests``."""
        self._requests = frozenset(signals)

    def quiet(self, pid: int, seconds: float) -> None:
        """As ``Loop.quiet``."""
        process = self._known.processes.get(pid)
        if process is not None:
            process.quiet_until = time.monotonic() + seconds

    def held(self, pid: int) -> dict[int, int]:
        """As ``Loop.held``."""
        process = self._known.processes.get(pid)
        threads = process.threads.values() if process is not None else ()
        return {one.tid: one.held for one in threads if one.held is not None}

    def chances(self, pid: int) -> Mapping[int, tuple[FirstChance, ...]]:
        """As ``Loop.chances``."""
        process = self._known.processes.get(pid)
        return dict(process.chances) if process is not None else {}

    def signals(self, pid: int) -> Mapping[int, bytes]:
        """As ``Loop.signals``."""
        process = self._known.processes.get(pid) or self._leaving
        return dict(process.signals) if process is not None and process.pid == pid else {}
