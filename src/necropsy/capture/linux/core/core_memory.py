"""The memory of a core: what the core brings, and from the mapped files what it left out."""

from __future__ import annotations

import mmap
import os
import stat
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

from necropsy.capture.linux.inspect import link_map
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

    def __init__(
        self, core: CoreDump, data: bytes | mmap.mmap, maps: MemoryMap, taken_at: float, folders: Sequence[Path] = ()
    ) -> None:
        """``data``: the whole core. ``taken_at``: the time of the core file, in seconds since the epoch.

        ``folders``: where files of another machine may be, under their names or with their whole paths.
        """
        self._folders = folders
        self._places: dict[str, str] = {}
        self._core, self._data, self._maps, self._taken_at = core, data, maps, taken_at
        self.processor = core.processor
        self.page = link_map.page_size(core.auxv)
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

    def place_of(self, first: MapEntry) -> str | None:
        """Where the file can be opened whose beginning ``first`` maps; None where it is gone, or another one by now."""
        if first.path is None or first.deleted or self._file(first.path, first) is None:
            return None
        return self._places.get(first.path, first.path)

    def _from_file(self, address: int, size: int) -> bytes:
        one = self._maps.at(address)
        if one is None or not one.is_file or one.writable or one.deleted or one.path is None:
            return b""
        elf = self._opened.get(one.path) or self._file(one.path, self._first(one))
        if elf is None:
            return b""
        offset = one.offset + address - one.low
        # What the dynamic linker relocated is read-only by then, and is not what the file says.
        if any(_is_relocated(segment, offset, self.page) for segment in elf.segments):
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
        own = self._build_id(first)
        found = self._opened_at(path, path, own)
        if found is not None or own is None:
            return found
        places = (folder / name for folder in self._folders for name in (path.lstrip("/"), path.rsplit("/", 1)[-1]))
        opened = (self._opened_at(str(place), path, own) for place in places)
        return next((one for one in opened if one is not None), None)

    def _opened_at(self, place: str, path: str, own: str | None) -> ElfFile | None:
        """The file at ``place``, if it is the one that was mapped as ``path`` and has the build ID ``own``."""
        try:
            handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
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
        other = elf.build_id()
        # Without build IDs only the time can tell: what was written after the death is not what died.
        same = own == other if own is not None else found.st_mtime <= self._taken_at
        if not same:
            return None
        self._mapped[path], self._places[path] = data, place
        return elf

    def _build_id(self, first: MapEntry) -> str | None:
        try:
            return ElfFile(self.brought(first.low, PAGE)).build_id()
        except InputError:
            return None


def _is_relocated(segment: Segment, offset: int, page: int) -> bool:
    if segment.type != PT_LOAD or not segment.flags & _WRITE:
        return False
    return segment.offset & -page <= offset < segment.offset + segment.file_size
