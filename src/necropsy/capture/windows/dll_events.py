"""The libraries of one process, as its debug events tell of them: what was there beside what, and when."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property

from necropsy.formats.minidump_records import file_name

_MOST_ENDED = 512


@dataclass(eq=False)
class MappedDll:
    """A library, from the counted event that mapped it (``at``: its monotonic time) to the one that unmapped it."""

    path: str
    begun: int
    at: float
    ended: int | None = None

    @cached_property
    def name(self) -> str:
        """The file's name, as names are compared."""
        return file_name(self.path).casefold()

    def beside(self, other: MappedDll) -> bool:
        """Both were there at the same time."""
        return (self.ended is None or self.ended > other.begun) and (other.ended is None or other.ended > self.begun)


@dataclass
class DllEvents:
    """All of them. An event costs a word in a table, nothing is read; of those that are gone the last 512 are kept."""

    now: dict[int, MappedDll] = field(default_factory=dict)
    gone: deque[MappedDll] = field(default_factory=deque)
    forgotten: int = 0
    """What was mapped before this event is not judged: what was there beside it may be forgotten."""
    _events: int = 0

    def mapped(self, base: int, path: str) -> None:
        """The program itself, or a library (``LOAD_DLL_DEBUG_EVENT``)."""
        self._events += 1
        self.now[base] = MappedDll(path, self._events, time.monotonic())

    def unmapped(self, base: int) -> None:
        """It was taken away (``UNLOAD_DLL_DEBUG_EVENT``)."""
        self._events += 1
        one = self.now.pop(base, None)
        if one is None:
            return
        one.ended = self._events
        self.gone.append(one)
        if len(self.gone) > _MOST_ENDED:
            self.forgotten = self.gone.popleft().ended or 0

    def all(self) -> list[MappedDll]:
        """In the order in which they came."""
        return sorted((*self.gone, *self.now.values()), key=lambda one: one.begun)

    def clear(self) -> None:
        """Nothing more will be asked."""
        self.now.clear()
        self.gone.clear()
