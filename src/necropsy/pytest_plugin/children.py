"""The keeper's children: they end with it, it waits for them, and it passes signals on to them."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import warnings

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_SET_DEATH_SIGNAL = 1
"""Of prctl(2)."""


class Children:
    """Forks with the signals of this process blocked; a child has them as they were."""

    def __init__(self) -> None:
        self.asked_by: int | None = None
        """The last signal that asked this process, and so the session, to end."""
        self._mask: set[int] | None = None
        self._on_child = signal.getsignal(signal.SIGCHLD)

    def fork(self) -> int:
        """As ``os.fork``. Raises OSError where no process can be created."""
        if self._mask is None:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would cost us the exit status
            self._mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_FORWARDED}))
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a thread of another plugin is not in the child
            pid = os.fork()
        if not pid:
            _end_with(parent)
            self.give_back()
        return pid

    def give_back(self) -> None:
        """Let signals arrive as before."""
        if self._mask is not None:
            if self._on_child is not None:
                signal.signal(signal.SIGCHLD, self._on_child)
            signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
            self._mask = None

    def wait(self, pid: int, limit: float | None = None) -> int | None:
        """The wait status of the child, once it has ended; signals to this process are passed on to it.

        After ``limit`` seconds it is killed, and None is returned.
        """
        until = None if limit is None else time.monotonic() + limit
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                return status
            taken = _next_signal(None if until is None else max(0.0, until - time.monotonic()))
            if taken is None:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return None
            if taken.si_signo == signal.SIGCHLD or taken.si_pid == pid:
                continue
            if taken.si_signo not in {signal.SIGUSR1, signal.SIGUSR2}:
                self.asked_by = taken.si_signo
            if taken.si_code <= 0:  # not by a key of the terminal, which all processes there get
                with contextlib.suppress(OSError):
                    os.kill(pid, taken.si_signo)


def _next_signal(seconds: float | None) -> signal.struct_siginfo | None:
    awaited = {signal.SIGCHLD, *_FORWARDED}
    return signal.sigwaitinfo(awaited) if seconds is None else signal.sigtimedwait(awaited, seconds)


def _end_with(parent: int) -> None:
    """Have the kernel kill this process when its parent is killed."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def name_of(signo: int) -> str:
    """``SIGSEGV``, or ``signal 40`` for one without a name."""
    try:
        return signal.Signals(signo).name
    except ValueError:
        return f"signal {signo}"
