"""Messages between the caller and a worker: pickles on a socket, each behind its length."""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any

_HEADER = struct.Struct("!Q")
_CHUNK = 1 << 20
_JOINED = 1 << 16
"""Up to this size the header and the data are sent in one call."""


class Channel:
    """One end of the connection. Only one thread at a time may use it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    @staticmethod
    def dumps(value: Any) -> bytes:
        """The value pickled; functions and classes of ``__main__`` or of a function by value, where cloudpickle is.

        Raises:
            Exception: it cannot be pickled.

        """
        try:
            data = pickle.dumps(value, protocol=5)
        except Exception:
            by_value = _cloudpickle()
            if by_value is None:
                raise
            return bytes(by_value.dumps(value, protocol=5))
        if b"__main__" in data and (by_value := _cloudpickle()) is not None:
            return bytes(by_value.dumps(value, protocol=5))
        return data

    @staticmethod
    def loads(data: bytes) -> Any:
        """The value back."""
        return pickle.loads(data)  # noqa: S301 - both ends are one user's processes

    def send(self, data: bytes) -> None:
        """Send one message.

        Raises:
            OSError: the other end has gone.

        """
        header = _HEADER.pack(len(data))
        if len(data) <= _JOINED:
            self.connection.sendall(header + data)
        else:
            self.connection.sendall(header)
            self.connection.sendall(data)

    def receive(self) -> bytes:
        """The next message.

        Raises:
            EOFError: the other end has gone.

        """
        size = _HEADER.unpack(self._exactly(_HEADER.size))[0]
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
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
        return bytes(whole)


def _cloudpickle() -> Any:
    """The module, or None where it is not installed."""
    try:
        import cloudpickle
    except ImportError:
        return None
    return cloudpickle
