"""The process that the user started: waits for the command, passes signals on, stops with it, and ends as it ends.

All signals are blocked here and taken one by one (sigwaitinfo), so that none interrupts a call.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time
from _socket import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from necropsy.capture.linux.supervise import tracer_process
from necropsy.capture.linux.supervise.descriptors import keep_only
from necropsy.capture.linux.supervise.shared_memory import Facts, Origin
from necropsy.capture.linux.supervise.signal_wait import TakenSignal, take
from necropsy.capture.linux.supervise.traced_processes import command_of, has_signal, state_of, status_of
from necropsy.capture.linux.supervise.watchdog import LOOK_S, Watchdog, is_held, threads_of
from necropsy.capture.run_options import RunOptions
from necropsy.formats.siginfo import SI_KERNEL, SI_QUEUE, name_of

ALL = signal.valid_signals()
TIMED_OUT = 124
GRACE_S = 5.0
"""Between SIGTERM and SIGKILL after a time limit."""
_QUIET_LOOK_S = 1.0
"""Between two looks at a command that nobody holds."""
_PATIENCE_S = 15.0
"""How much longer than its budget reading may take."""
_GROUP_S = 0.05
"""A signal to the whole group reaches the command at the same moment; so long it may take until the tracer saw it."""
_TRACER_S = 2.0
"""The same, as long as the command stands in a stop that the tracer has not yet served."""
_RECENT_S = 0.5
_TO_THE_GROUP = frozenset(
    {
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTSTP,
        signal.SIGTTIN,
        signal.SIGTTOU,
        signal.SIGWINCH,
        signal.SIGCONT,
    }
)
"""What a terminal sends, it sends to every process of the group in front."""
_ABOUT_US = frozenset(
    {
        *(signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS),
        *(signal.SIGPIPE, signal.SIGXCPU, signal.SIGXFSZ, signal.SIGCHLD),
    }
)
"""Raised by the kernel, they speak of this process, not of the command."""
_OUR_OWN = frozenset({signal.SIGPIPE, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
"""What this process sends itself: others that name it as their sender have waited since before it became necropsy."""
_MOST_STARTS = 100
_TRACER_END_S = 2.0
_HELPER_END_S = 0.1


@dataclass
class Helper:
    """A process beside the run (the log's tap or relay), restarted where it dies before its work is done.

    The command would feel ``hold`` being closed: this process keeps that descriptor open until then.
    """

    serve: Callable[[], int | None]
    hold: int
    name: str
    keep: frozenset[int] = frozenset()
    pid: int = 0
    starts: int = 0
    ring_idle: Callable[[], bool] = field(default=lambda: True)

    def start(self) -> None:
        """Fork it. Raises OSError where no process is left."""
        self.starts += 1
        self.pid = os.fork()
        if self.pid:
            return
        status = 1
        try:
            with contextlib.suppress(OSError):
                os.setsid()
            tracer_process.name_process(self.name)
            keep_only({self.hold, *self.keep})
            status = self.serve() or 0
        finally:
            os._exit(status)

    def ended(self, status: int) -> None:
        """It was reaped: start another, or let the command feel that nobody is there."""
        from necropsy.capture.linux.stderr import pty_relay

        if status and os.waitstatus_to_exitcode(status) != pty_relay.TARGET_GONE and self.starts < _MOST_STARTS:
            with contextlib.suppress(OSError):
                self.start()
                return
        self.pid = 0
        os.close(self.hold)
        self.hold = -1


class Supervisor:
    """The wait for one command."""

    def __init__(
        self, children: tuple[int, int], link: socket, facts: Facts, helper: Helper | None, options: RunOptions
    ) -> None:
        """``children``: the command, and the tracer or 0."""
        self.command, self.tracer = children
        self.link = link
        self.facts, self.helper, self.options = facts, helper, options
        self.lost: str | None = None if self.tracer else "the tracer could not be started"
        self.deadline = time.monotonic() + options.timeout_s if options.timeout_s is not None else None
        self.status: int | None = None
        """The command's wait status, once it has ended."""
        self._terminated = False
        self._standstill = Watchdog(facts, options.budget_s + _PATIENCE_S)

    # ------------------------------------------------------------ waiting

    def wait(self) -> int:
        """The command's wait status, after its report."""
        while True:
            status = self._reap()
            if status is not None:
                break
            taken = take(ALL, self._patience())
            if taken is not None:
                self._on_signal(taken)
            self._on_time()
        self._await_log()
        if self._await_report(status):
            self._await_beside()
        return status

    def _patience(self) -> float:
        look_s = LOOK_S if self._standstill.counts else _QUIET_LOOK_S
        if self.deadline is None:
            return look_s
        return min(max(self.deadline - time.monotonic(), 0.0), look_s)

    def _reap(self) -> int | None:
        """The command's status if it has ended; also notes what else did, and stops with the command."""
        while self.status is None:
            pid, status = os.waitpid(self.command, os.WNOHANG | os.WUNTRACED)
            if not pid:
                break
            if not os.WIFSTOPPED(status):
                self.status = status
                return status
            self._stop(os.WSTOPSIG(status))
        self._reap_beside()
        return self.status

    def _reap_beside(self) -> None:
        if self.tracer:
            pid, status = os.waitpid(self.tracer, os.WNOHANG)
            if pid:
                self.tracer = 0
                self.lost = self.lost or "the tracer " + _how(status)
        if self.helper is not None and self.helper.pid:
            pid, status = os.waitpid(self.helper.pid, os.WNOHANG)
            if pid:
                self.helper.ended(status)
        self._reap_strangers()

    def _reap_strangers(self) -> None:
        """Orphans, where this is a container's first process, and children that were cloned with CLONE_PARENT."""
        ours = {self.command, self.tracer, self.helper.pid if self.helper is not None else 0}
        with contextlib.suppress(OSError):
            while True:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if ended is None or ended.si_pid in ours:
                    return  # it is reaped where its end is waited for; whoever stands behind it, the next time
                os.waitpid(ended.si_pid, os.WNOHANG)

    def _stop(self, signo: int) -> None:
        """Stop as the command did, so that the shell takes the terminal back; returns when continued.

        Unless the command has been continued meanwhile, which will not be repeated for us. Where that happens after the
        check, the tracer's SIGCONT follows it, and takes back a stop that is still pending.
        """
        if signo != signal.SIGSTOP:
            signal.signal(signo, signal.SIG_DFL)
            # While it is blocked: it is then one with the terminal's own, and stops us once.
            os.kill(os.getpid(), signo)
        if self._continued():
            take({signo} - {signal.SIGSTOP}, 0)
        elif signo == signal.SIGSTOP:
            os.kill(os.getpid(), signo)
        else:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signo})
            signal.pthread_sigmask(signal.SIG_BLOCK, ALL)

    def _continued(self) -> bool:
        try:
            pid, status = os.waitpid(self.command, os.WNOHANG | os.WCONTINUED)
        except ChildProcessError:
            return True
        if pid and not os.WIFCONTINUED(status):
            self.status = status  # it has ended in this very moment
        return bool(pid)

    # ------------------------------------------------------------ signals

    def _on_signal(self, taken: TakenSignal) -> None:
        if taken.signo == signal.SIGWINCH and self.helper is not None and self.helper.hold >= 0:
            from necropsy.capture.linux.stderr import pty_relay

            pty_relay.copy_size(self.helper.hold)
        receiver = self._receiver(taken)
        if receiver:
            self.facts.forward(taken.signo, Origin(taken.code, taken.sender, command_of(taken.sender)))
            with contextlib.suppress(OSError):
                taken.send(receiver)

    def _receiver(self, taken: TakenSignal) -> int:
        """Whose the signal would be without us: the command's, our parent's, or 0."""
        if taken.code > 0:
            if taken.code != SI_KERNEL or taken.signo in _ABOUT_US or taken.signo in _TO_THE_GROUP:
                return 0
            # A terminal's hang-up goes to the leader of the session alone; a leader's end, to the group in front.
            return self.command if taken.signo != signal.SIGHUP or os.getsid(0) == os.getpid() else 0
        if taken.sender == self.tracer or (taken.sender == os.getpid() and taken.signo in _OUR_OWN):
            return 0
        if taken.code != SI_QUEUE and self._has_it(taken.signo, taken.sender):
            return 0
        if not self._is_our_child(taken.sender):
            return self.command
        # It means its parent, whose place we have taken. Where nobody traces it, it may have meant its group, and our
        # parent need not be in that.
        return os.getppid() if taken.code == SI_QUEUE or self._is_traced() else 0

    def _is_our_child(self, sender: int) -> bool:
        """It is the command, or one that the command has cloned with CLONE_PARENT."""
        if os.getpid() == 1:
            return sender == self.command
        return sender == self.command or status_of(sender).get("PPid") == str(os.getpid())

    def _has_it(self, signo: int, sender: int) -> bool:
        """The sender signalled the whole group: the command has the signal already."""
        since = time.monotonic()
        while True:
            waited = time.monotonic() - since
            # Looked at before the tracer's word: a stop that it has served meanwhile is in that word.
            stands = waited > _GROUP_S and "t" in map(state_of, threads_of(self.command))
            if self.facts.was_delivered(signo, sender, since - _RECENT_S):
                return True
            if signo < signal.SIGRTMIN and has_signal(status_of(self.command), "ShdPnd", signo):
                return True
            if waited > (_TRACER_S if stands else _GROUP_S):
                return False
            time.sleep(0.02 if stands else 0.002)

    def _is_traced(self) -> bool:
        return self.tracer != 0 and status_of(self.command).get("TracerPid") == str(self.tracer)

    # ------------------------------------------------------------ time

    def _on_time(self) -> None:
        now = time.monotonic()
        if self.deadline is not None and now >= self.deadline:
            self._time_is_up(now)
        if self.tracer and self._stands_still():
            # It holds the command; without it the kernel lets the command go.
            self.lost = "the tracer stopped answering and was killed"
            os.kill(self.tracer, signal.SIGKILL)
            self._standstill.reset()

    def _stands_still(self) -> bool:
        """The command, or any process of it, has waited for the tracer for too long."""
        held = is_held(self.command, self.tracer, at_rest=self.facts.at_rest)
        if held or self.facts.reading or state_of(self.tracer) == "T":
            return self._standstill.look(self.tracer, urgent=held)
        self._standstill.reset()
        return False

    def _time_is_up(self, now: float) -> None:
        self.facts.set_timed_out()
        with contextlib.suppress(ProcessLookupError):
            if self._terminated:
                os.kill(self.command, signal.SIGKILL)
                self.deadline = None
            else:
                os.kill(self.command, signal.SIGTERM)
                os.kill(self.command, signal.SIGCONT)
                self._terminated = True
                self.deadline = now + GRACE_S

    # ------------------------------------------------------------ the end

    def _await_log(self, most_s: float = 2.0) -> None:
        """What the command wrote must be out before this process ends."""
        deadline = time.monotonic() + most_s
        helper = self.helper
        while helper is not None and helper.pid and not helper.ring_idle() and time.monotonic() < deadline:
            self._reap_beside()
            time.sleep(0.005)

    def _await_report(self, status: int) -> bool:
        """Wait until the report is written: true; a second Ctrl-C (or TERM, HUP, QUIT) ends the wait.

        So does a report that makes no progress: the command's end must not depend on us.
        """
        impatient = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT}
        with contextlib.suppress(OSError):
            self.link.send(tracer_process.ENDED + str(status).encode())
        waiting = select.poll()
        waiting.register(self.link, select.POLLIN)
        standstill = Watchdog(self.facts, self.options.report_s)
        while not standstill.look(self.tracer, self.facts.reporter):
            if waiting.poll(100):
                message = self._receive()
                if message == tracer_process.DONE:
                    self.lost = None  # the report is there; the tracer may have been reaped while the log was awaited
                elif message.startswith(tracer_process.FAILED):
                    self.lost = message[len(tracer_process.FAILED) :].decode(errors="replace")
                elif not message:
                    self._reap_beside()
                    self.lost = self.lost or "the tracer ended without a report"
                return True
            if take(impatient, 0) is not None:
                return False
        self._give_up()
        return False

    def _give_up(self) -> None:
        """The report is not ready in time. A tracer that was stopped may hold others: they are let go."""
        self.lost = "the report was not ready in time"
        if self.tracer and state_of(self.tracer) == "T":
            self.lost = "the tracer stopped answering and was killed"
            os.kill(self.tracer, signal.SIGKILL)

    def _await_beside(self) -> None:
        """Wait for our own children: where a container's first process does not reap, they would pile up.

        The tracer ends right after its report; a helper whose work goes on (a daemon writes to stderr) is left.
        """
        begin = time.monotonic()
        while True:
            helper = self.helper.pid if self.helper is not None else 0
            waited = time.monotonic() - begin
            if not ((self.tracer and waited < _TRACER_END_S) or (helper and waited < _HELPER_END_S)):
                return
            lost = self.lost
            self._reap_beside()
            self.lost = lost
            time.sleep(0.001)

    def _receive(self) -> bytes:
        for _ in range(2):
            # A peer that ends with words of ours unread resets the connection; its own last words are still there.
            with contextlib.suppress(OSError):
                return os.read(self.link.fileno(), 4096)
        return b""


def _how(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was killed by {name_of(os.WTERMSIG(status))}"
    return f"ended with {os.WEXITSTATUS(status)}"


def end_as(status: int) -> int:
    """End as the command did: by its signal, without a core (128 + its number if immune), else its exit code."""
    if not os.WIFSIGNALED(status):
        return os.WEXITSTATUS(status)
    signo = os.WTERMSIG(status)
    tracer_process.forbid_core()
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, ValueError):
        signal.signal(signo, signal.SIG_DFL)
    with contextlib.suppress(OSError):
        os.kill(os.getpid(), signo)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signo} & ALL)
        time.sleep(0.01)
    signal.pthread_sigmask(signal.SIG_BLOCK, ALL)
    return 128 + signo
