"""Signals that ask a process to end: who sent them, when its threads are read, how an end that follows is explained.

timeout(1), SLURM and Kubernetes end programs by SIGTERM, and only a living program shows where it hangs. So its threads
are read when such a signal comes from outside the run. A program may handle it repeatedly and live on: then it is
read once in a while only, and not reported.

The kernel gives a sender's number in the receiver's PID namespace (pid_namespaces(7)): 7 there may be 4711 here. Of a
signal that necropsy's front passed on, it names the front.
"""

from __future__ import annotations

import os
import signal
import struct
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from necropsy.capture.linux.supervise import fatal_signals, minimal_crash, ptrace
from necropsy.capture.linux.supervise.crash_context import Request, Sent
from necropsy.capture.linux.supervise.process_tree import ProcessTree
from necropsy.capture.linux.supervise.ptrace import HERE
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.supervise.traced_processes import Traced, command_of, has_signal, status_of
from necropsy.capture.run_options import STACK_SIGNALS, RunOptions
from necropsy.formats import siginfo
from necropsy.model import Crash, Gap, StopRequest

_CODE, _SENDER = 8, 16
"""Where ``si_code`` and ``si_pid`` stand in ``siginfo_t``."""
SENT = frozenset({0, -1, -6})
"""SI_USER, SI_QUEUE, SI_TKILL."""
_MOST_THREADS = 256


class SignalSenders:
    """Finds them while the process that gets the signal still lives."""

    def __init__(self, members: ProcessTree, facts: Facts, front: int) -> None:
        self._members, self._facts, self._front = members, facts, front

    def note(self, process: Traced, signo: int, info: bytes | None) -> Sent:
        """Remember who sent the signal that is about to end the process; ``info`` is None after SIGKILL."""
        if signo not in process.sent:
            try:
                process.sent[signo] = self.of(process, signo, info)
            except (OSError, ValueError, struct.error):  # whatever /proc says: the signal itself is known
                process.sent[signo] = Sent(info)
        return process.sent[signo]

    def of(self, process: Traced, signo: int, info: bytes | None) -> Sent:
        """Who sent this signal, which need not end the process.

        Raises OSError, ValueError or struct.error where /proc or the kernel says something unexpected.
        """
        if info is None:
            itself = signo == signal.SIGKILL and _kills_itself(process.pid)
            return Sent(_made(signo, process.pid)) if itself else Sent()
        code, sender = (struct.unpack_from("<i", info, at)[0] for at in (_CODE, _SENDER))
        if code not in SENT:
            return Sent(info)
        if sender == self._front and (origin := self._facts.forwarded(signo)) is not None:
            return Sent(_with(info, origin.code, max(origin.sender, 0)), origin.command)
        known = _here(process.pid, sender)
        info = _with(info, code, known)
        return Sent(info, self._command(known) if known not in {0, process.pid} else None)

    def _command(self, pid: int) -> tuple[str, ...] | None:
        return self._members.command(pid) or command_of(pid)  # who sends a signal may have ended since


def _made(signo: int, sender: int) -> bytes:
    return struct.pack("<5i", signo, 0, 0, 0, sender).ljust(128, b"\0")


def _with(info: bytes, code: int, sender: int) -> bytes:
    parts = (info[:_CODE], struct.pack("<i", code), info[_CODE + 4 : _SENDER], struct.pack("<i", sender))
    return b"".join((*parts, info[_SENDER + 4 :]))


def _here(pid: int, sender: int) -> int:
    """The number, here, of the process that is ``sender`` in ``pid``'s namespace; 0 where it cannot be seen."""
    numbers = _numbers(pid)
    if len(numbers) < 2 or not sender:
        return sender
    if sender == numbers[-1]:
        return pid
    space = _space(pid)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and space is not None and _space(int(entry.name)) == space:
            found = _numbers(int(entry.name))
            if found and found[-1] == sender:
                return int(entry.name)
    return 0


def _numbers(pid: int) -> list[int]:
    """The numbers of a process, from the namespace of ``/proc`` to its own."""
    return [int(one) for one in status_of(pid).get("NSpid", "").split()]


def _space(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")  # noqa: PTH115 - of each process: Path takes longer
    except OSError:
        return None


def _kills_itself(pid: int) -> bool:
    """A thread of the process that SIGKILL ends is in the very call that sends it to the process.

    The kernel does not report who sent SIGKILL; but a process that sends it to itself does not return from the call.
    """
    numbers = _numbers(pid)
    own = numbers[-1] if numbers else pid
    for tid in sorted(fatal_signals.task_ids(pid))[:_MOST_THREADS]:
        try:
            words = Path(f"/proc/{tid}/syscall").read_text(encoding="ascii").split()
        except (OSError, UnicodeDecodeError):
            continue
        if len(words) < 4 or not words[0].isdigit():
            continue
        number, first, second, third = (int(word, 0) for word in words[:4])
        if first not in {own, 0}:
            continue
        if (number == HERE.calls["kill"] and second == signal.SIGKILL) or (
            number == HERE.calls["tgkill"] and third == signal.SIGKILL
        ):
            return True
    return False


if TYPE_CHECKING:
    from necropsy.capture.linux.stderr.log_source import Log
    from necropsy.capture.linux.supervise.read_jobs import ReadJob

SIGNALS = frozenset(signal.Signals[name] for name in STACK_SIGNALS)
MOST_AT_ONCE, WAVE_S = 5, 10.0
"""A signal to a process group reaches hundreds: so many are read within so many seconds, the command always."""
_AGAIN_S, _SHARE = 30.0, 100
"""A process is read again after so many seconds at the earliest, and after 100 times what reading it took."""
_PASSED_ON_S = 60.0
"""A process that was asked to end asks its children: that long after, its signals count as those from outside."""
_FOLLOWS_S, _SAVES_S, _SOON_S = 120.0, 600.0, 10.0
"""An end by a signal follows from a request not older than this; an exit code that names the signal (143) may come
later, after the work was saved; any other code only where it comes at once."""
_ENDS_WITHIN_S = 1.0
_SI_USER = 0
_READ = ("threads", "modules", "heaps", "libraries", "environment", "operation", "call")
"""What is taken over from the reading at the signal."""


class TerminationRequests:
    """Decides at which signals processes are read; for the thread that traces."""

    def __init__(self, members: ProcessTree, senders: SignalSenders, options: RunOptions) -> None:
        """``options.at_terminal``: at Ctrl-C too, which makes no report that is printed."""
        self.signals = frozenset(one for one in SIGNALS if one.name not in options.no_stacks_at)
        self.left_out = SIGNALS - self.signals
        self._members, self._senders, self._at_terminal = members, senders, options.at_terminal
        self._read_at: deque[float] = deque(maxlen=MOST_AT_ONCE)
        """When processes were read last, by the monotonic clock."""

    def wanted(self, process: Traced, tid: int, signo: int) -> Request | None:
        """The request at which a stopped process is to be read, or None. Raises OSError where the thread is gone."""
        status = status_of(tid)
        if process.crash is not None or process.hang is not None or has_signal(status, "SigIgn", signo):
            return None
        try:
            sent = self._senders.of(process, signo, ptrace.getsiginfo(tid))
        except (ValueError, struct.error):
            return None
        if sent.info is None or not self._is_from_outside(process, signo, sent.info):
            return None
        begun = time.monotonic()
        if process is not self._members.root:
            if len(self._read_at) == MOST_AT_ONCE and self._read_at[0] > begun - WAVE_S:
                return None
            self._read_at.append(begun)
        return Request(signo, sent, handled=has_signal(status, "SigCgt", signo), begun=begun)

    def _is_from_outside(self, process: Traced, signo: int, info: bytes) -> bool:
        (code,) = struct.unpack_from("<i", info, 8)
        if code not in SENT and code <= _SI_USER:
            return False  # a timer's, which has no sender
        if code > _SI_USER:  # the kernel's: a limit on CPU time, or a key of the terminal
            return self._at_terminal or signo == int(signal.SIGXCPU)
        sender = fatal_signals.sent_by(info)
        if sender == process.pid:
            return False
        by = self._members.living.get(sender) if sender is not None else None
        if by is not None and by.request is not None:
            return by.request.read_at > time.monotonic() - _PASSED_ON_S
        return not self._members.has(sender)

    @staticmethod
    def keep(job: ReadJob, crash: Callable[[], Crash]) -> float:
        """Remember what was read of the job's process. Returns how long it is not to be read again, in seconds."""
        request = job.request
        if request is None:
            return _AGAIN_S
        read_at = time.monotonic()
        job.process.request = replace(request, crash=crash, at=job.at, read_at=read_at)
        return max(_AGAIN_S, (read_at - request.begun) * _SHARE)


def ends_soon(process: Traced) -> bool:
    """It was read, and is about to die: of a crash, or of a signal that it has no handler for."""
    request = process.request
    if process.crash is not None:
        return True
    return request is not None and not request.handled and time.monotonic() < request.read_at + _ENDS_WITHIN_S


def ended_by(process: Traced, crash: Crash, signo: int) -> Callable[[], Crash]:
    """The end of a process by a signal: with its threads where they were read at a request that it follows from."""
    request = process.request
    if request is None or signo not in {request.signo, signal.SIGKILL} or _age_s(process, request) > _FOLLOWS_S:
        return lambda: crash
    sender = crash.fault.sender if crash.fault is not None else None
    if sender not in {None, process.pid, _sender_of(request)}:
        return lambda: crash  # somebody else, later
    return lambda: _with_threads(process, request, crash)


def follows(process: Traced) -> bool:
    """The exit code of failure with which the process ended is its answer to the request."""
    request, code = process.request, process.exit.code if process.exit is not None else None
    if request is None or not code:
        return False
    if code == 128 + request.signo:
        return _age_s(process, request) < _SAVES_S
    # At SIGQUIT many programs write down what they do, and go on.
    return request.signo != signal.SIGQUIT and _age_s(process, request) < _SOON_S


def exited(process: Traced, log: Log) -> Callable[[], Crash] | None:
    """The end of a process by an exit code of failure, where somebody had asked it to end shortly before."""
    request = process.request
    if request is None or not follows(process):
        return None
    tail, gaps = log.tail(process.pid)
    if tail is None:
        gaps = (*gaps, Gap(part="messages", why="what the program wrote to stderr was not seen"))
    crash = Crash(
        pid=process.pid,
        exit=process.exit,
        limits=process.limits,
        log_tail=tail,
        messages=minimal_crash.messages_of(tail),
        gaps=tuple(gaps),
    )
    return lambda: _with_threads(process, request, crash)


def _age_s(process: Traced, request: Request) -> float:
    """Seconds from the request, when the threads had been read, to the end of the process."""
    ended_at = time.monotonic() if process.wall_s is None else process.begun + process.wall_s
    return max(ended_at - request.read_at, 0.0)


def _sender_of(request: Request) -> int | None:
    return fatal_signals.sent_by(request.sent.info) if request.sent.info is not None else None


def _with_threads(process: Traced, request: Request, crash: Crash) -> Crash:
    read = request.crash() if request.crash is not None else Crash()
    asked = StopRequest(
        signal=siginfo.name_of(request.signo),
        sender=_sender_of(request),
        sender_command=request.sent.command,
        handled=request.handled,
        at=request.at,
        seconds=round(_age_s(process, request), 3),
    )
    if read.fault is not None:  # its handler for an earlier fault had never come to an end
        return msgspec.structs.replace(
            read, exit=crash.exit, log_tail=crash.log_tail, messages=crash.messages, stop_request=asked
        )
    left = tuple(gap for gap in crash.gaps if gap.part not in {*_READ, "registers"})
    of_threads = tuple(
        gap for gap in read.gaps if gap.part not in {"fault", "log_tail", "messages"} and gap not in left
    )
    return msgspec.structs.replace(
        crash,
        **{name: getattr(read, name) for name in _READ},
        limits=crash.limits or read.limits,
        gaps=(*left, *of_threads),
        stop_request=asked,
    )
