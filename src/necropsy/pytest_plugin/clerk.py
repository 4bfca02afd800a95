"""The clerk: a process that turns reports into text, so that neither the keeper nor the tests load what that takes.

It is forked before the first session. The keeper asks it about a session that died; in a run with pytest-xdist, the
session asks it about its workers.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import struct
from typing import Any

_WATCHER = "NECROPSY_WATCHER"
_LENGTH = struct.Struct("!Q")
Told = dict[str, Any]


class Clerk:
    """Both ends: ``serve`` runs in the clerk's own process."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._number = 0

    def serve(self, folder: str | None) -> None:
        """Answer until nobody is left who could ask. Never returns."""
        status = 1
        try:
            _alone_with(self._theirs.fileno())
            while True:
                number, pid, watcher = receive(self._theirs)
                if watcher is not None:
                    os.environ[_WATCHER] = watcher
                try:
                    from necropsy.pytest_plugin import description

                    told = description.of_death(pid, folder)
                except Exception as error:  # noqa: BLE001 - the death is reported without it
                    told = {"gap": f"the report: {type(error).__name__}: {error}"}
                send(self._theirs, (number, told))
        except EOFError:
            status = 0
        finally:
            os._exit(status)

    def started(self) -> None:
        """In the process that asks, once the clerk has been forked: its end would keep ours from closing."""
        self._theirs.close()

    def ask(self, pid: int, *, watched: bool) -> Told:
        """What is known of the death of a process, see ``description.of_death``; nothing where it was not watched."""
        if not watched:
            return {}
        self._number += 1
        key = (os.getpid(), self._number)
        try:
            send(self._ours, (key, pid, os.environ.get(_WATCHER)))
            while True:
                answered, told = receive(self._ours)
                if answered == key:  # the others were for a process that has died since
                    return dict(told)
        except (OSError, EOFError, pickle.PickleError):
            return {"gap": "the process that writes the reports has ended"}

    def close(self) -> None:
        """Let the clerk end."""
        self._ours.close()


def send(connection: socket.socket, message: object) -> None:
    """Send a message to another process of ours. Raises OSError where nobody is there."""
    data = pickle.dumps(message, protocol=4)
    connection.sendall(_LENGTH.pack(len(data)) + data)


def receive(connection: socket.socket) -> Any:
    """The next message. Raises EOFError where nobody is left who could send one."""
    size = _LENGTH.unpack(_exactly(connection, _LENGTH.size))[0]
    return pickle.loads(_exactly(connection, size))  # noqa: S301 - both ends are ours


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _alone_with(handle: int) -> None:
    """Hold no file of the user's: whoever reads from a pipe is to see its end."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    with contextlib.suppress(OSError):
        os.setsid()
    os.closerange(3, handle)
    os.closerange(handle + 1, os.sysconf("SC_OPEN_MAX") if handle < 4096 else handle + 2)
