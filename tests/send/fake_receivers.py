"""Receivers on 127.0.0.1 that answer as they are told: properly, late, never, with redirects, or with half an answer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

END = b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
OK = b"HTTP/1.1 200 OK" + END
HANG = b"hang"
"""Read the request, and never answer."""
CLOSE = b"close"
"""Close the connection without an answer."""
RESET = b"reset"
"""Close it before the request has been read."""
DRIP = b"drip"
"""A byte of the answer's head now and then, without end."""


def answer(status: int, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"HTTP/1.1 {status} Said", *headers, f"Content-Length: {len(body)}", "Connection: close"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class FakeReceiver:
    """``requests``: what came, the head and the body of each."""

    port: int
    requests: list[tuple[str, bytes]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body in self.requests]


@contextmanager
def receiving(*answers: bytes) -> Iterator[FakeReceiver]:
    """Gives ``answers`` to the requests in turn, and the last one to all further ones."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.05)
        fake = FakeReceiver(server.getsockname()[1])
        ended = threading.Event()
        thread = threading.Thread(target=_serve, args=(server, fake, answers or (OK,), ended))
        thread.start()
        try:
            yield fake
        finally:
            ended.set()
            thread.join(30)


def _serve(server: socket.socket, fake: FakeReceiver, answers: Sequence[bytes], ended: threading.Event) -> None:
    number = 0
    while not ended.is_set():
        try:
            connection, _ = server.accept()
        except TimeoutError:
            continue
        with connection:
            connection.settimeout(60)
            said = answers[min(number, len(answers) - 1)]
            number += 1
            try:
                _talk(connection, fake, said, ended)
            except OSError:
                continue


def _talk(connection: socket.socket, fake: FakeReceiver, said: bytes, ended: threading.Event) -> None:
    if said == RESET:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        return
    fake.requests.append(_request(connection))
    if said == CLOSE:
        return
    if said == HANG:
        ended.wait(120)
    elif said == DRIP:
        for byte in b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000:
            if ended.wait(0.05):
                return
            connection.sendall(bytes([byte]))
    else:
        connection.sendall(said)


def _request(connection: socket.socket) -> tuple[str, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            raise OSError
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    text = head.decode("latin-1")
    length = next(
        int(line.partition(":")[2]) for line in text.splitlines() if line.lower().startswith("content-length")
    )
    while len(body) < length:
        piece = connection.recv(65536)
        if not piece:
            raise OSError
        body += piece
    return text, body
