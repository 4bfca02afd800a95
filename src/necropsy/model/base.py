"""What all nouns share (frozen, typed, plain data; an address is written in hex), evidence, and what is missing."""

from __future__ import annotations

from typing import Literal

import msgspec

Confidence = Literal["certain", "likely", "possible"]
"""certain: a decisive observation and no rival rule fits; likely: fits, and the rivals fit worse;
possible: consistent with what was observed, but not proved."""

Severity = Literal["error", "warning", "note"]


class Address(int):
    """A virtual address; in JSON a hex string, because JavaScript and jq lose the low bits of a 64-bit number."""

    def __repr__(self) -> str:
        return hex(self)

    __str__ = __repr__


class Noun(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all nouns."""


class Evidence(Noun, frozen=True, kw_only=True):
    """One claim, what was seen, and where."""

    claim: str
    seen: str
    where: str | None = None
    """Where it was seen: ``signal information of the main thread``, ``frame 5``, ``log line 12``."""


class Gap(Noun, frozen=True, kw_only=True):
    """A part that was not observed, and why."""

    part: str
    """A field of the crash (``log_tail``, ``python``, ``stack``), or ``process``, ``log``."""
    why: str
