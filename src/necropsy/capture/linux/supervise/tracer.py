"""The tracer: follows every thread and child of the command, changes nothing, and has a dying process read.

``event_loop`` handles the stops that need no decision. A dying process is held until another process has read it
(``crash_reader``); all others continue. No exception may escape: a tracer that hangs would block the command.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

from necropsy.capture.linux.inspect import memory_cgroup, resource_limits
from necropsy.capture.linux.stderr.log_source import Log
from necropsy.capture.linux.supervise import fatal_signals, first_chance, minimal_crash, ptrace, without_ptrace
from necropsy.capture.linux.supervise.c_loop import open_loop
from necropsy.capture.linux.supervise.crash_capture import Preloader
from necropsy.capture.linux.supervise.crash_context import CrashContext
from necropsy.capture.linux.supervise.event_loop import Event, Kind, go_on
from necropsy.capture.linux.supervise.interrupted_calls import InterruptedCalls
from necropsy.capture.linux.supervise.leak_sanitizer import LeakSanitizer
from necropsy.capture.linux.supervise.lost_privileges import LostPrivileges
from necropsy.capture.linux.supervise.process_tree import MOST_DEATHS, ProcessTree, StoppedProcesses
from necropsy.capture.linux.supervise.read_jobs import ReaderPool, ReadJob, changed, with_end
from necropsy.capture.linux.supervise.secondary_exits import LOOK_S, SecondaryExits
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.supervise.termination_requests import (
    SignalSenders,
    TerminationRequests,
    ended_by,
    ends_soon,
    exited,
)
from necropsy.capture.linux.supervise.traced_processes import Traced
from necropsy.capture.run_options import Cores, RunOptions
from necropsy.model import Crash, Exit, Gap

MOST_CHILDREN = 4
"""Children of a command whose time is up that are looked at as well."""
AT_EXIT = ptrace.EVENT_EXIT << 8 | signal.SIGTRAP


class Tracer:
    """What is decided. ``root`` is the command's process, which this thread has seized; ``front`` is 0: none waits."""

    def __init__(self, root: int, log: Log, facts: Facts, options: RunOptions, front: int) -> None:
        self.log, self.facts, self.options = log, facts, options
        self.root = Traced(root, parent=front or None, role="command")
        self.members = ProcessTree(self.root)
        self._loop, slow = open_loop(
            root if front else 0, front=front, facts=facts, journal=self.members, log=log, always=options.always
        )
        self.members.probe = log.probe if slow is not None else None
        self.gaps: list[Gap] = [] if slow is None else [Gap(part="supervision", why=f"{slow}; it costs more time")]
        self._aftermath, self._senders = SecondaryExits(self.members), SignalSenders(self.members, facts, front)
        self._requests = TerminationRequests(self.members, self._senders, options)
        self._loop.requests(self._requests.signals)
        self._crashes: list[Callable[[], Crash]] = []
        self.cores = Cores(options.core)
        self._memory = memory_cgroup.Since.now(root)
        self._interrupted = InterruptedCalls()
        self._rests = StoppedProcesses(self._loop, self._interrupted, facts, self.root, front)
        self._leak_sanitizer, self._privileges = LeakSanitizer(), LostPrivileges()
        self.on_root_let_go: Callable[[], None] = lambda: None
        self._idle, self._bell = Preloader(options.loading()), self.members.hear(log)
        self._jobs: dict[int, ReadJob] = {}
        """By process: what it is held for."""
        self._readers = ReaderPool(options.budget_s, self._death, self._read)
        self._failed: Event | None = None
        """The last event that a defect of ours has left undecided."""
        self._root_is_over = False
        """The command has ended, and what is owed to its children delays the report."""
        self._hung: list[Traced] | None = None
        """The command's time is up: its children, as long as threads are looked at."""

    @property
    def processes(self) -> list[Traced]:
        """Those that are told of, the command first."""
        return self.members.table.processes

    @property
    def crashes(self) -> list[Crash]:
        """The deaths, by time; unpacked here, which takes time."""
        return self._aftermath.told([crash() for crash in self._crashes])

    # ------------------------------------------------------------ events

    def follow(self, on_root_end: Callable[[], None], on_child: Callable[[int, int], bool]) -> None:
        """Serve events until ``on_child`` (for ends of processes that were never traced) says that it is over."""
        while True:
            event = self._loop.next(self._patience())
            if event.kind is Kind.OVER:
                break
            try:
                if event.kind is Kind.CHILD and not self._readers.ended(event.tid, event.value):
                    if on_child(event.tid, event.value):
                        break
                    continue
                ended = self._handle(event)
            except Exception as error:  # noqa: BLE001 - a defect of ours must not hold the command
                gap = Gap(part="process", why=f"tracing: {type(error).__name__}: {error}")
                if not isinstance(error, ProcessLookupError) and gap not in self.gaps:  # else killed: its end is next
                    self.gaps.append(gap)
                self._go_on(event)
                ended = event.kind is Kind.ENDED and event.pid == self.root.pid
            self._root_is_over = self._root_is_over or ended
            if self._root_is_over and not self._owes_a_report():
                self._root_is_over = False
                self._readers.close()
                on_root_end()

    def _owes_a_report(self) -> bool:
        """A process is being read, or was read and is about to die of it."""
        return bool(self._jobs) or any(map(ends_soon, self.members.living.values()))

    def _patience(self) -> float | None:
        if not self.members.living and not self._jobs:
            return None  # the reporter is at work: nothing is loaded beside it, and we are seen to rest
        looks = self._aftermath.is_open or self._root_is_over
        waits = [LOOK_S if looks else None, self._readers.wait_s, self._idle.wait_s, self._bell.wait_s]
        return min((one for one in waits if one is not None), default=None)

    def _handle(self, event: Event) -> bool:
        """True where the command has ended."""
        match event.kind:
            case Kind.NOTHING:
                self._nothing()
            case Kind.HELD:
                self._ready(self._jobs[event.pid], event.value)
            case Kind.ENDED:
                return self._ended(self.members.ended_last, event.value)
            case Kind.RESTS | Kind.RESUMED:
                self._rests.serve(self.members.living[event.pid], event.tid, rests=event.kind is Kind.RESTS)
            case Kind.OVER | Kind.DRAIN | Kind.CHILD:
                pass
            case _:
                self._stopped(self.members.living[event.pid], event)
        return False

    def _stopped(self, process: Traced, event: Event) -> None:
        match event.kind:
            case Kind.EXECUTED:
                self._executed(process)
            case Kind.INTERRUPTED:
                self._pass_on(event.tid, event.value)
            case Kind.FATAL:
                self._fatal(process, event.tid, event.value)
            case Kind.ASKED:
                self._asked(process, event.tid, event.value)
            case Kind.REQUESTED:
                self._requested(process, event.tid, event.value)
            case Kind.THREADED:
                self._loop.resume(event.tid)
            case Kind.NOTICED:
                self._loop.resume(self._bell.noticed(process, event.tid))
            case _:
                self._exiting(process, event.tid, event.value)

    def _go_on(self, event: Event) -> None:
        """After a defect: continue whatever is held because of this event."""
        self._jobs.pop(event.pid, None)
        with contextlib.suppress(Exception):
            if event == self._failed:  # it came again, so that was not enough
                ptrace.detach(event.tid)
            else:
                go_on(self._loop, event)
        self._failed = event
        self.facts.mark_reading(bool(self._jobs))

    def _nothing(self) -> None:
        if self._aftermath.is_open:
            self._aftermath.look()
        self._bell.look(one for one in self.members.living.values() if one.pid not in self._jobs)
        self._idle.step()
        self._readers.look()

    def _executed(self, process: Traced) -> None:
        """What was being read of it is gone, and so are its other threads."""
        if self._jobs.pop(process.pid, None) is not None:
            self._readers.drop(process)
        self.facts.mark_reading(bool(self._jobs))
        process.become_another()
        self._bell.follow(process)
        if self.members.probe is not None:
            self.members.probe.add(process.pid)  # the kernel knows it by its first thread, which may be another one now
        lost = self._privileges.executed(process.pid)
        if lost is not None:
            self.gaps.append(lost)
        if self._leak_sanitizer.is_in(process.pid):
            self._let_go(process)
            return
        if self.options.profile_s is None:
            self._loop.ordinary(process.pid)
        self._loop.resume(process.pid)

    def _let_go(self, process: Traced) -> None:
        """It would fail under a tracer."""
        ptrace.detach(process.pid)
        self._loop.forget(process.pid)
        self.members.let_go(process)
        gap = without_ptrace.for_leak_sanitizer(process)
        if gap not in self.gaps:
            self.gaps.append(gap)
        if process is self.root:
            self.on_root_let_go()

    # ------------------------------------------------------------ ends

    def _ended(self, process: Traced, status: int) -> bool:
        """A process is gone; true if it is the command."""
        process.signals = {**self._loop.signals(process.pid), **process.resolved}
        if process.hang is not None:
            self._tell(process, changed(process.hang, exit=process.exit))
        if process.was_killed(status) and (process.hang is None or process.crash is not None):
            self._record(process, os.WTERMSIG(status))
        elif process.crash is not None and process.crash_signo == 0 and not os.WIFSIGNALED(status):
            self._tell(process, with_end(process, process.crash, process.exit))
        elif process is self.root and not process.told and (ended := exited(process, self.log)) is not None:
            self._tell(process, ended)
        process.crash = None
        if process is self.root:
            self.gaps += self.members.table.left_out()
            return True
        process.signals = {}
        return False

    def _tell(self, process: Traced, crash: Callable[[], Crash]) -> None:
        process.told = True
        self._crashes.append(crash)

    def _is_one_too_many(self, process: Traced, signo: int = 0) -> bool:
        """Enough deaths were read, or deaths by this signal are unwanted."""
        return (len(self._crashes) >= MOST_DEATHS and process is not self.root) or signo in self._requests.left_out

    def _record(self, process: Traced, signo: int) -> None:
        if signo != signal.SIGKILL and self._aftermath.follows(process, signo):
            return
        if self._is_one_too_many(process):
            self.members.table.deaths += 1
            return
        crash = process.crash if process.crash_signo == signo else None
        lacked_memory = False
        if crash is None:
            # Dead by something else than what was read; that would be another death's evidence.
            killed = minimal_crash.killed(process, signo, self.log)
            if signo == signal.SIGKILL:
                killed = minimal_crash.with_memory_events(killed, self._memory, self._readers.killed())
                lacked_memory = minimal_crash.lacked_memory(killed)
                if not lacked_memory and self._aftermath.follows(process, signo):
                    return
            crash = ended_by(process, killed, signo)
        if signo in fatal_signals.CORE or lacked_memory or self._aftermath.is_from_outside(process, signo):
            self._aftermath.died(process)
        self._tell(process, with_end(process, crash, process.exit))

    def _exiting(self, process: Traced, tid: int, ending: int) -> None:
        """A thread is about to end; its memory is still there.

        A signal that ends it was never delivered: SIGKILL, or SIGSYS by a seccomp filter. Else it ends by an exit code.
        """
        if not os.WIFSIGNALED(ending):
            self._exits(process, tid, ending)
            return
        signo = os.WTERMSIG(ending)
        sent = self._senders.note(process, signo, self._loop.signals(process.pid).get(signo))
        if process.crash is None and process.pid not in self._jobs:
            if signo == signal.SIGKILL:
                self._aftermath.killed(process)
                process.limits = resource_limits.in_use(process.pid, with_threads=False)
            elif not self._is_one_too_many(process, signo) and fatal_signals.is_to_be_read(process, tid, signo):
                self._hold(ReadJob(process, tid, "death", signo, sent.info), stop=AT_EXIT)
                return
        self._loop.let_exit(tid)

    def _exits(self, process: Traced, tid: int, ending: int) -> None:
        is_free = process.crash is None and process.hang is None and process.pid not in self._jobs
        is_free = is_free and os.WEXITSTATUS(ending) != 0 and not self._is_one_too_many(process)
        if is_free and first_chance.left_by(process.pid, tid, self._loop.chances(process.pid)) is not None:
            self._aftermath.died(process)
            self._hold(ReadJob(process, tid, "exit"), stop=AT_EXIT, interrupt=False)
            return
        if process is self.root and os.WEXITSTATUS(ending):
            process.limits = resource_limits.in_use(process.pid)
        self._bell.last_look(process, tid, os.WEXITSTATUS(ending), alone=len(self.members.living) == 1)
        if self.options.always and process.stacks is None and process.pid not in self._jobs:
            self._hold(ReadJob(process, tid, "measure"), stop=AT_EXIT, interrupt=False)
            return
        self._loop.let_exit(tid)

    # ------------------------------------------------------------ deaths

    def _fatal(self, process: Traced, tid: int, signo: int) -> None:
        if signo == signal.SIGTRAP:
            from necropsy.capture.linux.supervise import debugger_breakpoints

            if debugger_breakpoints.is_for_debugger(process.pid, tid):
                self._loop.release(process.pid, tid)
                return
        info = self._senders.note(process, signo, ptrace.getsiginfo(tid)).info
        self._aftermath.died(process)  # before anybody can learn of it and end the others
        if process.crash is not None and fatal_signals.is_unkillable(process.pid, info):
            without_ptrace.let_die(process, tid, signo, self._record)
        elif process.crash is not None or process.pid in self._jobs or self._is_one_too_many(process, signo):
            self._loop.release(process.pid, tid, signo)
        else:
            self._hold(ReadJob(process, tid, "death", signo, info, signo), stop=signo, again=signo)

    def _asked(self, root: Traced, tid: int, signo: int) -> None:
        """Its time is up: read its threads before the signal that ends it is delivered.

        Its children are read too, since it may be waiting for one of them. They may survive, so they are reported at
        once. Those in its process group are ended with it, as by timeout(1).
        """
        if root.hang is not None or self._hung is not None:
            self._loop.resume(tid, signo)
            return
        self._hung = [one for one in self.members.living.values() if one is not root]
        idle = [one for one in self._hung if one.crash is None and one.pid not in self._jobs]
        for child in idle[:MOST_CHILDREN]:
            self._hold(ReadJob(child, child.pid, "hang"), stop=None)
        self._hold(ReadJob(root, tid, "hang", delivers=signo), stop=signo)

    def _requested(self, process: Traced, tid: int, signo: int) -> None:
        is_held = process.pid in self._jobs or self.facts.timed_out
        request = None if is_held else self._requests.wanted(process, tid, signo)
        if request is None:
            self._pass_on(tid, signo)
        else:
            job = ReadJob(process, tid, "request", delivers=signo, request=request)
            self._hold(job, stop=signo, again=0 if request.handled else signo)

    def _pass_on(self, tid: int, signo: int) -> None:
        self._interrupted.resume(tid, signo)
        self._loop.resume(tid, signo)

    def _hold(self, job: ReadJob, *, stop: int | None, again: int = 0, interrupt: bool = True) -> None:
        """Stop all threads of the process; it is read once they have stopped."""
        self._jobs[job.process.pid] = job
        self.facts.mark_reading(True)
        if self._loop.hold(job.tid, stop=stop, again=again, interrupt=interrupt):
            self._ready(job, 0)

    def _ready(self, job: ReadJob, running: int) -> None:
        """All threads have stopped, except those that did not in time."""
        job.running = running
        if job.purpose == "measure":
            self.gaps += job.measure(self._loop.held(job.process.pid))
            self._finish(job)
            return
        self._readers.add(job)
        if job.request is None or not job.request.handled:
            self._idle.hurry()

    def _death(self, job: ReadJob) -> CrashContext:
        self.log.settle()
        pid = job.process.pid
        return job.death(self._loop.held(pid), self._loop.chances(pid), self.log, self.cores, self.options)

    def _read(self, job: ReadJob, crash: Callable[[], Crash], has_core: bool) -> None:
        process = job.process
        if has_core:
            self.cores.keep(process.pid, job.at, job.core)
        crash = changed(crash, at=job.at)
        if job.purpose in {"death", "exit"}:
            process.crash, process.crash_signo = crash, job.signo
        elif job.purpose == "request":
            self._loop.quiet(process.pid, self._requests.keep(job, crash))
        elif process is self.root:
            process.hang = crash
        else:
            end = Exit(kind="timeout" if process.is_in_group_of(self.root) else "running")
            self._tell(process, with_end(process, crash, end))
        self._finish(job)

    def _finish(self, job: ReadJob) -> None:
        """Let its threads go on, the dying one first. If its signal ends the process, the others do not run again."""
        process = job.process
        self._jobs.pop(process.pid, None)
        if job.purpose in {"death", "exit"} or (process is self.root and job.request is None):
            self._loop.told(process.pid)
        if job.purpose == "hang":
            self._finish_hang(job)
        else:
            self._loop.release(process.pid, job.tid, job.delivers)
        self.facts.mark_reading(bool(self._jobs))

    def _finish_hang(self, job: ReadJob) -> None:
        """The children go on at once; the command when the last of them has been read."""
        if job.process is not self.root:
            self._loop.release(job.process.pid, 0)
        else:
            self._root_job = job
        if any(one.purpose == "hang" for one in self._jobs.values()):
            return
        for child in self._hung or ():
            if child.exit is None:
                child.stop_with(self.root)
        self._hung = None
        self._loop.release(self.root.pid, self._root_job.tid, self._root_job.delivers)
