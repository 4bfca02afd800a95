"""The tracer: it follows every thread and child of the command, changes nothing, and looks when one is about to die.

Whatever stops is continued at once, signals are delivered as they came, and a thread that vanishes is none of its
business: no exception may leave the loop, because a tracer that stands still holds the command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from collections.abc import Callable

import msgspec

from necropsy.capture.cores import Cores
from necropsy.capture.linux import cgroup, dying, ptrace
from necropsy.capture.linux.aftermath import LOOK_S, Aftermath
from necropsy.capture.linux.death import Death
from necropsy.capture.linux.idle import Idle
from necropsy.capture.linux.members import NEW, Members
from necropsy.capture.linux.pending import take
from necropsy.capture.linux.processes import Traced, now, state_of, status_of
from necropsy.capture.linux.ptrace import Stop
from necropsy.capture.linux.relay import settle
from necropsy.capture.linux.shared import Facts
from necropsy.capture.linux.stderr import Log
from necropsy.capture.linux.table import MOST_DEATHS
from necropsy.capture.supervision import RunOptions
from necropsy.model import Crash, Exit, Gap

FREEZE_S = 2.0
"""How long any of the other threads of a dying process may take to stop; one in an uninterruptible sleep does not."""
LONGEST_FREEZE_S = 8.0
"""How long all of them may take: thousands need more than one."""
MOST_CHILDREN = 4
"""Children of a command whose time is up that are looked at as well."""


class Tracer:
    """The loop. ``root`` is the command's own process; ``on_root_end`` is called once, when it has ended."""

    def __init__(self, root: int, log: Log, facts: Facts, options: RunOptions, front: int) -> None:
        self.log, self.facts, self.options, self.front = log, facts, options, front
        self.root = Traced(root, parent=front, role="command", threads={root})
        self.members = Members(self.root, log.probe)
        self._aftermath = Aftermath(self.members)
        self._crashes: list[Crash] = []
        self.gaps: list[Gap] = []
        self.cores = Cores(options.core)
        self._backlog: deque[tuple[int, int]] = deque()
        self._memory = cgroup.Since.now(root)
        self._idle = Idle(dying.loading(), options.loading())

    @property
    def processes(self) -> list[Traced]:
        """Those that are told of, the command first."""
        return self.members.table.processes

    @property
    def crashes(self) -> list[Crash]:
        """The deaths, by time."""
        return self._aftermath.told(self._crashes)

    # ------------------------------------------------------------ the loop

    def follow(self, on_root_end: Callable[[], None], on_child: Callable[[int, int], bool]) -> None:
        """Serve every stop until ``on_child`` (for ends of processes that were never traced) says that it is over."""
        while True:
            try:
                tid, status = self._backlog.popleft() if self._backlog else self._next()
            except ChildProcessError:
                return
            self.facts.beat()
            stop = Stop.of(tid, status)
            if stop is not None:
                self._serve(stop)
            elif not self.members.knows(tid):
                if on_child(tid, status):
                    return
            elif self._end(tid, status):
                on_root_end()

    def _next(self) -> tuple[int, int]:
        while self._aftermath.is_open and self.members.living:
            found = ptrace.wait_at_once()
            if found is not None:
                return found
            if take({signal.SIGCHLD}, LOOK_S) is None:
                self._aftermath.look()
        # Where nobody is left, the reporter is at work: nothing is loaded beside it, and we are seen to rest.
        return self._idle.wait() if self.members.living else ptrace.wait()

    def _serve(self, stop: Stop) -> None:
        try:
            self._handle(stop)
        except Exception as error:  # noqa: BLE001 - a defect of ours must not hold the command
            if not isinstance(error, ProcessLookupError):  # killed while it was stopped: its end comes next
                self.gaps.append(Gap(part="process", why=f"tracing: {type(error).__name__}: {error}"))
            with contextlib.suppress(OSError):
                _go_on(stop)

    def _handle(self, stop: Stop) -> None:
        process = self.members.of(stop.tid)
        if stop.event == 0:
            self._signal(process, stop)
        elif stop.event == ptrace.EVENT_STOP:
            self._event_stop(process, stop)
        else:
            if stop.event in NEW:
                self.members.adopt(ptrace.geteventmsg(stop.tid), process, stop.event)
            elif stop.event == ptrace.EVENT_EXEC:
                self._exec(process)
            elif stop.event == ptrace.EVENT_EXIT:
                self._exit(process, stop)
            _go_on(stop)

    def _event_stop(self, process: Traced, stop: Stop) -> None:
        if stop.signo in dying.STOPS:
            process.group_stopped = True
            if process is self.root:
                self.facts.mark_at_rest(True)
            if not ptrace.has_moved_on(stop):
                ptrace.listen(stop.tid)
            return
        if process.group_stopped:
            process.group_stopped = False
            if process is self.root:
                self.facts.mark_at_rest(False)
            if process is self.root and os.getppid() == self.front:
                # The front stopped itself along with the command; whoever continued the command may not know of it.
                with contextlib.suppress(OSError):
                    os.kill(self.front, signal.SIGCONT)
        _go_on(stop)

    # ------------------------------------------------------------ who is who

    def _exec(self, process: Traced) -> None:
        self.members.executed(process)
        lost = process.loses_setuid()
        if lost is not None and lost not in self.gaps:
            self.gaps.append(lost)

    def _end(self, tid: int, status: int) -> bool:
        """A thread is gone; true if the command is."""
        process, ended = self.members.end(tid, status)
        if not ended:
            return False
        if process.hang is not None:
            self._tell(process, msgspec.structs.replace(process.hang, exit=process.exit))
        if process.was_killed(status) and (process.hang is None or process.crash is not None):
            self._record(process, os.WTERMSIG(status))
        process.crash = None
        if process is self.root:
            self.gaps += self.members.table.left_out()
            return True
        process.signals.clear()
        return False

    def _tell(self, process: Traced, crash: Crash) -> None:
        process.told = True
        self._crashes.append(crash)

    def _is_one_too_many(self, process: Traced) -> bool:
        return len(self._crashes) >= MOST_DEATHS and process is not self.root

    def _record(self, process: Traced, signo: int) -> None:
        if signo != signal.SIGKILL and self._aftermath.follows(process, signo):
            return
        if self._is_one_too_many(process):
            self.members.table.deaths += 1
            return
        crash = process.crash
        if crash is None or process.crash_signo != signo:
            # Dead by something else than what was read; that would be another death's evidence.
            at = now()
            crash = dying.killed(process.pid, signo, process.signals.get(signo), self.log)
            crash = msgspec.structs.replace(crash, at=at)
        if signo == signal.SIGKILL:
            crash = dying.with_memory_events(crash, self._memory)
            if not dying.lacked_memory(crash) and self._aftermath.follows(process, signo):
                return
        if signo in dying.CORE or dying.lacked_memory(crash) or self._from_outside(process, signo):
            self._aftermath.died(process)
        forked = process.forked_from_threads
        self._tell(process, msgspec.structs.replace(crash, exit=process.exit, forked_from_threads=forked))

    def _from_outside(self, process: Traced, signo: int) -> bool:
        info = process.signals.get(signo)
        sender = dying.sent_by(info) if info is not None else None
        return sender is not None and not self.members.has(sender)

    # ------------------------------------------------------------ signals and deaths

    def _signal(self, process: Traced, stop: Stop) -> None:
        held: dict[int, Stop] = {}
        try:
            if stop.signo not in dying.HARMLESS or process is self.root:
                held = self._look_at_signal(process, stop)
            # It goes first: what the others would still do then, they would have done without us too.
            _go_on(stop)
        finally:
            self._thaw(held, stop.tid)

    def _look_at_signal(self, process: Traced, stop: Stop) -> dict[int, Stop]:
        """Note it; where it kills, read the process. Returns the threads that were stopped for that."""
        info = ptrace.getsiginfo(stop.tid)
        sender = dying.sent_by(info)
        if process is self.root and sender is not None:
            self.facts.delivered(stop.signo, sender)
        if stop.signo in dying.HARMLESS or stop.signo in dying.STOPS:
            return {}
        process.signals[stop.signo] = info
        if process is self.root and sender == self.front and self.facts.timed_out and process.hang is None:
            return self._hung(process, stop)
        if stop.signo not in dying.CORE or self.root.exit is not None:
            return {}
        if not dying.is_default(process.pid, stop.signo):
            chance = dying.remembered(process.pid, stop.tid, info)
            if chance is not None:
                process.first_chances[stop.tid] = chance
            return {}
        self._aftermath.died(process)  # before anybody can learn of it and end the others
        known = process.crash is not None or self._is_one_too_many(process)
        return {} if known else self._death(process, stop, info)

    def _hung(self, process: Traced, stop: Stop) -> dict[int, Stop]:
        """Its time is up: see where every thread stands before the signal that ends it is delivered.

        Its children are looked at too: it may be waiting for one of them. They may live on, so they are told at once;
        those of its process group are ended with it, as by timeout(1).
        """
        children = [one for one in self.members.living.values() if one is not process]
        for child in [one for one in children if one.crash is None][:MOST_CHILDREN]:
            self._thaw(self._stood(child, Stop(child.pid, 0, 0), stopped=False), 0)
            if child.hang is not None:
                forked = child.forked_from_threads
                end = Exit(kind="timeout" if child.is_in_group_of(process) else "running")
                self._tell(child, msgspec.structs.replace(child.hang, exit=end, forked_from_threads=forked))
                child.hang = None
        held = self._stood(process, Stop(stop.tid, 0, stop.event), stopped=True)
        for child in children:
            child.stop_with(process)
        return held

    def _stood(self, process: Traced, stop: Stop, *, stopped: bool) -> dict[int, Stop]:
        before = process.crash, process.crash_signo
        held = self._death(process, stop, None, stopped=stopped)
        process.hang = process.crash
        process.crash, process.crash_signo = before
        return held

    def _death(self, process: Traced, stop: Stop, info: bytes | None, *, stopped: bool = True) -> dict[int, Stop]:
        """Stop all threads of the process and read it."""
        at = now()
        self.facts.mark_reading(True)
        held = self._hold(process, stop if stopped else None, interrupt=True)
        try:
            if self.log.mode == "pty" and self.log.ring is not None:
                settle(self.log.ring)
            tail, gaps = self.log.tail(process.pid)
            core = self.cores.new()
            death = Death(
                pid=process.pid,
                tid=stop.tid,
                signo=stop.signo,
                siginfo=info,
                threads=tuple(sorted(held)),
                first_chance=dying.live_first_chance(process.pid, stop.tid, process.first_chances, held),
                also_crashing=tuple(tid for tid, other in held.items() if tid != stop.tid and self._kills(other)),
                log_tail=tail,
                gaps=(*gaps, *_not_stopped(process.pid, held)),
                python_locals=self.options.python_locals,
                budget_s=self.options.budget_s,
                core=core,
                full_memory=self.cores.full_memory,
            )
            process.crash = msgspec.structs.replace(dying.read(death), at=at)
            process.crash_signo = stop.signo
            if process.crash.gap("core") is None:
                self.cores.keep(process.pid, at, core)
        except Exception as error:  # noqa: BLE001 - the others are held: they must be let go whatever happens
            self.gaps.append(Gap(part="process", why=f"reading {process.pid}: {type(error).__name__}: {error}"))
        finally:
            self.facts.mark_reading(False)
        return held

    def _kills(self, stop: Stop) -> bool:
        return stop.event == 0 and stop.signo in dying.CORE and dying.is_default(stop.tid, stop.signo)

    # ------------------------------------------------------------ ends

    def _exit(self, process: Traced, stop: Stop) -> None:
        """A thread is about to end; its memory is still there."""
        status = status_of(stop.tid)
        if "VmHWM" in status and "VmPeak" in status:
            process.peak_rss = int(status["VmHWM"].split()[0]) * 1024
            process.peak_address_space = int(status["VmPeak"].split()[0]) * 1024
        ending = ptrace.geteventmsg(stop.tid)
        if os.WIFSIGNALED(ending) and process.crash is None and self.root.exit is None:
            self._exit_unseen(process, stop, os.WTERMSIG(ending))
        elif self.options.always and process.stacks is None and process.crash is None:
            self._measure(process, stop)

    def _exit_unseen(self, process: Traced, stop: Stop, signo: int) -> None:
        """It is being killed by a signal that was never delivered: SIGKILL, or the seccomp filter's SIGSYS."""
        if signo == signal.SIGKILL:
            self._aftermath.killed(process)
        elif signo == signal.SIGSYS and (process.threads == {stop.tid} or dying.was_refused(process.pid, stop.tid)):
            self._thaw(self._death(process, Stop(stop.tid, signo, 0), None), stop.tid)

    def _measure(self, process: Traced, stop: Stop) -> None:
        """How much of its stack each thread used: at the end of all threads, before any stack is gone.

        A thread that ends alone is not measured: glibc gives its pages back before (``advise_stack_range``).
        """
        if dying.ends_alone(stop.tid) and not all(_is_dead(tid) for tid in dying.task_ids(process.pid) - {stop.tid}):
            return
        held = self._hold(process, stop, interrupt=False)
        try:
            from necropsy.capture.linux.stack_use import stack_use

            process.stacks = stack_use(process.pid, tuple(sorted(held)))
            if process.threads_ended:
                why = f"threads of {process.pid} that had ended before were not measured: {process.threads_ended}"
                self.gaps.append(Gap(part="stack", why=why))
        except Exception as error:  # noqa: BLE001 - a measurement must not cost the process anything
            process.stacks = ()
            self.gaps.append(Gap(part="stack", why=f"not measured: {type(error).__name__}: {error}"))
        finally:
            self._thaw(held, stop.tid)

    # ------------------------------------------------------------ all threads of one process

    def _hold(self, process: Traced, first: Stop | None, *, interrupt: bool) -> dict[int, Stop]:
        """Wait until every thread of the process has stopped, or until time is up; what else happens is put off.

        With ``interrupt`` they are asked to stop; without they are on their way to a stop already.
        """
        held = {first.tid: first} if first is not None else {}
        asked: set[int] = set()
        begin = last = time.monotonic()
        earlier = list(self._backlog)
        self._backlog.clear()
        for tid, status in earlier:
            self._take(process, tid, status, held)
        while True:
            missing = {tid for tid in dying.task_ids(process.pid) - held.keys() if not _is_dead(tid)}
            if interrupt:
                for tid in missing - asked:
                    with contextlib.suppress(OSError):
                        ptrace.interrupt(tid)
                asked |= missing
            # Each by its own id: a wait for anybody would take the first thread's signal from it.
            arrived = [(tid, status) for tid in missing for status in ptrace.waiting(tid)]
            for tid, status in arrived:
                self._take(process, tid, status, held)
            last = time.monotonic() if arrived else last
            left = min(last + FREEZE_S, begin + LONGEST_FREEZE_S) - time.monotonic()
            if not missing or left <= 0:
                return held
            if not arrived:
                signal.sigtimedwait({signal.SIGCHLD}, min(left, 0.05))

    def _take(self, process: Traced, tid: int, status: int, held: dict[int, Stop]) -> None:
        stop = Stop.of(tid, status)
        if stop is not None and self.members.of(tid) is process:
            held[tid] = stop
        else:
            self._backlog.append((tid, status))

    def _thaw(self, held: dict[int, Stop], first: int) -> None:
        """Let the others go on: each stop that was not of our making gets its ordinary turn."""
        for tid, stop in held.items():
            if tid == first:
                continue
            if stop.event == ptrace.EVENT_STOP:
                self._serve(stop)
            else:
                self._backlog.append((tid, stop.status))


def _go_on(stop: Stop) -> None:
    """Let the thread run on as if it had not stopped: with its signal, if that is what it stopped at."""
    if not ptrace.has_moved_on(stop):
        ptrace.cont(stop.tid, stop.signo if stop.is_signal else 0)


def _is_dead(tid: int) -> bool:
    """Its task is still listed, but it will not stop any more."""
    return state_of(tid) in {"Z", "X", None}


def _not_stopped(pid: int, held: dict[int, Stop]) -> tuple[Gap, ...]:
    running = sorted(tid for tid in dying.task_ids(pid) - held.keys() if not _is_dead(tid))
    why = f"{len(running)} did not stop in time: {', '.join(map(str, running[:5]))}"
    return (Gap(part="threads", why=why),) if running else ()
