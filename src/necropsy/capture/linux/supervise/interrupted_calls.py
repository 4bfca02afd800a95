"""Continues system calls that ignored signals interrupt only because the process is traced. x86-64.

An ignored signal does not wake a process, unless it is traced: then the tracer is asked first (``sig_ignored`` in
kernel/signal.c). Most calls are restarted afterwards. Those that never are (signal(7), "Interruption of system calls")
return EINTR, which the program would not have seen. Where such a thread is stopped at the signal, the result EINTR is
replaced by the kernel's own ERESTARTNOHAND: the call is made again if no handler runs, and returns EINTR if one does.

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

from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.traced_processes import has_signal, status_of
from necropsy.formats.processors import X86_64

IGNORED_BY_DEFAULT = frozenset({signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT})

_INTERRUPTED = struct.pack("<q", -4)
_EAGAIN, _ERESTARTNOHAND = -11, -514
_RAX = 10 * 8
_USER_64 = 0x33
"""``__USER_CS``: the thread runs 64-bit code."""
_PIDFD_GETFD = 438
_SO_RCVTIMEO, _SO_SNDTIMEO = 20, 21
"""include/uapi/asm-generic/socket.h."""
_EXTENDED = 1 << 3
"""``IORING_ENTER_EXT_ARG``: the fifth argument is a ``struct io_uring_getevents_arg``."""
_MOST_CALLS = 1024
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class CallRegisters:
    """Those of a system call, signed: its number and its arguments; the counters tell calls apart."""

    number: int
    arguments: tuple[int, ...]
    counter: int
    stack: int

    @classmethod
    def of_interrupted(cls, tid: int) -> CallRegisters | None:
        """Those of a stopped thread whose call, made by 64-bit code, returns EINTR and may be made again; else None.

        On AArch64 the first argument is lost in such a call's result, so it is not made again.
        """
        if ptrace.HERE is not X86_64:
            return None
        data = ptrace.getregset(tid)
        if data[_RAX : _RAX + 8] != _INTERRUPTED or len(data) != ptrace.REGISTERS_SIZE:
            return None
        # struct user_regs_struct: r15 to r8 (9 registers, r10 the seventh), rax, rcx, rdx, rsi, rdi, orig_rax, rip, ...
        values = struct.unpack("<27q", data)
        r10, r9, r8, _, _, rdx, rsi, rdi, orig_rax, rip, cs, _, rsp = values[7:20]
        if orig_rax not in _CALLS or cs != _USER_64:
            return None
        return cls(orig_rax, (rdi, rsi, rdx, r10, r8, r9), rip, rsp)


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
_CALLS: dict[int, tuple[Timeout, int]] = {
    232: (_milliseconds(3), 0),  # epoll_wait
    281: (_milliseconds(3), 0),  # epoll_pwait
    441: (_timespec(3), 0),  # epoll_pwait2
    65: (_endless, _EAGAIN),  # semop
    220: (_timespec(3), _EAGAIN),  # semtimedop
    128: (_timespec(2), _EAGAIN),  # rt_sigtimedwait
    208: (_timespec(4), 0),  # io_getevents
    333: (_timespec(4), 0),  # io_pgetevents
    426: (_io_uring, -62),  # io_uring_enter: ETIME
    **dict.fromkeys((0, 19, 43, 45, 47, 288, 299), (_RECEIVE, _EAGAIN)),  # read, readv, accept, recv*, accept4
    **dict.fromkeys((1, 20, 44, 46, 307), (_SEND, _EAGAIN)),  # write, writev, send*
    42: (_SEND, -115),  # connect: EINPROGRESS
}
"""By number: where the timeout is, and the result after it. All may be repeated, unlike close(2)."""


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
            self._stopped[tid] = _switches(status_of(tid))
        else:
            resume_after_interrupt(tid)

    def resume(self, tid: int, signo: int) -> bool:
        """Before a thread takes a signal: where it ignores that, let an interrupted call go on; true if it does.

        Call it before every continuation from a signal-delivery-stop. Raises OSError where the thread is gone.
        """
        call = CallRegisters.of_interrupted(tid)
        if call is None:
            self._stopped.pop(tid, None)
            return False
        status = status_of(tid)
        switches = _switches(status)
        stopped = self._stopped.pop(tid, None)
        if stopped is not None and switches == stopped + 1:  # it has done nothing but stop again
            self._stopped[tid] = switches
            return False
        if not is_ignored(status, signo):
            return False
        result = self._result(tid, call, switches)
        ptrace.pokeuser(tid, _RAX, result)
        return result == _ERESTARTNOHAND

    def _result(self, tid: int, call: CallRegisters, switches: int) -> int:
        now = time.monotonic()
        before = self._restarted.pop(tid, None)
        # The same call has given up the processor twice: it waited once more, and it stopped for us.
        if before is None or before.call != call or switches != before.switches + 2:
            before = _Restarted(call, now, switches)
        timeout, at_end = _CALLS[call.number]
        if now > before.since:
            with contextlib.suppress(OSError, KeyError, ValueError, struct.error):
                limit = timeout(tid, call)
                if limit is not None and now - before.since >= limit:
                    return at_end
        if len(self._restarted) >= _MOST_CALLS:
            self._restarted.pop(next(iter(self._restarted)))
        self._restarted[tid] = replace(before, switches=switches)
        return _ERESTARTNOHAND


def was_interrupted(tid: int, signo: int) -> bool:
    """Whether an ignored signal, about to be taken, interrupted a call. Raises OSError where the thread is gone."""
    return CallRegisters.of_interrupted(tid) is not None and is_ignored(status_of(tid), signo)


def resume_after_interrupt(tid: int) -> None:
    """Let a call that PTRACE_INTERRUPT interrupted go on. Raises OSError where the thread is gone."""
    if CallRegisters.of_interrupted(tid) is not None:
        ptrace.pokeuser(tid, _RAX, _ERESTARTNOHAND)


def _switches(status: dict[str, str]) -> int:
    return int(status.get("voluntary_ctxt_switches", "0"))


def is_ignored(status: dict[str, str], signo: int) -> bool:
    """A process with this ``/proc/TID/status`` does nothing at the signal."""
    if has_signal(status, "SigIgn", signo):
        return True
    return bool(status) and signo in IGNORED_BY_DEFAULT and not has_signal(status, "SigCgt", signo)
