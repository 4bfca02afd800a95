"""``/proc/PID/maps`` as typed entries, and the question *which mapping holds this address?*"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from necropsy.model import Address, Mapping

_DELETED = " (deleted)"
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class MapEntry:
    """One line: ``[low, high)`` in bytes; ``offset`` into the file. ``path`` without the kernel's ``(deleted)``."""

    low: int
    high: int
    permissions: str
    offset: int = 0
    device: str = "00:00"
    inode: int = 0
    path: str | None = None
    deleted: bool = False

    @property
    def readable(self) -> bool:
        """Its pages can be read (``[vvar]`` and ``[vsyscall]`` cannot from outside, whatever their bits say)."""
        return self.permissions[0] == "r" and self.path not in {"[vvar]", "[vsyscall]", "[vvar_vclock]"}

    @property
    def writable(self) -> bool:
        """Its pages can be written."""
        return self.permissions[1] == "w"

    @property
    def executable(self) -> bool:
        """Its pages can be executed."""
        return self.permissions[2] == "x"

    @property
    def is_file(self) -> bool:
        """It maps a file of a file system (``[stack]`` and ``anon_inode:`` are none)."""
        return self.path is not None and self.path.startswith("/") and self.inode != 0

    def as_noun(self) -> Mapping:
        """The same as the model says it."""
        path = self.path + _DELETED if self.path and self.deleted else self.path
        return Mapping(low=Address(self.low), high=Address(self.high), permissions=self.permissions, path=path)


class MemoryMap:
    """All mappings of a process in ascending order; they do not overlap."""

    def __init__(self, maps: Iterable[MapEntry]) -> None:
        self._maps = sorted(maps, key=lambda one: one.low)
        self._lows = [one.low for one in self._maps]

    def __iter__(self) -> Iterator[MapEntry]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    def at(self, address: int) -> MapEntry | None:
        """The mapping that holds ``address``; None where nothing is mapped."""
        index = bisect_right(self._lows, address) - 1
        if index >= 0 and address < self._maps[index].high:
            return self._maps[index]
        return None

    def above(self, address: int) -> MapEntry | None:
        """The first mapping that begins above ``address``."""
        index = bisect_right(self._lows, address)
        return self._maps[index] if index < len(self._maps) else None

    def writable_from(self, address: int) -> MapEntry | None:
        """The mapping that holds ``address`` if it can be written to, else the next one above that can."""
        one = self.at(address) or self.above(address)
        while one is not None and not one.writable:
            one = self.above(one.low)
        return one

    def below(self, address: int) -> MapEntry | None:
        """The last mapping that ends at or below ``address``."""
        index = bisect_right(self._lows, address) - 1
        while index >= 0:
            if self._maps[index].high <= address:
                return self._maps[index]
            index -= 1
        return None

    def named(self, path: str) -> MapEntry | None:
        """The first mapping with this path (``[stack]``)."""
        return next((one for one in self._maps if one.path == path), None)

    def executable_at(self, address: int) -> bool:
        """Code can run there."""
        one = self.at(address)
        return one is not None and one.executable


def parse(text: str) -> MemoryMap:
    """The lines of ``/proc/PID/maps`` (proc(5)); a line that is none is passed over."""
    return _parsed(text.splitlines())


def _parsed(lines: Iterable[str]) -> MemoryMap:
    return MemoryMap(one for line in lines if (one := _parse_line(line)) is not None)


def _parse_line(line: str) -> MapEntry | None:
    fields = line.split(None, 5)
    if len(fields) < 5 or len(fields[1]) != 4:
        return None
    try:
        low, high = (int(part, 16) for part in fields[0].split("-"))
        offset, inode = int(fields[2], 16), int(fields[4])
    except ValueError:
        return None
    path = fields[5] if len(fields) > 5 else None
    deleted = path is not None and path.endswith(_DELETED)
    if path is not None:
        path = sys.intern(_OCTAL.sub(lambda match: chr(int(match[1], 8)), path.removesuffix(_DELETED)))
    return MapEntry(low, high, sys.intern(fields[1]), offset, sys.intern(fields[3]), inode, path, deleted)


def read(pid: int) -> MemoryMap:
    """The mappings of a process. Raises OSError where it is gone or may not be read."""
    # Line by line: there may be a million of them.
    with Path(f"/proc/{pid}/maps").open("rb") as file:
        return _parsed(line.rstrip(b"\n").decode("utf-8", "surrogateescape") for line in file)
