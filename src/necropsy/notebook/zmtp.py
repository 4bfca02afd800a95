"""A publisher that ZeroMQ's subscribers connect to (ZMTP 3.0, no security), from the standard library.

It needs no pyzmq in necropsy's environment, and starts in no time. https://rfc.zeromq.org/spec/23/
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import stat
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_MORE, _LONG, _COMMAND = 1, 2, 4
_LONGEST = 1 << 16
"""Subscribers send nothing that is longer."""
_SEND_S = 1.0
_GREETING = b"\xff" + bytes(8) + b"\x7f" + bytes((3, 0)) + b"NULL".ljust(20, b"\0") + bytes(32)
_READY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 4) + b"XPUB"


def frame(body: bytes, flags: int = 0) -> bytes:
    """One frame as it is sent."""
    if len(body) > 255:
        return bytes((flags | _LONG,)) + struct.pack(">Q", len(body)) + body
    return bytes((flags, len(body))) + body


def message(parts: Sequence[bytes]) -> bytes:
    """A message of several frames as it is sent."""
    return b"".join(frame(part, _MORE if place < len(parts) - 1 else 0) for place, part in enumerate(parts))


@dataclass
class Peer:
    """One subscriber, or what claims to be one."""

    socket: socket.socket
    received: bytes = b""
    greeted: bool = False
    topics: set[bytes] = field(default_factory=set)

    def take(self, data: bytes) -> bool:
        """What it sent; false where that is not ZMTP."""
        self.received += data
        if not self.greeted:
            if self.received[:1] not in {b"", b"\xff"}:
                return False
            if len(self.received) < len(_GREETING):
                return True
            if self.received[9:10] != b"\x7f" or self.received[10] < 3 or self.received[12:32].rstrip(b"\0") != b"NULL":
                return False
            self.received = self.received[len(_GREETING) :]
            self.greeted = True
            self.socket.sendall(frame(_READY, _COMMAND))
        while self.received:
            if self.received[0] & _LONG:
                if len(self.received) < 9:
                    return True
                head, size = 9, struct.unpack_from(">Q", self.received, 1)[0]
            else:
                if len(self.received) < 2:
                    return True
                head, size = 2, self.received[1]
            if size > _LONGEST:
                return False
            if len(self.received) < head + size:
                return True
            flags, body = self.received[0], self.received[head : head + size]
            self.received = self.received[head + size :]
            self._subscribe(flags, body)
        return True

    def _subscribe(self, flags: int, body: bytes) -> None:
        if flags & _COMMAND:
            for name, subscribes in ((b"\x09SUBSCRIBE", True), (b"\x06CANCEL", False)):
                if body.startswith(name):
                    body = bytes((subscribes,)) + body[len(name) :]
                    break
            else:
                return
        if body[:1] == b"\x01":
            self.topics.add(body[1:])
        elif body[:1] == b"\x00":
            self.topics.discard(body[1:])


class Publisher:
    """An address at which subscribers are served."""

    def __init__(self, transport: str, ip: str, port: int) -> None:
        """Listen, as the kernel did. Raises OSError where the address is not free."""
        if transport == "ipc":
            self.listener = socket.socket(socket.AF_UNIX)
            self.path: str | None = f"{ip}-{port}"
            _remove_socket(self.path)
            self.listener.bind(self.path)
        else:
            self.path = None
            self.listener = socket.socket(socket.AF_INET6 if ":" in ip else socket.AF_INET)
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                self.listener.bind(("" if ip == "*" else ip, port))
            except OSError:
                self.listener.close()
                raise
        self.listener.listen(64)
        self.listener.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ)

    def serve(self, seconds: float) -> None:
        """Accept subscribers and hear what they want, for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            for key, _ in self.selector.select(left):
                if key.data is None:
                    self._accept()
                else:
                    self._hear(key.data)

    def publish(self, parts: Sequence[bytes], to: Sequence[Peer]) -> None:
        """Send a message to these subscribers."""
        data = message(parts)
        for peer in to:
            self._send(peer, data)

    def _send(self, peer: Peer, data: bytes) -> None:
        try:
            peer.socket.settimeout(_SEND_S)
            peer.socket.sendall(data)
            peer.socket.setblocking(False)
        except OSError:
            self._drop(peer)

    def subscribers(self, topic: bytes) -> list[Peer]:
        """Those who want messages on this topic."""
        peers = [key.data for key in list(self.selector.get_map().values()) if key.data is not None]
        return [peer for peer in peers if any(topic.startswith(one) for one in peer.topics)]

    def close(self) -> None:
        """Free the address; what was sent is still delivered."""
        for key in list(self.selector.get_map().values()):
            self.selector.unregister(key.fileobj)
            if key.data is not None:
                key.data.socket.close()
        self.listener.close()
        self.selector.close()
        if self.path is not None:
            _remove_socket(self.path)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self.listener.accept()
            peer = Peer(connection)
            connection.sendall(_GREETING)
            connection.setblocking(False)
            self.selector.register(connection, selectors.EVENT_READ, peer)

    def _hear(self, peer: Peer) -> None:
        try:
            data = peer.socket.recv(_LONGEST)
            alive = bool(data) and peer.take(data)
        except BlockingIOError:
            return
        except OSError:
            alive = False
        if not alive:
            self._drop(peer)

    def _drop(self, peer: Peer) -> None:
        with contextlib.suppress(KeyError, ValueError):
            self.selector.unregister(peer.socket)
        peer.socket.close()


def _remove_socket(path: str) -> None:
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(Path(path).lstat().st_mode):
            Path(path).unlink()
