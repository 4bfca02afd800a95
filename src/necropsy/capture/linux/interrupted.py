"""System calls that a signal interrupts under a tracer, and would not interrupt without one.

The kernel wakes a traced thread for a signal that the process ignores, and calls that are never restarted
(``epoll_wait``, ``semtimedop``, ``sigtimedwait`` and others, signal(7)) then fail with EINTR.
"""

from __future__ import annotations

import errno

from necropsy.capture.linux import dying, ptrace
from necropsy.capture.linux.processes import has_signal, status_of

_RAX, _ORIG_RAX = 10 * 8, 15 * 8
_ERESTARTNOHAND = 514
_WORD = 1 << 64


def restart_call(tid: int, signo: int) -> None:
    """At a signal-delivery-stop: have the kernel start the interrupted call again if ``signo`` is ignored.

    ``-ERESTARTNOHAND`` makes it do so unless a handler runs, in which case it gives EINTR: as without a tracer.

    Raises:
        OSError: the thread is gone.

    """
    if ptrace.peekuser(tid, _RAX) != _WORD - errno.EINTR or ptrace.peekuser(tid, _ORIG_RAX) >= _WORD >> 1:
        return
    status = status_of(tid)
    if not status or has_signal(status, "SigCgt", signo):
        return
    if signo in dying.HARMLESS or has_signal(status, "SigIgn", signo):
        ptrace.pokeuser(tid, _RAX, -_ERESTARTNOHAND)
