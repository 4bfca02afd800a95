"""A worker that is a fork of the nursery, as its caller sees it."""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import socket

from necropsy.contain.nursery import Nursery
from necropsy.contain.nursery_process import STATUS
from necropsy.contain.output import Output
from necropsy.contain.unnamed_files import unnamed_file
from necropsy.contain.wire import readable
from necropsy.contain.worker import PROGRESS


class Forked:
    """The nursery waits for it, and tells its end. It has the interface of ``Spawned``."""

    def __init__(self, nursery: Nursery, *, bare: bool) -> None:
        """``bare``: it loads no function before its first call.

        Raises NecropsyError where this system cannot start it.
        """
        self.pid = 0
        self.connection, theirs = socket.socketpair()
        lifeline, self._lifeline = os.pipe()
        self._told, told = os.pipe()
        self._status: int | None = None
        self.output = Output()
        shared = unnamed_file("progress")
        os.ftruncate(shared, PROGRESS.size)
        self.progress = mmap.mmap(shared, PROGRESS.size)
        try:
            files = (*self.output.files, self.output.faults.handle)
            nursery.start([theirs.fileno(), lifeline, shared, *files, told], bare=bare)
        except BaseException:
            self.close()
            raise
        finally:
            theirs.close()
            for handle in (lifeline, shared, told):
                os.close(handle)

    def has_ended(self, seconds: float) -> bool:
        """Wait up to so long for its end, or the nursery's."""
        return self._told < 0 or readable(self._told, seconds)

    def status(self) -> int | None:
        """After that: minus the signal, or the exit code, as ``subprocess`` has it; None where nobody saw it."""
        if self._status is None and self._told >= 0:
            data = os.read(self._told, STATUS.size)
            self._status = os.waitstatus_to_exitcode(STATUS.unpack(data)[0]) if data else None
        return self._status

    def stop(self, number: int) -> None:
        """Send it a signal, while it has not been reaped."""
        if self.pid and not self.has_ended(0):
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)

    def interrupt(self) -> None:
        """End it at once, in a way that nobody takes for a death; any thread may ask for it."""
        write_quietly(self._lifeline)

    def close(self) -> None:
        """Give up what is held of it."""
        self.output.close()
        for handle in (self._lifeline, self._told):
            if handle >= 0:
                os.close(handle)
        self._lifeline = self._told = -1

    def abandon(self) -> None:
        """In a forked child of the caller: the same, for it is the parent's."""
        self.output = Output()  # a thread of the parent may hold the lock of the other one
        self.close()


def write_quietly(lifeline: int) -> None:
    """Write to a pipe whose reader may have gone, also in a program that SIGPIPE would end."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
    try:
        os.write(lifeline, b"x")
    except BrokenPipeError:  # it has ended; and where SIGPIPE would end us, it has come
        signal.sigtimedwait({signal.SIGPIPE}, 0)
    except OSError:
        pass
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
