"""Memory of a process on Windows, as a minidump holds it. Of a live one it is read by the supervisor."""

from __future__ import annotations

from necropsy.capture.process.memory import Memory
from necropsy.formats.minidump_records import MemoryRanges

__all__ = ["Memory", "MinidumpMemory"]


class MinidumpMemory(Memory):
    """What a minidump holds of its process: the stacks mostly, sometimes all of it."""

    def __init__(self, ranges: MemoryRanges) -> None:
        """``ranges``: ``Minidump.memory``."""
        self._ranges = ranges

    def some(self, address: int, size: int) -> bytes:
        """As ``Memory.some``."""
        return self._ranges.some(address, size) if size > 0 else b""
