"""How far a walk is, in a file that another process has mapped: it outlives a crash of the walk."""

from __future__ import annotations

import mmap
import struct
from typing import NamedTuple

_LAYOUT = struct.Struct("<QQQIId")
SIZE = _LAYOUT.size
LOADING, FETCHING, CHECKING = 0, 1, 2
PHASES = ("loading", "fetching", "checking")


class Progress(NamedTuple):
    """``first``: the element at hand; ``step``: how many are at hand; ``total``: 0 where it is not known."""

    first: int
    step: int
    total: int
    phase: int
    wrong: int
    """Kinds of faults found so far."""
    bytes: float


class Journal:
    """The writer's end, or the reader's."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            file.truncate(SIZE)
            self._memory = mmap.mmap(file.fileno(), SIZE)
        self.total = 0
        self.wrong = 0
        self.bytes = 0.0

    def note(self, index: int, count: int, phase: int) -> None:
        """The walk is at this element."""
        _LAYOUT.pack_into(self._memory, 0, index, count, self.total, phase, self.wrong, self.bytes)

    def read(self) -> Progress:
        """Where the walk is, or was when its process died."""
        return Progress(*_LAYOUT.unpack_from(self._memory, 0))

    def close(self) -> None:
        """Give the mapping back."""
        self._memory.close()


class NoJournal:
    """In place of one, where nobody reads it."""

    total = 0
    wrong = 0
    bytes = 0.0

    def note(self, index: int, count: int, phase: int) -> None:
        """Nothing."""
