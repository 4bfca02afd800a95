"""Stops one thread of a traced process for a moment, without the loop that serves its stops."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.interrupted_calls import resume_after_interrupt
from necropsy.capture.linux.supervise.traced_processes import state_of

STOPS_S = 0.03
"""So long the thread may take to stand: it waits for its turn at the processor, and does nothing meanwhile."""
_PAUSE_S = 0.00005
_FUTEX = b"%d" % ptrace.HERE.calls["futex"]


@contextlib.contextmanager
def stopped(tid: int) -> Iterator[bool]:
    """Stop the thread if it runs, or waits for a lock, and can be stopped at once; true where it stands.

    One that waits in another system call is left alone: a relative timeout would start anew each time, and a write to a
    full pipe would end early.
    """
    if state_of(tid) != "R" and not _waits_for_a_lock(tid):
        yield False
        return
    ptrace.interrupt(tid)
    stands = _stands(tid)
    try:
        yield stands
    finally:
        if stands:
            with contextlib.suppress(OSError):
                resume_after_interrupt(tid)
                ptrace.cont(tid)


def _waits_for_a_lock(tid: int) -> bool:
    """It is in futex(2), as for the GIL: the one call that the kernel continues as if it had not been stopped."""
    try:
        with open(f"/proc/{tid}/syscall", "rb") as call:  # noqa: PTH123 - it is called often
            return call.read(8).split(b" ")[0] == _FUTEX
    except OSError:
        return False


def _stands(tid: int) -> bool:
    """It has stopped for us. Another stop is left to the loop, which also continues later ones."""
    until = time.monotonic() + STOPS_S
    while True:
        found = os.waitid(os.P_PID, tid, os.WEXITED | os.WSTOPPED | os.WNOWAIT | os.WNOHANG | ptrace.WALL)
        if found is not None:
            return found.si_status == ptrace.EVENT_STOP << 8 | signal.SIGTRAP
        if time.monotonic() > until:
            return False
        time.sleep(_PAUSE_S)
