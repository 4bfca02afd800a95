"""Functions and addresses by an ELF file's own symbol tables: without a debugger's library, or in memory only."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right

from necropsy.errors import InputError
from necropsy.formats.elf import ElfFile

_ET_REL = 1
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_DT_STRTAB, _DT_SYMTAB = 5, 6
_FUNCTIONS = frozenset({2, 10})
"""STT_FUNC and STT_GNU_IFUNC."""
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MOST_SECTIONS = 4096
_MOST_SYMBOLS = 4_000_000
_LARGEST_TABLE = _MOST_SYMBOLS * _SYMBOL.size
_LONGEST_NAME = 1 << 14


class FunctionTable:
    """The functions of one file, by address; a symbol without a size covers nothing."""

    def __init__(self, elf: ElfFile) -> None:
        """Read the symbol tables; those that are broken or not there give nothing."""
        self._elf = elf
        self._starts, self._ends, self._names = array("Q"), array("Q"), array("Q")
        found: dict[int, tuple[int, int]] = {}
        bases = _section_addresses(elf)
        for symbols, size, strings in _tables(elf):
            try:
                raw = elf.bytes_at(symbols, min(size, _MOST_SYMBOLS * _SYMBOL.size) // _SYMBOL.size * _SYMBOL.size)
            except InputError:
                continue
            for name, info, _other, section, value, length in _SYMBOL.iter_unpack(raw):
                if length and section and info & 15 in _FUNCTIONS:
                    start = value if bases is None else value + bases.get(section, 0)
                    found.setdefault(start, (start + length, strings + name))
        for start in sorted(found):
            end, name = found[start]
            self._starts.append(start)
            self._ends.append(min(end, (1 << 64) - 1))
            self._names.append(min(name, (1 << 64) - 1))

    def at(self, address: int) -> tuple[str, int] | None:
        """Name and first address of the function that holds ``address``, an address of the file's own."""
        index = bisect_right(self._starts, address) - 1
        if index < 0 or address >= self._ends[index]:
            return None
        try:
            name = self._elf.text_at(self._names[index], _LONGEST_NAME)
        except InputError:
            return None
        return (name, self._starts[index]) if name else None


def address_of(elf: ElfFile, name: str) -> int | None:
    """The address of the symbol of this name, exported or not; None where it has none or the tables are broken."""
    try:
        exported = elf.symbol(name)
        return exported.address if exported is not None else _address_of(elf, name.encode())
    except (InputError, struct.error):
        return None


def _address_of(elf: ElfFile, name: bytes) -> int | None:
    sections = list(_SECTION.iter_unpack(elf.sections(_MOST_SECTIONS)))
    for _name, kind, _flags, _address, offset, size, link, *_rest in sections:
        if kind != _SHT_SYMTAB or link >= len(sections):
            continue
        strings, length = sections[link][4], sections[link][5]
        place = elf.find(b"\0" + name + b"\0", strings, length)
        if place < 0:
            continue
        wanted, end = struct.pack("<I", place + 1 - strings & 0xFFFFFFFF), offset + min(size, _LARGEST_TABLE)
        at = elf.find(wanted, offset, end - offset)
        while at >= 0:
            if (at - offset) % _SYMBOL.size == 0:
                value = _SYMBOL.unpack(elf.bytes_at(at, _SYMBOL.size))[4]
                return int(value) or None
            at = elf.find(wanted, at + 1, end - at - 1)
    return None


def _section_addresses(elf: ElfFile) -> dict[int, int] | None:
    """Where the sections of an object file were loaded, from which its symbols count. None for other files."""
    if elf.type != _ET_REL:
        return None
    try:
        return {index: row[3] for index, row in enumerate(_SECTION.iter_unpack(elf.sections(_MOST_SECTIONS)))}
    except InputError:
        return {}


def _tables(elf: ElfFile) -> list[tuple[int, int, int]]:
    """``(offset, size, offset of the strings)`` of each symbol table, the full one first."""
    found: list[tuple[int, int, int, int]] = []
    try:
        sections = list(_SECTION.iter_unpack(elf.sections(_MOST_SECTIONS)))
    except InputError:
        sections = []
    for _name, kind, _flags, _address, offset, size, link, *_rest in sections:
        if kind in {_SHT_SYMTAB, _SHT_DYNSYM} and link < len(sections):
            found.append((kind, offset, size, sections[link][4]))
    if not found:
        # Without section headers: the strings follow the symbols, as every linker writes it.
        symbols, strings = elf.offset_of(elf.tag(_DT_SYMTAB)), elf.offset_of(elf.tag(_DT_STRTAB))
        if symbols is not None and strings is not None and symbols < strings:
            found.append((_SHT_DYNSYM, symbols, strings - symbols, strings))
    return [(offset, size, strings) for _, offset, size, strings in sorted(found)]
