"""The nursery as its caller sees it: a process that starts workers."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import subprocess
import sys
import threading
import weakref
from pathlib import Path

from necropsy.contain import nursery_process
from necropsy.contain.nursery_process import MOST
from necropsy.contain.wire import QUIET
from necropsy.errors import NecropsyError

_LONGEST = 4096
_NURSERIES: weakref.WeakSet[Nursery] = weakref.WeakSet()


class Nursery:
    """Starts workers that have imported the modules ``imports``; it starts when it is first needed."""

    def __init__(self, imports: tuple[str, ...]) -> None:
        self.imports = imports
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._lifeline = -1
        self._functions: dict[bytes, None] = {}
        _NURSERIES.add(self)

    def expect(self, definition: bytes) -> None:
        """Workers that are started from now on load this function before they are called."""
        if len(definition) <= _LONGEST and definition not in self._functions:
            self._functions[definition] = None
            while len(self._functions) * _LONGEST > MOST // 2:
                del self._functions[next(iter(self._functions))]

    @property
    def expected(self) -> tuple[bytes, ...]:
        """The functions that a new worker loads."""
        return tuple(self._functions)

    def start(self, handles: list[int], *, bare: bool = False) -> None:
        """Have a worker started with these file descriptors. ``bare``: it loads no function before its first call.

        Raises NecropsyError where this system cannot start it.
        """
        request = pickle.dumps(() if bare else self.expected, protocol=5)
        with self._lock:
            for _ in range(2):
                try:
                    if self._connection is not None:
                        socket.send_fds(self._connection, [request], handles, QUIET)
                        return
                except OSError:  # it has died
                    self._close()
                self._open()
            raise NecropsyError("the process that starts workers does not run")

    def _open(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lifeline, self._lifeline = os.pipe()
        given = (theirs.fileno(), lifeline)
        flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # noqa: SLF001
        script = str(Path(nursery_process.__file__))
        self._connection = ours
        try:
            self._process = subprocess.Popen(
                [sys.executable, *flags, script, *map(str, given)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=given,
                start_new_session=True,
            )
            ours.send(pickle.dumps((sys.path, sys.argv, self.imports), protocol=5), QUIET)
        except OSError as error:
            self._close()
            raise NecropsyError(f"the process that starts workers cannot be started: {error}") from error
        finally:
            theirs.close()
            os.close(lifeline)

    def close(self) -> None:
        """It ends; the workers that it has started live on."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        self._connection, self._lifeline, self._process = None, -1, None

    def abandon(self) -> None:
        """In a forked child of the caller: give up what is the parent's."""
        self._lock = threading.Lock()  # another thread of the parent may have held it
        if self._process is not None:
            self._process.returncode = 0  # not our child: nothing to wait for
        self._close()


def at_exit() -> None:
    """When the workers have ended."""
    for nursery in list(_NURSERIES):
        nursery.close()


def _in_forked_child() -> None:
    for nursery in list(_NURSERIES):
        nursery.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_forked_child)
