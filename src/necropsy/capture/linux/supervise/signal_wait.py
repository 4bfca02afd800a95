"""Takes blocked signals one by one, with a timeout.

Not by ``signal.sigtimedwait``: where a stop and a continue interrupt it (EINTR, signal(7)) and the time is up by then,
CPython (3.11.7) returns an uninitialized ``struct_siginfo``: forwarded, that is a signal that was never sent.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import time
from collections.abc import Iterable
from typing import NamedTuple

from necropsy.capture.linux.supervise.ptrace import SIGINFO_SIZE
from necropsy.formats.processors import BY_NAME

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_SIZE = 128
"""``sizeof(sigset_t)`` of glibc and of musl."""
_NANOSECONDS = 1_000_000_000


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


_SI_USER, _SI_TKILL = 0, -6


class TakenSignal(NamedTuple):
    """A signal that had been sent: by which process (where ``code`` is not positive), and how (``si_code``)."""

    signo: int
    code: int
    sender: int
    info: bytes
    """The ``siginfo_t``."""

    def send(self, pid: int) -> None:
        """Send it on to the process, with the value and the sender of sigqueue(3), if any.

        The kernel lets no process repeat what kill(2) says of its caller: the forwarding process is named. Raises
        OSError where there is no such process, or it belongs to another user.
        """
        processor = BY_NAME.get(os.uname().machine)
        call = None if processor is None else processor.calls["rt_sigqueueinfo"]
        if call is None or self.code >= _SI_USER or self.code == _SI_TKILL or self._queue(call, pid):
            os.kill(pid, self.signo)

    def _queue(self, call: int, pid: int) -> int:
        return int(_LIBC.syscall(ctypes.c_long(call), ctypes.c_long(pid), ctypes.c_long(self.signo), self.info))


def take(signals: Iterable[int], wait_s: float) -> TakenSignal | None:
    """The next of these signals, or None after ``wait_s`` seconds. Raises OSError where the kernel lacks the call."""
    wanted = sum(1 << (signo - 1) for signo in signals).to_bytes(_SET_SIZE, "little")
    info = ctypes.create_string_buffer(SIGINFO_SIZE)
    deadline = time.monotonic() + wait_s
    while True:
        left = max(int((deadline - time.monotonic()) * _NANOSECONDS), 0)
        limit = _TimeSpec(*divmod(left, _NANOSECONDS))
        if _LIBC.sigtimedwait(wanted, info, ctypes.byref(limit)) > 0:
            signo, _errno, code, _pad, sender = struct.unpack_from("<5i", info)
            return TakenSignal(signo, code, sender, info.raw)
        number = ctypes.get_errno()
        if number == errno.EAGAIN:
            return None
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
