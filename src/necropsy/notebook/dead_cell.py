"""Write below the cell that killed its kernel: messages of the kernel that died, as if it had sent them.

``send`` uses the connections that front ends had to the kernel, while it is held or soon after. Where those cannot be
had, ``show`` waits at the kernel's address for the front ends to come back.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from necropsy.notebook.cell_log import Cell
from necropsy.notebook.zmtp import Peer, Publisher, message

_BIND_S = 1.0
"""How long the dead kernel may keep its address."""
_TURN_S = 0.02
_SEND_S = 0.5
_UNSENT = 0x894B
"""SIOCOUTQNSD: how much of what was written has not been sent."""
_LINGER_S = 0.6
"""How long others are waited for, after the first subscriber has come back. ZeroMQ tries every 0.1 s."""


class Connection:
    """What the connection file says."""

    def __init__(self, path: Path) -> None:
        """Read it.

        Raises OSError where it is gone, and ValueError where it is not a connection file, or the kernel
        encrypts its messages.
        """
        found = json.loads(path.read_text("utf-8"))
        if not isinstance(found, dict) or not isinstance(found.get("iopub_port"), int):
            raise ValueError("not a connection file")  # noqa: TRY004 - of a file's contents
        if found.get("curve_publickey"):
            raise ValueError("its messages are encrypted")
        scheme = str(found.get("signature_scheme", "hmac-sha256"))
        self.key = str(found.get("key", "")).encode()
        self.digest = getattr(hashlib, scheme.partition("-")[2], hashlib.sha256)
        self.address = (str(found.get("transport", "tcp")), str(found.get("ip", "127.0.0.1")), found["iopub_port"])

    def parts(self, cell: Cell, content: dict[str, Any], session: str) -> list[bytes]:
        """A message that shows something below a cell, as it goes over the wire."""
        header = {
            "msg_id": uuid.uuid4().hex,
            "msg_type": "display_data",
            "session": session,
            "username": str(cell.header.get("username", "")),
            "date": datetime.now(timezone.utc).isoformat(),
            "version": "5.3",
        }
        signed = [json.dumps(one).encode() for one in (header, cell.header, {}, content)]
        signature = b""
        if self.key:
            signature = hmac.new(self.key, b"".join(signed), self.digest).hexdigest().encode()
        return [b"kernel.display_data", b"<IDS|MSG>", signature, *signed]


def _message(connection: Connection, cell: Cell, text: str) -> list[bytes]:
    return connection.parts(cell, {"data": {"text/plain": text}, "metadata": {}, "transient": {}}, uuid.uuid4().hex)


def send(connection: Connection, cell: Cell, text: str, lines: Sequence[socket.socket]) -> bool:
    """Show a text below the cell, over the connections that the kernel had when it died; whether anybody got it."""
    data = message(_message(connection, cell, text))
    return any([_sent(line, data) for line in lines])  # noqa: C419 - to all of them


def _sent(line: socket.socket, data: bytes) -> bool:
    """False where the kernel's own last message may not have gone out whole: ours would be taken for its rest."""
    try:
        if any(fcntl.ioctl(line, _UNSENT, bytes(4))):
            return False
        line.settimeout(_SEND_S)
        line.sendall(data)
    except OSError:
        return False
    return True


def show(connection: Connection, cell: Cell, text: str, is_over: Callable[[], bool], *, seconds: float) -> bool:
    """Show a text below the cell, by whoever comes back within ``seconds``; whether anybody did.

    ``is_over``: the address is needed for the next kernel.
    """
    publisher = _bound(connection, is_over)
    if publisher is None:
        return False
    parts = _message(connection, cell, text)
    served: list[Peer] = []
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until and not is_over():
            publisher.serve(_TURN_S)
            fresh = [peer for peer in publisher.subscribers(parts[0]) if peer not in served]
            if fresh and not served:
                until = min(until, time.monotonic() + _LINGER_S)
            publisher.publish(parts, fresh)
            served += fresh
    finally:
        publisher.close()
    return bool(served)


def _bound(connection: Connection, is_over: Callable[[], bool]) -> Publisher | None:
    until = time.monotonic() + _BIND_S
    while time.monotonic() < until and not is_over():
        with contextlib.suppress(OSError):
            return Publisher(*connection.address)
        time.sleep(_TURN_S)
    return None
