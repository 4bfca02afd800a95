"""Ask the watcher for the report on a process that has died, or will, and for what it had open."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from necropsy.watch.client import MOST, VARIABLE, connect

if TYPE_CHECKING:
    from necropsy.model import Document

_SLACK_S = 2.0
_MOST_FILES = 64


def report(pid: int, timeout: float = 60.0) -> Document | None:
    """The document on the death of a watched process, once it has ended; None where there is none.

    It never raises. ``timeout``: how long to wait for its end, in seconds.
    """
    document, release = held_report(pid, timeout)
    release()
    return document


def held_report(pid: int, timeout: float) -> tuple[Document | None, Callable[[], None]]:
    """Return the document as ``report`` does, while the dying process is still held, and what lets it go.

    It is held for some seconds at most, and not at all where it was killed.
    """
    path = os.environ.get(VARIABLE)
    if path is None:
        return None, _nothing
    with contextlib.suppress(OSError), socket.socket(fileno=connect(path).detach()) as connection:
        connection.settimeout(timeout + _SLACK_S)
        connection.send(f"report {pid} {timeout}".encode())
        _, files, _, _ = socket.recv_fds(connection, MOST, 2)
        if files:
            try:
                return _read(files[0]), partial(_close, files[1:])
            finally:
                os.close(files[0])
    return None, _nothing


def _nothing() -> None:
    pass


def _close(files: list[int]) -> None:
    while files:
        os.close(files.pop())


def connections(pid: int, port: int, timeout: float) -> list[socket.socket]:
    """What others have connected to at a TCP port of a watched process, copied at the moment of its death.

    It never raises. The process is held while it is reported; these connections last longer than it. There are none
    where nothing holds it (SIGKILL, ``os._exit``), where it ends well, and after ``timeout`` seconds.
    """
    path = os.environ.get(VARIABLE)
    if path is None:
        return []
    with contextlib.suppress(OSError), socket.socket(fileno=connect(path).detach()) as connection:
        connection.settimeout(timeout + _SLACK_S)
        connection.send(f"connections {pid} {port} {timeout}".encode())
        _, files, _, _ = socket.recv_fds(connection, MOST, _MOST_FILES)
        return [socket.socket(fileno=file) for file in files]
    return []


def _read(file: int) -> Document | None:
    from necropsy import serialize
    from necropsy.errors import NecropsyError

    with contextlib.suppress(NecropsyError, OSError):
        size = os.fstat(file).st_size
        return serialize.loads(os.pread(file, size, 0))  # whoever else asks shares the offset
    return None
