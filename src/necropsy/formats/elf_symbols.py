"""Functions and addresses by an ELF file's own symbol tables: without a debugger's library, or in memory only."""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

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
_VALUE_WORD, _VALUE_BYTES = 1, 8
"""The value is the second of a symbol's three words."""
_HIGHEST = (1 << 64) - 1
_LARGEST_FUNCTION = 1 << 20
_LARGEST_EXTENT = 1 << 24
_LONG_SEARCH, _SORTED_AFTER = 5, 300
"""In a million symbols a search by a start takes some 3 ms, one for the start 5 times that, to sort them a second."""
_EXAMINED = 100_000
"""Symbols looked at one by one, in all searches so far: each such number of them counts as another search."""


_Function = tuple[int, int, int]
"""Where it begins and ends, and the place of its name in the file."""


class _Symbols:
    """One symbol table: where each symbol begins, in one piece, in which a search takes a few milliseconds."""

    def __init__(self, elf: ElfFile, offset: int, size: int, strings: int) -> None:
        """Raises InputError where the file ends before the table does."""
        self._elf, self._offset, self._strings = elf, offset, strings
        words = array("Q", elf.bytes_at(offset, min(size, _LARGEST_TABLE) // _SYMBOL.size * _SYMBOL.size))
        self._octets = words[_VALUE_WORD :: _SYMBOL.size // words.itemsize].tobytes()
        self._values = memoryview(self._octets).cast("Q")
        self.examined = 0
        """Symbols that were looked at one by one."""

    def beginning_at(self, start: int) -> list[_Function]:
        """The functions with this value."""
        return self._functions(self._with(struct.pack("<Q", start), 0))

    def overlapping(self, low: int, high: int) -> list[_Function]:
        """Those of which a part lies in ``[low, high)``."""
        first = max(low - _LARGEST_FUNCTION, 0)
        # All values between two multiples of 16 MiB have the same five upper bytes.
        blocks = (block.to_bytes(5, "little") for block in range(first >> 24, (high - 1 >> 24) + 1))
        numbers = (number for block in blocks for number in self._with(block, 3))
        return [one for one in self._functions(n for n in numbers if first <= self._values[n] < high) if one[1] > low]

    def _with(self, octets: bytes, at: int) -> Iterator[int]:
        """The numbers of the symbols that have these bytes at this place of their value."""
        found = self._octets.find(octets)
        while found >= 0:
            if found % _VALUE_BYTES == at:
                yield found // _VALUE_BYTES
            found = self._octets.find(octets, found + 1)

    def _functions(self, numbers: Iterable[int]) -> list[_Function]:
        found = []
        for number in numbers:
            self.examined += 1
            row = self._elf.bytes_at(self._offset + number * _SYMBOL.size, _SYMBOL.size)
            name, info, _other, section, value, length = _SYMBOL.unpack(row)
            if length and section and info & 15 in _FUNCTIONS:
                found.append((value, value + length, self._strings + name))
        return found


class FunctionTable:
    """The functions of one file, by address; a symbol without a size covers nothing.

    To sort them takes a second for a library of a million symbols. The first questions are answered by searches.
    """

    def __init__(self, elf: ElfFile) -> None:
        """Find the symbol tables; those that are broken or not there give nothing."""
        self._elf = elf
        self._bases = _section_addresses(elf)
        self._tables = _tables(elf)
        self._symbols: list[_Symbols] | None = None
        self._within: dict[tuple[int, int], list[_Function]] = {}
        self._spent = 0
        self._starts: array[int] | None = None
        self._ends, self._names = array("Q"), array("Q")

    def at(self, address: int, extent: tuple[int, int] | None = None) -> tuple[str, int] | None:
        """Name and first address of the function that holds ``address``, an address of the file's own.

        ``extent``: where this function begins and ends, as far as the caller knows by other tables: it is found sooner.
        """
        try:
            found = self._found(address, extent)
            name = self._elf.text_at(found[1], _LONGEST_NAME) if found is not None else None
        except InputError:
            return None
        return (name, found[0]) if found is not None and name else None

    def _found(self, address: int, extent: tuple[int, int] | None) -> tuple[int, int] | None:
        if not 0 <= address < _HIGHEST:
            return None
        if self._starts is None and self._bases is None and self._spent < _SORTED_AFTER:
            functions = self._searched(address, extent)
            # The first of those that begin at the same place, as in the sorted table.
            holding = [(start, name) for start, end, name in functions if start <= address < end]
            return max(holding, key=lambda one: one[0], default=None)
        starts = self._sorted() if self._starts is None else self._starts
        index = bisect_right(starts, address) - 1
        return (starts[index], self._names[index]) if index >= 0 and address < self._ends[index] else None

    def _searched(self, address: int, extent: tuple[int, int] | None) -> list[_Function]:
        """Functions among which those are that hold ``address``."""
        low, high = extent or (0, 0)
        if extent is None or not 0 <= low < high <= min(low + _LARGEST_EXTENT, _HIGHEST):
            return list(self._each(lambda one: one.overlapping(address, address + 1), _LONG_SEARCH))
        found = self._each(lambda one: one.beginning_at(low), 1)
        first = next((one for one in found if one[0] <= address < one[1]), None)
        if first is not None:
            return [first]
        if extent not in self._within:  # a table of jumps to other libraries has many places, and no symbol
            self._within[extent] = list(self._each(lambda one: one.overlapping(low, high), _LONG_SEARCH))
        return self._within[extent]

    def _each(self, search: Callable[[_Symbols], list[_Function]], cost: int) -> Iterator[_Function]:
        if self._symbols is None:
            self._symbols = []
            for table in self._tables:
                with suppress(InputError):
                    self._symbols.append(_Symbols(self._elf, *table))
        for one in self._symbols:
            found = search(one)
            self._spent += cost + one.examined // _EXAMINED
            yield from found

    def _sorted(self) -> array[int]:
        found: dict[int, tuple[int, int]] = {}
        for symbols, size, strings in self._tables:
            try:
                raw = self._elf.bytes_at(symbols, min(size, _LARGEST_TABLE) // _SYMBOL.size * _SYMBOL.size)
            except InputError:
                continue
            for name, info, _other, section, value, length in _SYMBOL.iter_unpack(raw):
                if length and section and info & 15 in _FUNCTIONS:
                    start = value if self._bases is None else value + self._bases.get(section, 0)
                    found.setdefault(start, (start + length, strings + name))
        self._starts, self._symbols, self._within = array("Q"), None, {}
        for start in sorted(found):
            end, name = found[start]
            self._starts.append(start)
            self._ends.append(min(end, _HIGHEST))
            self._names.append(min(name, _HIGHEST))
        return self._starts


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
