"""Messages between the caller and a worker: pickles on a socket, each behind its length."""

from __future__ import annotations

import pickle
import select
import socket
import struct
from collections.abc import Callable
from typing import Any

HEADER = struct.Struct("!Q")
QUIET = getattr(socket, "MSG_NOSIGNAL", 0)
"""No SIGPIPE where the other end has gone: many programs have it end them."""
_CHUNK = 1 << 20
_JOINED = 1 << 16
"""Up to this size the header and the data are sent in one call."""


class Channel:
    """One end of the connection. Only one thread at a time may use it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    @staticmethod
    def dumps(value: Any) -> bytes:
        """As the function ``dumps``."""
        return dumps(value)

    @staticmethod
    def loads(data: bytes) -> Any:
        """The value back."""
        return pickle.loads(data)  # noqa: S301 - both ends are one user's processes

    def send(self, data: bytes | bytearray | memoryview) -> None:
        """Send one message. Raises OSError where the other end has gone."""
        header = HEADER.pack(len(data))
        if len(data) <= _JOINED:
            self.connection.sendall(header + data, QUIET)
        else:
            self.connection.sendall(header, QUIET)
            self.connection.sendall(data, QUIET)

    def receive(self) -> bytes:
        """The next message. Raises EOFError where the other end has gone."""
        size = HEADER.unpack(self._exactly(HEADER.size))[0]
        return bytes(self._exactly(size))

    def _exactly(self, size: int) -> bytes | bytearray:
        try:
            data = self.connection.recv(min(size, _CHUNK)) if size else b""
            if len(data) == size:
                return data
            if not data:
                raise EOFError
            whole = bytearray(size)
            whole[: len(data)] = data
            view, place = memoryview(whole), len(data)
            while place < size:
                count = self.connection.recv_into(view[place:])
                if not count:
                    raise EOFError
                place += count
        except ConnectionError:
            raise EOFError from None
        return whole


def readable(handle: socket.socket | int, seconds: float) -> bool:
    """Wait up to so long until something can be read there, or it is closed at the other end."""
    if not hasattr(select, "poll"):  # Windows, where these are sockets only, and its limit is one of their number
        return bool(select.select([handle], [], [], seconds)[0])
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def dumps(
    value: Any, aside: Callable[[pickle.PickleBuffer], bool] | None = None, again: Callable[[], object] = lambda: None
) -> bytes:
    """The value pickled; functions and classes of ``__main__`` or of a function by value.

    ``aside``: is given each buffer, and returns true to leave it in the pickle. ``again``: it gets them all again.

    Raises an exception where it cannot be pickled.
    """
    try:
        data = pickle.dumps(value, protocol=5, buffer_callback=aside)
    except Exception:  # noqa: BLE001 - whatever a __reduce__ raises
        data = None
    if data is not None and b"__main__" not in data:
        return data
    import cloudpickle

    again()
    return bytes(cloudpickle.dumps(value, protocol=5, buffer_callback=aside))
