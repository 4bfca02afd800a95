"""Messages with large buffers: arrays, or a long pickle, which go through shared memory."""

from __future__ import annotations

import pickle
import socket
import struct
from typing import Any, NamedTuple

from necropsy.contain import segments
from necropsy.contain.wire import HEADER, QUIET, Channel, dumps

_HAS_BUFFERS = 1 << 63
"""In the header: a byte comes next, with the file descriptor of a segment if there is one; then a ``_Described``."""
_LARGE = 1 << 16
"""From this size on a buffer is not part of the pickle."""
_LARGE_PICKLE = 1 << 20
"""The same for the pickle itself, which has to be copied once more before it can be read."""
_HANDLE = struct.Struct("i")

_Described = tuple[bytes | None, list[bytearray], int, tuple[segments.Span, ...], tuple[int, ...]]
"""The pickle, or None where it is the first of the buffers; buffers where no segment could be had; ``Placed``."""


class Message(NamedTuple):
    """A value pickled: its pickle, and the buffers that are not in it."""

    data: bytes | bytearray | memoryview
    buffers: tuple[memoryview | bytearray, ...] = ()


def packed(value: Any) -> Message:
    """The value, ready to be sent. Its arrays are not copied before that.

    Raises an exception where it cannot be pickled.
    """
    if not segments.AVAILABLE:
        return Message(dumps(value))
    buffers: list[memoryview] = []

    def aside(buffer: pickle.PickleBuffer) -> bool:
        try:
            raw = buffer.raw()
        except BufferError:  # not contiguous
            return True
        if raw.nbytes < _LARGE:
            return True
        buffers.append(raw)
        return False

    return Message(dumps(value, aside, buffers.clear), tuple(buffers))


def loads(message: Message) -> Any:
    """The value back; its large arrays are this process's own."""
    return pickle.loads(message.data, buffers=message.buffers)  # noqa: S301 - both ends are one user's processes


class MessageChannel(Channel):
    """One end of the connection. Only one thread at a time may use it."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._arena, self._mapped = segments.Arena(), segments.Mapped()

    def post(self, message: Message) -> None:
        """Send one message. Raises OSError where the other end has gone."""
        moves = len(message.data) >= _LARGE_PICKLE and segments.AVAILABLE
        if not moves and not message.buffers:
            self.send(message.data)
            return
        data = None if moves else bytes(message.data)
        buffers = [memoryview(one) for one in ((message.data,) if moves else ()) + message.buffers]
        handles: list[int] = []
        try:
            placed = self._arena.place(buffers)
        except OSError:  # no memory or descriptor is left for it
            described: _Described = (data, [bytearray(one) for one in buffers], 0, (), ())
        else:
            described = (data, [], placed.ident, placed.spans, placed.dropped)
            handles = [placed.handle]
        body = pickle.dumps(described, protocol=5)
        self.connection.sendall(HEADER.pack(_HAS_BUFFERS | len(body)), QUIET)
        socket.send_fds(self.connection, [b"b"], handles, QUIET)
        self.connection.sendall(body, QUIET)
        self._arena.trim()

    def take(self) -> Message:
        """The next message.

        Raises EOFError where the other end has gone, and OSError where a segment cannot be mapped.
        """
        size = HEADER.unpack(self._exactly(HEADER.size))[0]
        if not size & _HAS_BUFFERS:
            return Message(self._exactly(size))
        handle = self._handle()
        data, buffers, ident, spans, dropped = pickle.loads(self._exactly(size ^ _HAS_BUFFERS))  # noqa: S301
        if handle is not None:
            buffers = self._mapped.buffers(segments.Placed(ident, handle, spans, dropped))
        if data is None:
            data, *buffers = buffers
        return Message(data, tuple(buffers))

    def _handle(self) -> int | None:
        """The file descriptor that comes with the next byte."""
        try:
            said, extra, _, _ = self.connection.recvmsg(
                1, socket.CMSG_SPACE(_HANDLE.size), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
            )
        except ConnectionError:
            raise EOFError from None
        if not said:
            raise EOFError
        return int(_HANDLE.unpack_from(extra[0][2])[0]) if extra else None

    def close(self) -> None:
        """Give up the connection, and the memory that it holds for the next message."""
        self.connection.close()
        self._arena.close()
