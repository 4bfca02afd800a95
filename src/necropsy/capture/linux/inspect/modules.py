"""The ELF files mapped into a process: where each is, its build ID, and where its bytes can still be read.

Files are read as needed, up to a limit: those that hold a frame come first, and a process with tens of thousands of
them still gets its report.
"""

from __future__ import annotations

import mmap
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

from necropsy.capture.linux.inspect import memory_map
from necropsy.capture.linux.inspect.memory_map import MapEntry, MemoryMap
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.process.memory import Memory
from necropsy.errors import InputError
from necropsy.formats.call_rules import CallRules
from necropsy.formats.eh_frame import CfiRow, UnwindTables
from necropsy.formats.elf import ElfFile
from necropsy.model import Address, Module

_HEADER_BYTES = 4096
_MAGIC = b"\x7fELF"
NOWHERE = "/dev/null/replaced"
"""A path that nothing can ever be opened under."""
MOST_READ = 4096
"""So many files of one process are looked into; the largest programs map some 1,500."""
LONGEST_READ_S = 1.0
"""What opening them may take in all: on a network's file system one may take milliseconds."""


class Budget:
    """How many files may be looked into, and for how long; counts those that were not."""

    def __init__(self, most: int = MOST_READ, seconds: float = LONGEST_READ_S) -> None:
        self._files, self._seconds = most, seconds
        self.read: set[int] = set()
        """The files that were looked into, by their lowest addresses."""
        self.left_out: set[int] = set()
        """Those that were asked for in vain."""

    def allows(self, low: int) -> bool:
        """Whether the file at ``low`` may be looked into: it may if it was before."""
        if low in self.read:
            return True
        if len(self.read) >= self._files or self._seconds <= 0:
            self.left_out.add(low)
            return False
        self.read.add(low)
        return True

    def spend(self, seconds: float) -> None:
        """So long it took."""
        self._seconds -= seconds


@dataclass
class MappedFile:
    """One ELF file in memory: ``[low, high)`` over all its mappings."""

    path: str
    low: int
    high: int
    pid: int
    maps: tuple[MapEntry, ...]
    memory: Memory | None = field(default=None, repr=False)
    replaced: bool = False
    """What lies under the path is not the file that was mapped, and that one cannot be had."""
    budget: Budget = field(default_factory=Budget, repr=False)
    place: str | None = None
    """Where it can be opened, if not under its path."""
    _elf: ElfFile | None = field(default=None, repr=False)
    _tables: UnwindTables | None = field(default=None, repr=False)
    _tried: bool = field(default=False, repr=False)

    @property
    def name(self) -> str:
        """The file's name without its folder."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def readable_path(self) -> str:
        """A path under which the very file that is mapped can be opened, even after it was deleted or replaced."""
        if self.replaced:
            return NOWHERE
        if not self.maps or not self.maps[0].deleted:
            return self.place or self.path
        first = self.maps[0]
        return f"/proc/{self.pid}/map_files/{first.low:x}-{first.high:x}"

    @property
    def elf(self) -> ElfFile | None:
        """The parsed file; None where it cannot be opened, is broken, or too many others were looked into before."""
        if not self._tried and self.budget.allows(self.low):
            self._tried = True
            self._elf = self._opened()
        return self._elf

    def _opened(self) -> ElfFile | None:
        """The parsed file. It holds a descriptor while in use, so only few of them are kept."""
        if self._tried and self._elf is not None:
            return self._elf
        started = time.monotonic()
        try:
            with open(self.readable_path, "rb") as file:  # noqa: PTH123 - mmap wants a descriptor
                return ElfFile(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        except (OSError, ValueError, InputError):
            return None
        finally:
            self.budget.spend(time.monotonic() - started)

    @property
    def build_id(self) -> str | None:
        """The GNU build ID in hex; None where it has none, or too many others were looked into before."""
        if not self.budget.allows(self.low):
            return None
        # From memory first: that is what runs, whatever lies under the path by now.
        for image in (self._image, self._opened):
            elf = image()
            found = elf.build_id() if elf is not None else None
            if found is not None:
                return found
        return None

    def _image(self) -> ElfFile | None:
        started = time.monotonic()
        try:
            return ElfFile(self.header)
        except InputError:
            return None
        finally:
            self.budget.spend(time.monotonic() - started)

    def may_define(self, symbol: str) -> bool:
        """It exports this symbol, or cannot be looked into."""
        elf = self._opened() if self.budget.allows(self.low) else None
        try:
            return elf is None or elf.symbol(symbol) is not None
        except InputError:
            return False

    @property
    def header(self) -> bytes:
        """The file's first bytes as they lie in memory, a page of them at the most."""
        size = min(_HEADER_BYTES, self.maps[0].high - self.low) if self.maps else 0
        return self.memory.some(self.low, size) if self.memory is not None else b""

    @property
    def bias(self) -> int | None:
        """What to add to the file's own addresses to get those in the process."""
        elf = self.elf
        return None if elf is None or not self.maps else elf.bias(self.maps[0].low, self.maps[0].offset)

    def symbol(self, name: str) -> int | None:
        """The address of a dynamic symbol in the process."""
        elf, bias = self.elf, self.bias
        if elf is None or bias is None:
            return None
        try:
            found = elf.symbol(name)
        except InputError:
            return None
        return None if found is None else found.address + bias

    def _unwind_tables(self) -> UnwindTables | None:
        if self._tables is None and self.elf is not None:
            self._tables = UnwindTables(self.elf)
        return self._tables

    def has_unwind_info(self, address: int) -> bool | None:
        """Whether the file says how to unwind at this address of the process."""
        tables, bias = self._unwind_tables(), self.bias
        return None if tables is None or bias is None else tables.covers(address - bias)

    def function(self, address: int) -> tuple[int, int] | None:
        """Where the function begins and ends that holds this address of the process, by the unwind tables."""
        tables, bias = self._unwind_tables(), self.bias
        found = None if tables is None or bias is None else tables.function(address - bias)
        return None if found is None or bias is None else (found[0] + bias, found[0] + bias + found[1])

    def row(self, address: int) -> CfiRow | None:
        """How to unwind at this address of the process; None where the file does not say it in a simple way."""
        tables, bias = self._unwind_tables(), self.bias
        return None if tables is None or bias is None else tables.row(address - bias)

    def call_rules(self, address: int) -> CallRules | None:
        """The same in full, whatever it takes."""
        tables, bias = self._unwind_tables(), self.bias
        return None if tables is None or bias is None else tables.rules(address - bias)

    def as_noun(self, version: str | None = None, package: str | None = None) -> Module:
        """The same as the model says it."""
        return Module(
            path=self.path,
            low=Address(self.low),
            high=Address(self.high),
            build_id=self.build_id,
            version=version,
            package=package,
        )


class MappedFiles:
    """All of them, in ascending order."""

    def __init__(self, files: tuple[MappedFile, ...], budget: Budget | None = None) -> None:
        self.files = tuple(sorted(files, key=lambda one: one.low))
        self.budget = budget or Budget()
        self._lows = [one.low for one in self.files]

    def at(self, address: int) -> MappedFile | None:
        """The file that holds ``address``."""
        index = bisect_right(self._lows, address) - 1
        return self.files[index] if index >= 0 and address < self.files[index].high else None

    def function(self, address: int) -> tuple[int, int] | None:
        """Where the function begins and ends that holds ``address``; None where no unwind table says it."""
        file = self.at(address)
        return None if file is None else file.function(address)

    def may_define(self, symbol: str) -> bool:
        """A file exports this symbol; or one that cannot be opened may."""
        return not self.files or any(file.may_define(symbol) for file in self.files)

    def left_out(self) -> str | None:
        """What was not looked into, and why; None where all were that anybody asked for."""
        count = len(self.budget.left_out)
        why = f"{count:,} of {len(self.files):,} files were not looked into, they are too many: no build IDs of those"
        return why if count else None

    def named(self, *starts: str) -> MappedFile | None:
        """The first file whose name begins with one of these."""
        return next((one for one in self.files if one.name.startswith(starts)), None)


def find(
    pid: int,
    maps: MemoryMap,
    memory: Memory,
    place_of: Callable[[MapEntry], str | None] | None = None,
    budget: Budget | None = None,
) -> MappedFiles:
    """The mapped ELF files of a process, without other files (data, fonts).

    ``place_of``: by a file's first mapping, where it can be opened, or None where it is gone or another file has its
    path by now (of a core only: a live process still holds its own files).
    """
    groups: list[list[MapEntry]] = []
    for one in maps:
        if not one.is_file:
            continue
        last = groups[-1] if groups else None
        same = last is not None and (last[0].path, last[0].inode) == (one.path, one.inode)
        # Offset 0 again: the same file mapped a second time (dlmopen, a copy by hand).
        if last is not None and same and one.offset > last[0].offset:
            last.append(one)
        else:
            groups.append([one])
    budget = budget or Budget()
    found = []
    for group in groups:
        first = group[0]
        if any(one.executable for one in group) and memory.some(first.low, len(_MAGIC)) == _MAGIC:
            path, high = first.path or "?", group[-1].high
            place = path if place_of is None else place_of(first)
            found.append(MappedFile(path, first.low, high, pid, tuple(group), memory, place is None, budget, place))
    return MappedFiles(tuple(found), budget)


def vdso_image(maps: MemoryMap, memory: Memory) -> bytes | None:
    """The kernel's own library as it is mapped; None where it cannot be read."""
    one = maps.named("[vdso]")
    return None if one is None else memory.exactly(one.low, one.high - one.low)


def address_of(pid: int, function: str, part: str) -> int | None:
    """Where a running process has a function of one of the files whose path contains ``part``; None if nowhere.

    Raises OSError where the process is gone, ValueError for a damaged file.
    """
    mapped = MemoryMap(one for one in memory_map.read(pid) if one.path is not None and part in one.path)
    if not len(mapped):
        return None
    with ProcessMemory(pid) as memory:
        files = find(pid, mapped, memory).files
        found = (one.symbol(function) for one in files if part.strip("/") in one.name)
        return next((at for at in found if at is not None), None)
