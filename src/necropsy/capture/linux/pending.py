"""Blocked signals, taken one by one with a limit of time.

Not by ``signal.sigtimedwait``: where a stop and a continue interrupt it (EINTR, signal(7)) and the time is up by then,
CPython (3.11.7) returns a ``struct_siginfo`` that nobody filled in: forwarded, that is a signal that nobody sent.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass

from necropsy.capture.linux.ptrace import SIGINFO_SIZE

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_SIZE = 128
"""``sizeof(sigset_t)`` of glibc and of musl."""
_NANOSECONDS = 1_000_000_000


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


@dataclass(frozen=True)
class Taken:
    """A signal that had been sent: by which process (where ``code`` is not positive), and how (``si_code``)."""

    signo: int
    code: int
    sender: int


def take(signals: Iterable[int], wait_s: float) -> Taken | None:
    """The next of these blocked signals; None where none has come in ``wait_s`` seconds.

    Raises:
        OSError: the kernel does not offer it.

    """
    wanted = sum(1 << (signo - 1) for signo in signals).to_bytes(_SET_SIZE, "little")
    info = ctypes.create_string_buffer(SIGINFO_SIZE)
    deadline = time.monotonic() + wait_s
    while True:
        left = max(int((deadline - time.monotonic()) * _NANOSECONDS), 0)
        limit = _TimeSpec(*divmod(left, _NANOSECONDS))
        if _LIBC.sigtimedwait(wanted, info, ctypes.byref(limit)) > 0:
            signo, _errno, code, _pad, sender = struct.unpack_from("<5i", info)
            return Taken(signo, code, sender)
        number = ctypes.get_errno()
        if number == errno.EAGAIN:
            return None
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
