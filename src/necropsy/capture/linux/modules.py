"""The ELF files mapped into a process: where each lies, its build ID, and where its bytes can still be read."""

from __future__ import annotations

import mmap
import os
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.capture.linux.maps import Map, Maps
from necropsy.capture.linux.memory import Memory
from necropsy.errors import InputError
from necropsy.formats.elf import ElfFile
from necropsy.model import Address, Module

_HEADER_BYTES = 4096
NOWHERE = "/dev/null/replaced"
"""A path that nothing can ever be opened under."""


@dataclass
class MappedFile:
    """One ELF file in memory: ``[low, high)`` over all its mappings."""

    path: str
    low: int
    high: int
    pid: int
    maps: tuple[Map, ...]
    build_id: str | None = None
    replaced: bool = False
    """What lies under the path is not the file that was mapped, and that one cannot be had."""
    _elf: ElfFile | None = field(default=None, repr=False)
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
            return self.path
        first = self.maps[0]
        return f"/proc/{self.pid}/map_files/{first.low:x}-{first.high:x}"

    @property
    def elf(self) -> ElfFile | None:
        """The parsed file; None where it cannot be opened or is broken."""
        if not self._tried:
            self._tried = True
            try:
                with open(self.readable_path, "rb") as file:  # noqa: PTH123 - mmap wants a descriptor
                    self._elf = ElfFile(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
            except (OSError, ValueError, InputError):
                self._elf = None
        return self._elf

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

    def has_unwind_info(self, address: int) -> bool | None:
        """Whether the file says how to unwind at this address of the process."""
        elf, bias = self.elf, self.bias
        return None if elf is None or bias is None else elf.has_unwind_info(address - bias)

    def as_noun(self, version: str | None = None) -> Module:
        """The same as the model says it."""
        return Module(
            path=self.path, low=Address(self.low), high=Address(self.high), build_id=self.build_id, version=version
        )


class MappedFiles:
    """All of them, in ascending order."""

    def __init__(self, files: tuple[MappedFile, ...]) -> None:
        self.files = tuple(sorted(files, key=lambda one: one.low))
        self._lows = [one.low for one in self.files]

    def at(self, address: int) -> MappedFile | None:
        """The file that holds ``address``."""
        index = bisect_right(self._lows, address) - 1
        return self.files[index] if index >= 0 and address < self.files[index].high else None

    def may_define(self, symbol: str) -> bool:
        """A file exports this symbol; or one that cannot be opened may."""
        return not self.files or any(file.elf is None or file.symbol(symbol) is not None for file in self.files)

    def named(self, *starts: str) -> MappedFile | None:
        """The first file whose name begins with one of these."""
        return next((one for one in self.files if one.name.startswith(starts)), None)


def find(pid: int, maps: Maps, memory: Memory, is_replaced: Callable[[Map], bool] = lambda _: False) -> MappedFiles:
    """The mapped ELF files of a process; files that are no ELF (data, fonts) are left out.

    ``is_replaced`` says of a file's first mapping whether something else lies under its path by now (of a core only: a
    live process still holds its own files).
    """
    groups: list[list[Map]] = []
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
    found = [
        file
        for group in groups
        if any(one.executable for one in group) and (file := _mapped(pid, group, memory, is_replaced))
    ]
    return MappedFiles(tuple(found))


def _mapped(pid: int, group: list[Map], memory: Memory, is_replaced: Callable[[Map], bool]) -> MappedFile | None:
    first = group[0]
    data = memory.some(first.low, min(_HEADER_BYTES, first.high - first.low))
    if not data.startswith(b"\x7fELF"):
        return None
    file = MappedFile(first.path or "?", first.low, group[-1].high, pid, tuple(group), replaced=is_replaced(first))
    try:
        # From memory: that is what runs, whatever lies under the path by now.
        file.build_id = ElfFile(data).build_id()
    except InputError:
        file.build_id = None
    if file.build_id is None and file.elf is not None:
        file.build_id = file.elf.build_id()
    return file


def vdso_image(maps: Maps, memory: Memory) -> tuple[int, int, str, Callable[[], None]] | None:
    """The kernel's own library as a file that others can open: ``(low, high, path, close)``."""
    one = maps.named("[vdso]")
    data = None if one is None else memory.exactly(one.low, one.high - one.low)
    if one is None or data is None:
        return None
    fd = os.memfd_create("vdso")
    os.write(fd, data)
    path = Path(f"/proc/self/fd/{fd}")
    return one.low, one.high, str(path), lambda: os.close(fd)
