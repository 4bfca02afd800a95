"""Where items are sent: an address, headers, and how they are written for it; names hold no credentials."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import SplitResult, urlsplit, urlunsplit

from necropsy.errors import OptionError
from necropsy.send.items import Item


class Writer(Protocol):
    """Writes items as the receiver reads them."""

    def __call__(self, items: Sequence[Item], *, lean: bool) -> bytes:
        """The body of a request. ``lean``: as small as possible, for a receiver that found it too large."""


Judge = Callable[[bytes], "str | None"]
"""Reads an answer of 2xx: what the receiver has not accepted, None where it has accepted all."""


def _accepted(_answer: bytes) -> str | None:
    return None


@dataclass(frozen=True)
class Receiver:
    """One address. ``name`` is for messages and for the store; ``most``: items of one request."""

    kind: str
    name: str
    url: str
    write: Writer
    most: int
    headers: Mapping[str, str] = field(default_factory=dict)
    judge: Judge = _accepted

    @property
    def id(self) -> str:
        """By which a store knows it: the name, and a hash of the whole address, of which the name shows a part."""
        return f"{self.name} {hashlib.sha256(self.url.encode('utf-8', 'backslashreplace')).hexdigest()[:12]}"


def as_json(value: object) -> bytes:
    """Compact JSON. Lone surrogates, which stand for bytes of no encoding, become U+FFFD: receivers refuse them."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def parsed(url: str, option: str) -> SplitResult:
    """The parts of an address of HTTP; raises ``OptionError`` for anything else."""
    problem = None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        problem = f": {error}"
    else:
        if parts.scheme in {"http", "https"} and parts.hostname and (port is None or port > 0):
            return parts
    raise OptionError(f"{option} takes an address that begins with https:// or http://{problem or ''}")


def shown(parts: SplitResult, *, path: bool = True) -> str:
    """The address without what may be secret: the user, the password, the query and, without ``path``, the path."""
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
    port = f":{parts.port}" if parts.port is not None else ""
    return urlunsplit((parts.scheme, host + port, parts.path if path else "", "", ""))


def without_user(parts: SplitResult) -> str:
    """The address without user and password, which belong in a header."""
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
