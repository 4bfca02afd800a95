"""Continues system calls that ignored signals interrupt only because the process is traced.

An ignored signal does not wake a process, unless it is traced: then the tracer is asked first (``sig_ignored`` in
kernel/signal.c). Most calls are restarted afterwards. Those that never are (signal(7), "Interruption of system calls")
return EINTR, which the program would not have seen. Where such a thread is stopped at the signal, the call is
made again if no handler runs, and returns EINTR if one does (``call_results``).

A relative timeout then starts anew. A repeated call that is interrupted after its whole timeout has passed once more
gets the result of a timeout; so no stream of signals can prolong it forever.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from necropsy.capture.linux.supervise import call_results, ptrace
from necropsy.capture.linux.supervise.call_results import ERESTARTNOHAND, CallRegisters, of_interrupted, switches_of
from necropsy.capture.linux.supervise.traced_processes import has_signal, status_of
from necropsy.formats.processors import X86_64

IGNORED_BY_DEFAULT = frozenset({signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT})

_EAGAIN = -11
_PIDFD_GETFD = 438
_SO_RCVTIMEO, _SO_SNDTIMEO = 20, 21
"""include/uapi/asm-generic/socket.h."""
_EXTENDED = 1 << 3
"""``IORING_ENTER_EXT_ARG``: the fifth argument is a ``struct io_uring_getevents_arg``."""
_MOST_CALLS = 1024
_LIBC = ctypes.CDLL(None, use_errno=True)


Timeout = Callable[[int, CallRegisters], float | None]
"""The timeout of a thread's call in seconds; None where it waits without end, or where that is not known."""


def _milliseconds(argument: int) -> Timeout:
    def timeout(_tid: int, call: CallRegisters) -> float | None:
        (value,) = struct.unpack("<i", struct.pack("<q", call.arguments[argument])[:4])
        return value / 1000 if value >= 0 else None

    return timeout


def _timespec(argument: int) -> Timeout:
    return lambda tid, call: _timespec_at(tid, call.arguments[argument])


def _timespec_at(tid: int, address: int) -> float | None:
    if address <= 0:
        return None
    seconds, nanoseconds = struct.unpack("<qq", _read(tid, address, 16))
    return float(seconds + nanoseconds / 1e9)


def _io_uring(tid: int, call: CallRegisters) -> float | None:
    if not call.arguments[3] & _EXTENDED:
        return None
    _, _, _, timespec = struct.unpack("<QIIq", _read(tid, call.arguments[4], 24))
    return _timespec_at(tid, timespec)


def _of_socket(option: int) -> Timeout:
    def timeout(tid: int, call: CallRegisters) -> float | None:
        pid = int(status_of(tid)["Tgid"])
        process = os.pidfd_open(pid)
        try:
            number = _LIBC.syscall(_PIDFD_GETFD, process, ctypes.c_int(call.arguments[0]), 0)
        finally:
            os.close(process)
        if number < 0:
            return None
        import socket  # when such a call was interrupted, and no earlier: it takes a while

        with socket.socket(fileno=number) as copy:
            seconds, microseconds = struct.unpack("<qq", copy.getsockopt(socket.SOL_SOCKET, option, 16))
        return float(seconds + microseconds / 1e6) or None

    return timeout


def _endless(_tid: int, _call: CallRegisters) -> float | None:
    return None


def _read(tid: int, address: int, size: int) -> bytes:
    handle = os.open(f"/proc/{tid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(handle, size, address)
    finally:
        os.close(handle)


_RECEIVE, _SEND = _of_socket(_SO_RCVTIMEO), _of_socket(_SO_SNDTIMEO)
_CALLS: dict[str, tuple[Timeout, int]] = {
    "epoll_wait": (_milliseconds(3), 0),
    "epoll_pwait": (_milliseconds(3), 0),
    "epoll_pwait2": (_timespec(3), 0),
    "semop": (_endless, _EAGAIN),
    "semtimedop": (_timespec(3), _EAGAIN),
    "rt_sigtimedwait": (_timespec(2), _EAGAIN),
    "io_getevents": (_timespec(4), 0),
    "io_pgetevents": (_timespec(4), 0),
    "io_uring_enter": (_io_uring, -62),  # ETIME
    **dict.fromkeys(("read", "readv", "accept", "recvfrom", "recvmsg", "accept4", "recvmmsg"), (_RECEIVE, _EAGAIN)),
    **dict.fromkeys(("write", "writev", "sendto", "sendmsg", "sendmmsg"), (_SEND, _EAGAIN)),
    "connect": (_SEND, -115),  # EINPROGRESS
}
"""Where the timeout is, and the result after it."""


@dataclass(frozen=True)
class _Restarted:
    call: CallRegisters
    since: float
    """Monotonic time of its first repetition."""
    switches: int
    """How often the thread had given up the processor at its last repetition."""


class InterruptedCalls:
    """The calls that go on, by thread; for the thread that traces."""

    def __init__(self) -> None:
        self._restarted: dict[int, _Restarted] = {}
        self._stopped: dict[int, int] = {}
        """By thread: how often it had given up the processor at the last of its stops since a signal stopped it."""

    def event_stop(self, tid: int, *, by_signal: bool) -> None:
        """Note a stop, ``by_signal`` a group-stop, after which EINTR is right untraced too (signal(7))."""
        if by_signal or tid in self._stopped:
            ptrace.getregset(tid)  # it waits until the thread has given up the processor, which is counted then
            self._stopped[tid] = switches_of(status_of(tid))
        else:
            resume_after_interrupt(tid)

    def resume(self, tid: int, signo: int) -> bool:
        """Before a thread takes a signal: where it ignores that, let an interrupted call go on; true if it does.

        ``signo`` is 0 where PTRACE_INTERRUPT has stopped it.

        Call it before every continuation from a signal-delivery-stop. Raises OSError where the thread is gone.
        """
        if not signo:
            resume_after_interrupt(tid)
            return False
        call = of_interrupted(tid)
        if call is None:
            self._stopped.pop(tid, None)
            before = self._restarted.get(tid)
            if before is not None and call_results.is_set_back(tid):  # it has done nothing but stop again
                self._restarted[tid] = replace(before, switches=before.switches + 1)
            _unless_ignored(tid, signo)
            return False
        status = status_of(tid)
        switches = switches_of(status)
        stopped = self._stopped.pop(tid, None)
        if stopped is not None and switches == stopped + 1:  # it has done nothing but stop again
            self._stopped[tid] = switches
            return False
        if not is_ignored(status, signo):
            call_results.takes_signal(tid)
            return False
        result = self._result(tid, call, switches)
        call_results.replace(tid, call, result)
        return result == ERESTARTNOHAND

    def _result(self, tid: int, call: CallRegisters, switches: int) -> int:
        now = time.monotonic()
        before = self._restarted.pop(tid, None)
        # The same call has given up the processor twice: it waited once more, and it stopped for us.
        if before is None or before.call != call or switches != before.switches + 2:
            before = _Restarted(call, now, switches)
        timeout, at_end = _CALLS[call.name]
        if now > before.since:
            with contextlib.suppress(OSError, KeyError, ValueError, struct.error):
                limit = timeout(tid, call)
                if limit is not None and now - before.since >= limit:
                    return at_end
        if len(self._restarted) >= _MOST_CALLS:
            self._restarted.pop(next(iter(self._restarted)))
        self._restarted[tid] = replace(before, switches=switches)
        return ERESTARTNOHAND


def was_interrupted(tid: int, signo: int) -> bool:
    """Whether an ignored signal, about to be taken, interrupted a call, or one that is about to be made again.

    Raises OSError where the thread is gone.
    """
    if call_results.is_set_back(tid) or (of_interrupted(tid) is not None and is_ignored(status_of(tid), signo)):
        return True
    _unless_ignored(tid, signo)
    return False


def _unless_ignored(tid: int, signo: int) -> None:
    if ptrace.HERE is not X86_64 and not is_ignored(status_of(tid), signo):
        call_results.takes_signal(tid)


def resume_after_interrupt(tid: int) -> None:
    """Let a call that PTRACE_INTERRUPT interrupted go on. Raises OSError where the thread is gone."""
    call = of_interrupted(tid)
    if call is not None:
        call_results.replace(tid, call, ERESTARTNOHAND)


def is_ignored(status: dict[str, str], signo: int) -> bool:
    """A process with this ``/proc/TID/status`` does nothing at the signal."""
    if has_signal(status, "SigIgn", signo):
        return True
    return bool(status) and signo in IGNORED_BY_DEFAULT and not has_signal(status, "SigCgt", signo)
