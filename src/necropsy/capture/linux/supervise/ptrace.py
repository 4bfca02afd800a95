"""ptrace(2), typed: the few requests that a transparent supervisor needs.

Numbers from the kernel's ``include/uapi/linux/ptrace.h``. Every function raises ``ProcessLookupError`` where the thread
is gone or not stopped (ESRCH), which a tracer must expect at any time, and ``OSError`` for the rest.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
from dataclasses import dataclass

_CONT = 7
_GETEVENTMSG = 0x4201
_GETSIGINFO = 0x4202
_GETREGSET = 0x4204
_DETACH = 17
_SEIZE = 0x4206
_INTERRUPT = 0x4207
_LISTEN = 0x4208
_NT_PRSTATUS = 1
_PEEKUSER = 3
_POKEUSER = 6
_NR_PTRACE = 101
_TGKILL = 234
"""System calls of x86-64."""

OPTION_FORK = 1 << 1
OPTION_VFORK = 1 << 2
OPTION_CLONE = 1 << 3
OPTION_EXEC = 1 << 4
OPTION_EXIT = 1 << 6
FOLLOW = OPTION_FORK | OPTION_VFORK | OPTION_CLONE | OPTION_EXEC | OPTION_EXIT
"""Follow every thread and child, and stop them at exec and exit. No EXITKILL: they outlive their tracer."""
EXITKILL = 1 << 20
"""All of them are killed when their tracer ends, in whatever way (ptrace(2), PTRACE_O_EXITKILL)."""

EVENT_FORK = 1
EVENT_VFORK = 2
EVENT_CLONE = 3
EVENT_EXEC = 4
EVENT_EXIT = 6
EVENT_STOP = 128

WALL = 0x40000000
"""``__WALL`` for waitpid: threads as well as processes."""

SIGINFO_SIZE = 128
REGISTERS_SIZE = 216
"""``sizeof(struct user_regs_struct)`` on x86-64."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long
_LIBC.ptrace.restype = ctypes.c_long
_LIBC.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _ptrace(request: int, tid: int, address: int = 0, data: int = 0) -> None:
    if _LIBC.ptrace(request, tid, address, data) == -1:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace request {request:#x} on {tid}: {os.strerror(number)}")


def seize(tid: int, options: int = FOLLOW) -> None:
    """Begin to trace a thread without stopping it.

    Raises PermissionError where that is not allowed (Yama, seccomp, no capability, another tracer), and OSError (EIO,
    ENOSYS) where the kernel has no PTRACE_SEIZE (gVisor).
    """
    _ptrace(_SEIZE, tid, 0, options)


def cont(tid: int, signo: int = 0) -> None:
    """Let a stopped thread run on, with ``signo`` delivered to it; its siginfo stays as it was."""
    _ptrace(_CONT, tid, 0, signo)


def detach(tid: int, signo: int = 0) -> None:
    """Let a stopped thread go for good, with ``signo`` delivered to it; one in a group-stop stays in it."""
    _ptrace(_DETACH, tid, 0, signo)


def listen(tid: int) -> None:
    """Leave a thread in its group-stop, where it waits for SIGCONT as if it were not traced."""
    _ptrace(_LISTEN, tid)


def interrupt(tid: int) -> None:
    """Ask a running thread to stop; it reports EVENT_STOP, or another stop that came first."""
    _ptrace(_INTERRUPT, tid)


def tgkill(pid: int, tid: int, signo: int) -> None:
    """Send a signal to one thread (tgkill(2))."""
    if _LIBC.syscall(ctypes.c_long(_TGKILL), ctypes.c_long(pid), ctypes.c_long(tid), ctypes.c_long(signo)) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def peekuser(tid: int, offset: int) -> int:
    """The register at ``offset`` bytes in ``struct user`` (sys/user.h) of a stopped thread, unsigned."""
    word = ctypes.c_ulong()
    _user(_PEEKUSER, tid, offset, ctypes.addressof(word))
    return int(word.value)


def pokeuser(tid: int, offset: int, value: int) -> None:
    """Set that register."""
    _user(_POKEUSER, tid, offset, value & (1 << 64) - 1)


def _user(request: int, tid: int, offset: int, data: int) -> None:
    # Not by the C library's ptrace(), which returns the word and takes no address for it.
    words = (ctypes.c_ulong(one & (1 << 64) - 1) for one in (_NR_PTRACE, request, tid, offset, data))
    if _LIBC.syscall(*words) == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends (prctl(2), PR_SET_PDEATHSIG)."""
    _LIBC.prctl(1, 9, 0, 0, 0)


def getsiginfo(tid: int) -> bytes:
    """The 128 bytes of ``siginfo_t`` of the signal that the thread is stopped at."""
    buffer = ctypes.create_string_buffer(SIGINFO_SIZE)
    _ptrace(_GETSIGINFO, tid, 0, ctypes.addressof(buffer))
    return buffer.raw


def getregset(tid: int) -> bytes:
    """The general registers of a stopped thread: ``struct user_regs_struct``, 216 bytes on x86-64."""
    buffer = ctypes.create_string_buffer(1024)
    vector = _IoVec(ctypes.addressof(buffer), len(buffer))
    _ptrace(_GETREGSET, tid, _NT_PRSTATUS, ctypes.addressof(vector))
    return buffer.raw[: int(vector.length)]


def geteventmsg(tid: int) -> int:
    """What the event tells: the new thread's id, the former id at exec, the wait status at exit."""
    message = ctypes.c_ulong()
    _ptrace(_GETEVENTMSG, tid, 0, ctypes.addressof(message))
    return int(message.value)


def wait() -> tuple[int, int]:
    """(thread, wait status) of the next event, like ``wait_at_once``. Raises ChildProcessError without children."""
    found = _next(0)
    if found is None:  # cannot be without WNOHANG
        raise ChildProcessError
    return found


def wait_at_once() -> tuple[int, int] | None:
    """(thread, wait status) of a past event, else None; like waitpid(-1, __WALL), with one difference.

    A signal-delivery-stop is only looked at (WNOWAIT). Once waited for, the kernel has forgotten the signal, and it
    would be lost if the tracer died before it continued the thread. Raises ChildProcessError without children.
    """
    return _next(os.WNOHANG)


def _next(flags: int) -> tuple[int, int] | None:
    while True:
        found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WSTOPPED | os.WNOWAIT | WALL | flags)
        if found is None:
            return None
        if found.si_code == os.CLD_STOPPED:
            # A child of ours that is not traced was stopped by a signal: not our business.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(found.si_pid, WALL | os.WNOHANG | os.WUNTRACED)
            continue
        if found.si_code == os.CLD_TRAPPED and not found.si_status >> 8:
            return found.si_pid, found.si_status << 8 | 0x7F
        # Killed meanwhile, it may be in no stop any more; and the end of a process's first thread is not told before
        # that of all others, which wait for us: therefore not for as long as it takes.
        with contextlib.suppress(ChildProcessError):
            tid, status = os.waitpid(found.si_pid, WALL | os.WNOHANG)
            if tid:
                return tid, status


def has_moved_on(stop: Stop) -> bool:
    """Whether the thread was killed in this stop: ``cont`` would let it out of its EVENT_EXIT, unseen."""
    flags = os.WEXITED | os.WSTOPPED | os.WNOWAIT | os.WNOHANG | WALL
    try:
        found = os.waitid(os.P_PID, stop.tid, flags)
    except ChildProcessError:
        return True
    # A signal-delivery-stop may be waited for still, see ``wait_at_once``.
    return found is not None and not (stop.is_signal and found.si_status == stop.signo)


def is_at_its_end(tid: int) -> bool:
    """Whether a thread that was stopped has come to its EVENT_EXIT since, or is gone: it was killed in its stop."""
    try:
        found = os.waitid(os.P_PID, tid, os.WEXITED | os.WSTOPPED | os.WNOWAIT | os.WNOHANG | WALL)
    except ChildProcessError:
        return True
    return found is not None and (found.si_code != os.CLD_TRAPPED or found.si_status >> 8 == EVENT_EXIT)


@dataclass(frozen=True)
class Stop:
    """A ptrace-stop as waitpid reported it: ``event`` is 0 for a signal-delivery-stop."""

    tid: int
    signo: int
    event: int

    @classmethod
    def of(cls, tid: int, status: int) -> Stop | None:
        """The stop in a wait status, or None where the thread has ended."""
        return cls(tid, os.WSTOPSIG(status), status >> 16) if os.WIFSTOPPED(status) else None

    @property
    def is_signal(self) -> bool:
        """A signal-delivery-stop: what it is continued with decides whether the signal takes effect."""
        return self.event == 0

    @property
    def status(self) -> int:
        """The wait status that it came from."""
        return self.event << 16 | self.signo << 8 | 0x7F


def waiting(tid: int) -> tuple[int, ...]:
    """The wait status of this thread, if it has one now."""
    try:
        found, status = os.waitpid(tid, WALL | os.WNOHANG)
    except ChildProcessError:
        return ()
    return (status,) if found else ()


def kernel_version() -> tuple[int, int]:
    """The kernel's first two numbers; (0, 0) where they cannot be read."""
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return (int(found[1]), int(found[2])) if found else (0, 0)
