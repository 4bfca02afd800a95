"""Tracer of a running process that has requested it by ``necropsy.enable()``.

No process waits for it, and it may run for months. So every death is reported when it happens, and the dying process is
held until its report is written, so that a restart or the end of the container loses none. The tracer ends with the
last process that it traces; where it is killed, the kernel lets them go.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from necropsy.capture.linux.inspect import resource_limits
from necropsy.capture.linux.stderr.log_at_death import LogAtDeath
from necropsy.capture.linux.supervise import fatal_signals, interrupted_calls, ptrace
from necropsy.capture.linux.supervise.read_jobs import ReadJob, with_end
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.supervise.traced_processes import Traced, command_of, executable_of, exit_of, status_of
from necropsy.capture.linux.supervise.tracer import AT_EXIT, Tracer
from necropsy.capture.run_options import RunOptions, RunRecord
from necropsy.formats import siginfo
from necropsy.model import Crash, Exit

REPORT_S = 10.0
"""How long a dying process is held by its report; a reader of its stderr may be stuck."""
_IDLE_S = 1.0
"""How often the tracer looks whether anybody is left, while processes of its own are."""
_READER_S = 5.0
"""How long a process that reads deaths waits for another one."""
_MOST_ROUNDS = 100


def seize(pid: int) -> list[int]:
    """Trace all threads of a process without stopping it. Raises OSError where not allowed, or the process is gone."""
    seized: list[int] = []
    for _ in range(_MOST_ROUNDS):  # a thread that was seized has its new ones traced; the others start them meanwhile
        fresh = sorted(_tasks(pid) - set(seized))
        if not fresh:
            break
        seized += [tid for tid in fresh if _is_seized(pid, tid)]
    if not seized:
        raise ProcessLookupError(f"there is no process {pid}")
    return seized


def _is_seized(pid: int, tid: int) -> bool:
    """False where the thread has ended."""
    try:
        ptrace.seize(tid, ptrace.FOLLOW)
    except ProcessLookupError:
        if tid == pid:
            raise
        return False
    except OSError:
        if status_of(tid).get("TracerPid") != str(os.getpid()):  # else a new one, of a thread that was seized
            raise
    return True


def _tasks(pid: int) -> set[int]:
    try:
        return {int(one.name) for one in Path(f"/proc/{pid}/task").iterdir()}
    except OSError:
        return set()


def _descendants(pid: int) -> list[int]:
    """The processes that it started, without necropsy's own."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            status = status_of(int(entry.name))
            if not status.get("Name", "").startswith("necropsy-"):
                parents.setdefault(int(status.get("PPid") or 0), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += parents.get(one, ())
    return found[1:]


@dataclass(frozen=True)
class Death:
    """What is reported: one death, and who else was there. The process itself may be held as yet."""

    record: Callable[[], RunRecord]
    """To be called by the process that reports: it unpacks what was read."""
    pid: int
    root: int
    parents: tuple[int, ...]


class RegisteredTracer(Tracer):
    """Traces one process, and all that it starts from then on."""

    def __init__(
        self,
        pid: int,
        options: RunOptions,
        report: Callable[[Death], int],
        tell: Callable[[str, int], None],
        *,
        facts: Facts,
        traced: Callable[[], None],
        with_children: bool = False,
    ) -> None:
        """Trace the process ``pid``; ``with_children``: also those that it has started before.

        ``traced`` is called when this is so. ``facts``: signs of life for the watchdog. ``report`` forks the process
        that reports a death, and returns its pid, or 0 where that is impossible. ``tell`` is called when a process
        is ``dying``, or has ``ended`` without a report.

        Raises OSError where the kernel does not allow it, or the process is gone.
        """
        tids = seize(pid)
        self._files = LogAtDeath()
        self._files.begin(pid)
        if not with_children:
            traced()  # the rest need not be waited for
        super().__init__(pid, self._files, facts, options, 0)
        self._report, self._say = report, tell
        self.on_wake: Callable[[], None] = lambda: None
        """Called when ``WAKES`` has come, and from time to time."""
        self._held: ReadJob | None = None
        """The process whose death is being reported."""
        self._released: dict[int, Callable[[], None]] = {}
        self._reporting: dict[int, tuple[ReadJob | None, float]] = {}
        """By the process that reports: what is held until it has done so, and for how long at most."""
        self._readers.close()  # what a reader needs is loaded here: none is to be started before it is needed
        self._last_death: float | None = None
        """By the monotonic clock, while there is a process that reads deaths."""
        for tid in tids:
            self._loop.adopt(tid)
        self.root.threads = len(tids)
        self.root.command, self.root.executable = command_of(pid), executable_of(pid)
        self.root.executed = True
        for child in _descendants(pid) if with_children else ():
            with contextlib.suppress(OSError):  # another traces it, or it has ended
                for tid in seize(child):
                    self._loop.adopt(tid)
                one = self.members.living.get(child, self.root)
                one.command, one.executable, one.executed = command_of(one.pid), executable_of(one.pid), True
        if with_children:
            traced()

    def serve(self) -> None:
        """Trace until nobody is left."""
        self.follow(lambda: None, self._on_child)

    def let_go(self, pid: int, done: Callable[[], None]) -> None:
        """Trace this process no longer; those that it has started are traced as before. Of no effect if it dies now."""
        process = self.members.living.get(pid)
        if process is not None and pid not in self._jobs:
            self._released[pid] = done
            self._hold(ReadJob(process, pid, "release"), stop=None)

    def _patience(self) -> float | None:
        now = time.monotonic()
        if self._jobs:
            self._last_death = now
        elif self._last_death is not None and (not self.members.living or now > self._last_death + _READER_S):
            self._readers.close()
            self._last_death = None
        patience = super()._patience()
        if self._last_death is None and not self._reporting:
            return patience
        return _IDLE_S if patience is None else min(patience, _IDLE_S)

    def _nothing(self) -> None:
        super()._nothing()
        self.on_wake()
        now = time.monotonic()
        for reporter, (job, until) in list(self._reporting.items()):
            if job is not None and now > until:
                self._reporting[reporter] = (None, until)
                super()._finish(job)

    def _ready(self, job: ReadJob, running: int) -> None:
        if job.purpose == "killed":
            self._killed(job)
            return
        if job.purpose != "release":
            super()._ready(job, running)
            return
        self._jobs.pop(job.process.pid, None)
        self.facts.mark_reading(bool(self._jobs))
        for tid, stop in self._loop.held(job.process.pid).items():
            event, signo = stop >> 8, stop & 0x7F
            with contextlib.suppress(OSError):
                if event == ptrace.EVENT_STOP and signo == signal.SIGTRAP:
                    interrupted_calls.resume_after_interrupt(tid)
                ptrace.detach(tid, signo if event == 0 else 0)
        self._loop.forget(job.process.pid)
        self.members.let_go(job.process)
        self._released.pop(job.process.pid)()

    # ------------------------------------------------------------ reports

    def _fatal(self, process: Traced, tid: int, signo: int) -> None:
        self._say("dying", process.pid)
        super()._fatal(process, tid, signo)

    def _exiting(self, process: Traced, tid: int, ending: int) -> None:
        if os.WIFSIGNALED(ending):
            self._say("dying", process.pid)
            signo = os.WTERMSIG(ending)
            is_new = not process.told and process.crash is None and process.pid not in self._jobs
            if is_new and (signo == signal.SIGKILL or not fatal_signals.is_to_be_read(process, tid, signo)):
                self._senders.note(process, signo, self._loop.signals(process.pid).get(signo))
                if signo == signal.SIGKILL:
                    self._aftermath.killed(process)
                    process.limits = resource_limits.in_use(process.pid, with_threads=False)
                self._hold(ReadJob(process, tid, "killed", signo), stop=AT_EXIT, interrupt=False)
                return
        super()._exiting(process, tid, ending)

    def _ended(self, process: Traced, status: int) -> bool:
        over = False if process.told else super()._ended(process, status)
        if not process.told:
            self._say("ended", process.pid)
        return over

    def _finish(self, job: ReadJob) -> None:
        process = job.process
        if job.purpose in {"death", "exit"} and process.crash is not None and not process.told:
            end = self._end_to_come(job)
            if self._start(process, with_end(process, process.crash, end), end, job):
                return
        super()._finish(job)

    def _killed(self, job: ReadJob) -> None:
        """By a signal from outside: its threads are not read, but it still waits for the report."""
        process = job.process
        process.exit = exit_of(job.signo)
        process.signals = {**self._loop.signals(process.pid), **process.resolved}
        self._held = job
        try:
            self._record(process, job.signo)
        finally:
            self._held = None
            process.exit = None
        if all(waiting is not job for waiting, _ in self._reporting.values()):
            super()._finish(job)

    def _tell(self, process: Traced, crash: Callable[[], Crash]) -> None:
        if not process.told:
            self._start(process, crash, process.exit, self._held)

    def _end_to_come(self, job: ReadJob) -> Exit:
        if job.purpose == "death":
            return Exit(kind="signaled", signal=siginfo.name_of(job.signo))
        try:
            return exit_of(ptrace.geteventmsg(job.tid))
        except OSError:  # killed meanwhile
            return Exit(kind="unknown")

    def _start(self, process: Traced, crash: Callable[[], Crash], end: Exit | None, job: ReadJob | None) -> bool:
        """Have another process report it; false where no process is left."""
        process.told = True
        self.root.signals = self.root.signals or self._loop.signals(self.root.pid)
        # Of a service that runs for months, those that have ended well are no part of this death.
        there = (one for one in self.processes if one.exit is None or one is self.root or one is process)
        nouns = [one.as_noun() for one in there]
        cores = {key: core for key, core in self.cores.kept.items() if key[0] == process.pid}

        def record() -> RunRecord:
            import msgspec

            told = self._aftermath.told([crash()])
            processes = tuple(
                msgspec.structs.replace(one, exit=end) if one.pid == process.pid and end is not None else one
                for one in nouns
            )
            return RunRecord(processes=processes, crashes=tuple(told), cores=cores, gaps=tuple(self.gaps))

        parents = tuple(one.pid for one in self.members.ancestors(process))
        reporter = self._report(Death(record, process.pid, self.root.pid, parents))
        self.cores.forget(process.pid)
        if reporter:
            self._reporting[reporter] = (job, time.monotonic() + REPORT_S)
        return bool(reporter)

    def _on_child(self, pid: int, _status: int) -> bool:
        job, _ = self._reporting.pop(pid, (None, 0.0))
        if job is not None:
            super()._finish(job)
        self._files.begin(self.root.pid)  # where the report begins in it now
        return False
