"""The bytes of a minidump, read without ever leaving the file: what lies outside is missing, never an error."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from necropsy.formats.minidump_records import Data

LONGEST_STRING = 64 << 10
"""Bytes. The longest path of Windows has 32,767 letters of two bytes."""
MOST = 20_000
"""Of threads, modules, handles and the like; what a dump has beyond that is left out and told."""
_LARGEST_CONTEXT = 2048
"""The general and the SSE registers lie in the first 1,232 bytes, whatever follows them."""


@dataclass(frozen=True)
class FilePlace:
    """Where something lies in the file: ``MINIDUMP_LOCATION_DESCRIPTOR``."""

    offset: int
    size: int


@dataclass
class MinidumpFile:
    """The file, and what was found missing while it was read."""

    data: Data
    gaps: dict[str, None] = field(default_factory=dict)
    text_left: int = 32 << 20
    """Bytes of texts that are still read: thousands of names may all point to one that is long."""

    def __post_init__(self) -> None:
        self.size = len(self.data)

    def tell(self, gap: str) -> None:
        """Something is missing or damaged; said once."""
        self.gaps[gap] = None

    def holds(self, offset: int, size: int) -> bool:
        """These bytes lie within the file."""
        return offset >= 0 and size >= 0 and offset + size <= self.size

    def piece(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset`` on."""
        return self.data[offset : offset + size] if 0 <= offset < self.size and size > 0 else b""

    def unpack(self, layout: struct.Struct, offset: int) -> tuple[int, ...] | None:
        """The numbers that lie there; None where the file ends before."""
        return layout.unpack_from(self.data, offset) if self.holds(offset, layout.size) else None

    def number(self, offset: int) -> int | None:
        """The 32-bit number that lies there."""
        found = self.unpack(_U32, offset)
        return None if found is None else found[0]

    def rows(self, what: str, layout: struct.Struct, offset: int, *, count: int, step: int, end: int) -> range:
        """Offsets of up to ``count`` rows, ``step`` bytes apart, up to the stream's ``end``; missing ones are a gap."""
        if step < layout.size:
            if count:
                self.tell(f"{what}: {count:,} entries of {step} bytes each, which is too few; none was read")
            return range(0)
        end = min(end, self.size)
        fitting = max(0, (end - offset - layout.size) // step + 1) if end - offset >= layout.size else 0
        used = min(count, fitting)
        if used < count:
            self.tell(f"{what}: {count:,} were promised, {used:,} are there")
        return range(offset, offset + used * step, step)

    def most(self, what: str, rows: range, most: int = MOST) -> range:
        """The first ``most`` of them; the others are a gap."""
        if len(rows) > most:
            self.tell(f"{what}: of {len(rows):,} the first {most:,} were read")
        return rows[:most]

    def string(self, offset: int) -> str | None:
        """A ``MINIDUMP_STRING``: the number of bytes, then UTF-16; None where none lies there."""
        size = self.number(offset) if offset else None
        if size is None:
            return None
        data = self._text(offset + 4, size & ~1)
        # A length that lies would run on into what follows: the text ends at its own end.
        return data[: len(data) & ~1].decode("utf-16-le", "replace").split("\0", 1)[0]

    def utf8(self, offset: int) -> str | None:
        """Crashpad's ``MinidumpUTF8String``: the number of bytes, then UTF-8."""
        size = self.number(offset) if offset else None
        if size is None:
            return None
        return self._text(offset + 4, size).decode("utf-8", "replace").split("\0", 1)[0]

    def _text(self, offset: int, size: int) -> bytes:
        data = self.piece(offset, min(size, LONGEST_STRING, self.text_left))
        self.text_left -= len(data)
        if not self.text_left:
            self.tell("names: there are too many long ones, some were not read")
        return data

    def context(self, size: int, offset: int) -> bytes:
        """The beginning of a ``CONTEXT``, with all general registers in it."""
        if size and not self.holds(offset, size):
            self.tell("registers: some are beyond the end of the file")
        return self.piece(offset, min(size, _LARGEST_CONTEXT)) if offset else b""


_U32 = struct.Struct("<I")
