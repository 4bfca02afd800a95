"""The log tap's filter: a write to fd 2 asks the tap first; everything else goes its way.

The filter answers USER_NOTIF, not TRACE. With TRACE a write fails with ENOSYS as soon as no tracer is attached; with
USER_NOTIF it waits as long as anyone holds the listener, so a tap that dies can be replaced and no write is lost.
The write itself is then done by the kernel (FLAG_CONTINUE, Linux 5.5): fd 2 stays the command's own.
Numbers from the kernel's ``include/uapi/linux/{seccomp,filter,audit}.h``.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import struct
from dataclasses import dataclass

from necropsy.capture.linux.supervise.traced_processes import status_of
from necropsy.formats.processors import BY_NAME, Processor

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

_SET_MODE_FILTER = 1
_FLAGS = 1 << 2 | 1 << 3
"""SPEC_ALLOW: no slower branches for the command; NEW_LISTENER."""
_WAIT_KILLABLE = 1 << 5
"""Linux 5.19: once the tap has the write in hand, a signal handler does not turn it into EINTR."""
_RET_ALLOW, _RET_USER_NOTIF = 0x7FFF0000, 0x7FC00000
_NOTIF_RECV, _NOTIF_SEND, _NOTIF_SET_FLAGS = 0xC0502100, 0xC0182101, 0x40082104
_SYNC_WAKE_UP = 1
RECEIVE_ENDS = (6, 11)
"""From this Linux on, waiting for the next write ends when the last process with the filter has ended."""
NOTICE_SIZE = 80
"""``sizeof(struct seccomp_notif)``."""
Notice = ctypes.Array[ctypes.c_char]
"""Memory for one, shared by the tap and whoever comes after it."""
_CONTINUE = 1
_PR_SET_NO_NEW_PRIVS = 38
_CAP_SYS_ADMIN = 21

_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_INSTRUCTION = struct.Struct("<HBBI")

_HEADER = struct.Struct("<QIIiIQ6Q")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


@dataclass(frozen=True)
class Write:
    """A write that waits for our answer. ``is_vector``: ``buffer`` is an array of ``count`` iovecs."""

    id: int
    tid: int
    buffer: int
    count: int
    is_vector: bool


def program(processor: Processor) -> bytes:
    """The filter as instructions of the kernel (``struct sock_filter``), eight bytes each."""

    def one(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
        return _INSTRUCTION.pack(code, yes, no, value)

    return b"".join(
        (
            one(_LOAD, 4),  # seccomp_data.arch
            one(_EQUAL, processor.audit, 0, 5),
            one(_LOAD, 0),  # seccomp_data.nr
            one(_EQUAL, processor.calls["write"], 1, 0),
            one(_EQUAL, processor.calls["writev"], 0, 2),
            one(_LOAD, 16),  # the low half of args[0]; the kernel looks at no more of a file descriptor
            one(_EQUAL, 2, 1, 0),
            one(_RETURN, _RET_ALLOW),
            one(_RETURN, _RET_USER_NOTIF),
        )
    )


def needs_no_new_privs() -> bool:
    """A filter is to be had only at the price of no_new_privs (sudo stops working in the command)."""
    status = status_of(os.getpid())
    paid_already = status.get("NoNewPrivs") == "1"
    return not (paid_already or int(status.get("CapEff", "0"), 16) >> _CAP_SYS_ADMIN & 1)


def install(no_new_privs: bool) -> int:
    """Install the filter in this process; the listener's file descriptor (close-on-exec).

    Raises OSError where refused, on too old a kernel, or with another listener installed (EBUSY).
    """
    processor = BY_NAME.get(platform.machine())
    if processor is None:
        raise OSError(95, f"no filter for {platform.machine()}")
    call = processor.calls["seccomp"]
    if no_new_privs and _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    code = program(processor)
    packed = _Program(len(code) // _INSTRUCTION.size, code)
    for flags in (_FLAGS | _WAIT_KILLABLE, _FLAGS):
        listener = _LIBC.syscall(
            ctypes.c_long(call), ctypes.c_long(_SET_MODE_FILTER), ctypes.c_long(flags), ctypes.byref(packed)
        )
        if listener >= 0:
            return int(listener)
        if ctypes.get_errno() != 22:  # EINVAL: this kernel does not know WAIT_KILLABLE
            break
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


def wake_in_place(listener: int) -> None:
    """Let the writer and the tap wake each other on one processor, where the kernel can (Linux 6.6)."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(listener, _NOTIF_SET_FLAGS, _SYNC_WAKE_UP)


def receive(listener: int, notice: Notice) -> None:
    """Take the next waiting write into ``notice``. Raises OSError: ENOENT where the writer was interrupted meanwhile.

    The kernel gives each write to one process only. It puts it straight into the shared memory, so that a tap that
    dies never has a write in hand that its successor does not know.
    """
    ctypes.memset(notice, 0, NOTICE_SIZE)  # the kernel insists
    if _LIBC.ioctl(listener, ctypes.c_ulong(_NOTIF_RECV), ctypes.byref(notice)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def in_hand(notice: Notice) -> Write | None:
    """The write in ``notice`` that has not been answered."""
    number, tid, _, call, _, _, _, buffer, count, *_ = _HEADER.unpack(notice)
    return Write(number, tid, buffer, count, call in {20, 66}) if number else None


def proceed(listener: int, notice: Notice, write: Write) -> None:
    """Let the kernel do the write, unless the writer is gone."""
    with contextlib.suppress(OSError):
        fcntl.ioctl(listener, _NOTIF_SEND, struct.pack("<QqiI", write.id, 0, 0, _CONTINUE))
    ctypes.memset(notice, 0, NOTICE_SIZE)
