"""Entry point of the tracer process: attach to the command, run the ptrace loop, then fork a reporter.

The reporter is a process of its own, so that an error in it (even a native library's crash) costs the report only, and
the rest of the run is served meanwhile. When it is done this process ends; the kernel then lets go of everything that
is still traced.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from _socket import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from necropsy.capture.linux.stderr.log_source import Log
from necropsy.capture.linux.supervise import descriptors, ptrace, without_ptrace
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.supervise.traced_processes import Traced, executable_of, is_dead
from necropsy.capture.linux.supervise.tracer import Tracer
from necropsy.capture.linux.supervise.watchdog import LOOK_S, Watchdog
from necropsy.capture.run_options import RunOptions, RunRecord
from necropsy.formats.siginfo import name_of
from necropsy.model import Crash, Exit, Gap, Process

DONE = b"done"
FAILED = b"failed "
NOTHING = b"nothing"
"""The command was never executed: there is nothing to tell."""
ENDED = b"ended "
EXECUTED = b"executed"
HEARD, UNHEARD = b"h", b"u"
"""To the command, before all else, where ``Log.may_probe``."""
_START_S = 30.0
"""How long a tracer that gets on may take to attach."""
_COARSE_S = 0.1
"""The clock of file systems lags behind by a tick."""
_LIBC = ctypes.CDLL(None, use_errno=True)


def _working_folder() -> Path:
    """Where cores would be left; the root where the folder has been removed."""
    try:
        return Path.cwd()
    except OSError:
        return Path("/")


def name_process(name: str) -> None:
    """The name of this process in ps(1) and top(1), 15 bytes at most."""
    _LIBC.prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME


@dataclass(frozen=True)
class Task:
    """What to watch. Of the descriptors ``ready`` says the command's pid, ``go`` lets it be executed."""

    words: tuple[str, ...]
    ready: int
    go: int
    link: socket


class TracerProcess:
    """The tracer's side of one run."""

    def __init__(
        self, task: Task, log: Log, facts: Facts, options: RunOptions, on_end: Callable[[RunRecord], None]
    ) -> None:
        self.task, self.log, self.facts, self.options, self.on_end = task, log, facts, options, on_end
        self.front = os.getppid()
        self.reporter = self._beside = 0
        self._let_go_status: int | None = None
        self._since, self._folder = time.time() - _COARSE_S, _working_folder()
        self.record_of: Callable[[], RunRecord] = lambda: RunRecord(processes=())

    def run(self) -> None:
        """Everything; returns when this process has nothing left to do."""
        with contextlib.suppress(OSError):  # a system that forbids it: the keys of a terminal are blocked all the same
            os.setsid()
        name_process("necropsy-trace")
        if self.options.tied:
            _LIBC.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
            if os.getppid() != self.front:
                return  # the front was killed before the kernel was asked
        link = self.task.link.fileno()
        descriptors.keep_only({2, link, self.task.ready, self.task.go, *self.options.keep})
        if self.log.may_probe:
            self.log = self.log.instead()
            with contextlib.suppress(OSError):  # the command is gone
                os.write(self.task.go, HEARD if self.log.mode == "probe" else UNHEARD)
        said = os.read(self.task.ready, 32)
        if not said:
            return  # the command did not get that far
        command = int(said)
        self.log = self.log.unless_refused(self.facts.log_error)
        self.log = self.log.opened()
        if self.log.probe is not None:
            self.log.probe.add(command)
        refused = self._attach(command)
        with contextlib.suppress(OSError):
            os.write(self.task.go, b"x")
        os.close(self.task.ready)
        os.close(self.task.go)
        if refused is None:
            self._follow(command)
        else:
            self._wait_untraced(command, refused)

    def _attach(self, command: int) -> str | None:
        try:
            ptrace.wait_at_once()
        except ChildProcessError:
            pass  # as it should be: there is nobody yet
        except OSError as error:
            return without_ptrace.refusal(command, error, "waitid")
        try:
            ptrace.seize(command, ptrace.FOLLOW | (ptrace.EXITKILL if self.options.tied else 0))
        except OSError as error:
            return without_ptrace.refusal(command, error)
        return None

    # ------------------------------------------------------------ traced

    def _follow(self, command: int) -> None:
        kind = Tracer
        if self.options.profile_s is not None:
            from necropsy.capture.linux.supervise.profiling_tracer import ProfilingTracer as kind  # noqa: N813
        tracer = kind(command, self.log, self.facts, self.options, self.front)
        if self.facts.late:
            # It had waited long enough; whether it had been executed already, the front will say.
            tracer.root.command = self.task.words

        def record() -> RunRecord:
            tail, gaps = self._log_at_end()
            crashes = tracer.crashes
            if self._let_go_status is not None and os.WIFSIGNALED(self._let_go_status):
                found, _ = self._untraced_death(tracer.root, self._let_go_status, "the process was not traced")
                crashes = [without_ptrace.with_end(found, tracer.root.exit, tail, gaps), *crashes]
            return RunRecord(
                processes=self._timed([one.as_noun() for one in tracer.processes]),
                crashes=tuple(self._timed_crash(crash, command) for crash in crashes),
                cores=tracer.cores.kept,
                ends=_ends(tracer, tail),
                log_tail=tail,
                gaps=(*tracer.gaps, *gaps),
                timed_out=self.facts.timed_out,
            )

        def on_root_end() -> None:
            if not tracer.root.executed:
                if not (self.facts.late and os.read(self.task.link.fileno(), 4096).startswith(EXECUTED)):
                    self._say(NOTHING)
                    os._exit(0)
                why = "the tracer came late: children that were started before are not told of"
                tracer.gaps.append(Gap(part="process", why=why))
            self.record_of = record
            self._start_reporter()

        def on_root_let_go() -> None:
            self.record_of = record
            self._beside = without_ptrace.wait_beside(command)

        tracer.on_root_let_go = on_root_let_go
        tracer.follow(on_root_end, lambda pid, status: self._on_child(pid, status, tracer))

    def _on_child(self, pid: int, status: int, tracer: Tracer) -> bool:
        if pid == self._beside:
            self._on_end_of_let_go(tracer)
        if pid != self.reporter:
            return False
        self._on_reporter_end(status)
        return True

    def _on_end_of_let_go(self, tracer: Tracer) -> None:
        """An untraced command has ended; the front has its status."""
        if not is_dead(tracer.root.pid):
            self._beside = without_ptrace.wait_beside(tracer.root.pid)
            return
        self._let_go_status = self._told_end()
        if self._let_go_status is None:
            os._exit(0)
        tracer.root.end(self._let_go_status, time.monotonic())
        self._start_reporter()

    # ------------------------------------------------------------ not traced

    def _wait_untraced(self, command: int, refused: str) -> None:
        """Nothing can be read of the command; the front, its parent, has its status."""
        root = Traced(command, parent=self.front, role="command", command=self.task.words)
        status = self._told_end(root)
        if status is None:
            return
        root.end(status, time.monotonic())

        def record() -> RunRecord:
            tail, gaps = self._log_at_end()
            if self.log.probe is not None:
                gaps = (*gaps, Gap(part="log_tail", why="what children of the command wrote to stderr was not seen"))
            crashes: tuple[Crash, ...] = ()
            missing = without_ptrace.unread(refused)
            if os.WIFSIGNALED(status):
                found, missing = self._untraced_death(root, status, refused)
                crashes = (without_ptrace.with_end(found, root.exit, tail, gaps),)
            return RunRecord(
                processes=self._timed([root.as_noun()]),
                crashes=tuple(self._timed_crash(crash, command) for crash in crashes),
                log_tail=tail,
                gaps=(*missing, *gaps),
                timed_out=self.facts.timed_out,
            )

        self.record_of = record
        self._start_reporter()
        _, end = os.waitpid(self.reporter, 0)
        self._on_reporter_end(end)

    def _told_end(self, root: Traced | None = None) -> int | None:
        """The command's wait status from the front, which also names its program for ``root``; None without an exec."""
        while True:
            message = os.read(self.task.link.fileno(), 4096)
            if message == NOTHING or not message:
                return None
            if message.startswith(ENDED):
                return int(message[len(ENDED) :])
            if root is not None:
                root.executable = executable_of(root.pid)

    def _untraced_death(self, root: Traced, status: int, why: str) -> tuple[Crash, tuple[Gap, ...]]:
        """What a core shows of the command's death, and what is missing without one."""
        budget_s = self.options.budget_s
        self.facts.mark_reading(True)
        found = without_ptrace.crash(root.pid, status, why, since=self._since, folder=self._folder, budget_s=budget_s)
        self.facts.mark_reading(False)
        return (
            (found, ()) if found else (Crash(pid=root.pid, gaps=without_ptrace.unread(why)), without_ptrace.unread(why))
        )

    # ------------------------------------------------------------ the end of the run

    def _log_at_end(self) -> tuple[str | None, tuple[Gap, ...]]:
        self.log.settle()
        return self.log.tail()

    def _timed(self, processes: list[Process]) -> tuple[Process, ...]:
        import msgspec

        if self.facts.timed_out and processes and processes[0].exit is not None:
            processes[0] = msgspec.structs.replace(processes[0], exit=_timeout(processes[0].exit))
        return tuple(processes)

    def _timed_crash(self, crash: Crash, command: int) -> Crash:
        import msgspec

        if self.facts.timed_out and crash.pid == command and crash.exit is not None:
            return msgspec.structs.replace(crash, exit=_timeout(crash.exit))
        return crash

    def _start_reporter(self) -> None:
        self.reporter = os.fork()
        if self.reporter:
            self.facts.set_reporter(self.reporter)
            return
        status = 1
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            self.on_end(self.record_of())
            self._say(DONE)
            status = 0
        except BaseException as error:  # noqa: BLE001 - the last line of this process
            self._say(FAILED + f"the report: {type(error).__name__}: {error}".encode(errors="replace")[:2000])
            status = 2
        finally:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(status)

    def _on_reporter_end(self, status: int) -> None:
        if os.WIFSIGNALED(status):
            self._say(FAILED + f"the report: its process died of {name_of(os.WTERMSIG(status))}".encode())

    def _say(self, message: bytes) -> None:
        with contextlib.suppress(OSError):  # the front may be gone
            self.task.link.send(message)


def _ends(tracer: Tracer, tail: str | None) -> dict[int, Crash]:
    if not any(one.said is not None or one.libraries for one in tracer.processes):
        return {}
    from necropsy.capture.linux.inspect import refused_ops
    from necropsy.capture.linux.stderr import last_messages

    return refused_ops.added(last_messages.ends_of(tracer.processes), tracer.processes, tail)


def _timeout(ended: Exit) -> Exit:
    return Exit(kind="timeout", code=ended.code, signal=ended.signal, text=ended.text)


def main(task: Task, log: Log, facts: Facts, options: RunOptions, on_end: Callable[[RunRecord], None]) -> None:
    """The tracer's process. Never returns."""
    status = 1
    try:
        TracerProcess(task, log, facts, options, on_end).run()
        status = 0
    except BaseException as error:  # noqa: BLE001 - the front tells it; the command runs on
        with contextlib.suppress(OSError):
            task.link.send(FAILED + f"tracing: {type(error).__name__}: {error}".encode(errors="replace")[:2000])
    finally:
        os._exit(status)


def wait_for_go(go: int, tracer: int, facts: Facts) -> None:
    """For the command: until the tracer has attached, or is gone, or stands still; then it goes on without."""
    import select

    waiting = select.poll()
    waiting.register(go, select.POLLIN)
    standstill = Watchdog(facts, _START_S)
    while not waiting.poll(int(LOOK_S * 1000)):
        if standstill.look(tracer):
            facts.mark_late()
            return


def is_heard(go: int, tracer: int, facts: Facts) -> bool:
    """For the command, where ``Log.may_probe``: the tracer hears what is written to stderr without a tap."""
    wait_for_go(go, tracer, facts)
    return not facts.late and os.read(go, 1) == HEARD


def allow_tracing_by(pid: int) -> None:
    """Let ``pid`` and its descendants trace this command: Yama (Ubuntu) allows ancestors only.

    Documentation/admin-guide/LSM/Yama.rst; without Yama it fails and is not needed.
    """
    _LIBC.prctl(0x59616D61, ctypes.c_ulong(pid), 0, 0, 0)  # PR_SET_PTRACER


def forbid_core() -> None:
    """No core of this process, whatever the system's core_pattern is."""
    _LIBC.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
