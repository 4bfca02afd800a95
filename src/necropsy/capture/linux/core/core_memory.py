"""The memory of a core: what the core brings, and from the mapped files what it left out."""

from __future__ import annotations

import mmap
import os
import stat
from bisect import bisect_right

from necropsy.capture.linux.inspect.memory_map import MapEntry, MemoryMap
from necropsy.capture.process.memory import PAGE, Memory, pieces
from necropsy.errors import InputError
from necropsy.formats.elf import PT_LOAD, ElfFile, Segment
from necropsy.formats.elf_core_reader import CoreDump

_WRITE = 2
_NO_FILES = ("/proc/", "/sys/", "/dev/")
"""What lies there is read from the kernel, and a core may name anything."""


class CoreMemory(Memory):
    """Reads a core. Nothing is made up: a page that neither core nor file holds is not there."""

    def __init__(self, core: CoreDump, data: bytes | mmap.mmap, maps: MemoryMap, taken_at: float) -> None:
        """``data``: the whole core. ``taken_at``: the time of the core file, in seconds since the epoch."""
        self._core, self._data, self._maps, self._taken_at = core, data, maps, taken_at
        self._lows = [one.low for one in core.loads]
        self._opened: dict[str, ElfFile | None] = {}
        self._mapped: dict[str, mmap.mmap] = {}

    def some(self, address: int, size: int) -> bytes:
        """As ``Memory.some``."""
        return pieces(self._piece, address, size)

    def _piece(self, address: int, size: int) -> bytes:
        return self.brought(address, size) or self._from_file(address, size)

    def brought(self, address: int, size: int) -> bytes:
        """What the core itself holds from ``address`` on, up to ``size`` bytes or the end of a piece."""
        index = bisect_right(self._lows, address) - 1
        if index < 0 or size <= 0:
            return b""
        one = self._core.loads[index]
        start = address - one.low
        if start >= one.size:
            return b""
        return bytes(self._data[one.offset + start : one.offset + min(start + size, one.size)])

    def is_replaced(self, first: MapEntry) -> bool:
        """Whether the file whose beginning ``first`` maps is not to be had: gone, no file, or another one by now."""
        return first.path is None or first.deleted or self._file(first.path, first) is None

    def _from_file(self, address: int, size: int) -> bytes:
        one = self._maps.at(address)
        if one is None or not one.is_file or one.writable or one.deleted or one.path is None:
            return b""
        elf = self._opened.get(one.path) or self._file(one.path, self._first(one))
        if elf is None:
            return b""
        offset = one.offset + address - one.low
        # What the dynamic linker relocated is read-only by then, and is not what the file says.
        if any(_is_relocated(segment, offset) for segment in elf.segments):
            return b""
        size = min(size, one.high - address)
        return bytes(self._mapped[one.path][offset : offset + size])

    def _first(self, one: MapEntry) -> MapEntry:
        """The nearest mapping below of the same file's beginning."""
        below: MapEntry | None = one
        while below is not None and below.path == one.path and below.offset:
            below = self._maps.below(below.low)
        return below if below is not None and below.path == one.path else one

    def _file(self, path: str, first: MapEntry) -> ElfFile | None:
        if path not in self._opened:
            self._opened[path] = self._open(path, first)
        return self._opened[path]

    def _open(self, path: str, first: MapEntry) -> ElfFile | None:
        if path.startswith(_NO_FILES) or not path.startswith("/") or "/../" in path:
            return None
        try:
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except (OSError, ValueError):
            return None
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or not found.st_size:
                return None
            data = mmap.mmap(handle, 0, prot=mmap.PROT_READ)
            elf = ElfFile(data)
        except (OSError, ValueError, InputError):
            return None
        finally:
            os.close(handle)
        own, other = self._build_id(first), elf.build_id()
        # Without build IDs only the time can tell: what was written after the death is not what died.
        same = own == other if own is not None else found.st_mtime <= self._taken_at
        if not same:
            return None
        self._mapped[path] = data
        return elf

    def _build_id(self, first: MapEntry) -> str | None:
        """By the core's copy of the file's beginning."""
        try:
            return ElfFile(self.brought(first.low, PAGE)).build_id()
        except InputError:
            return None


def _is_relocated(segment: Segment, offset: int) -> bool:
    if segment.type != PT_LOAD or not segment.flags & _WRITE:
        return False
    return segment.offset & ~(PAGE - 1) <= offset < segment.offset + segment.file_size
