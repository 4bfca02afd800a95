"""The machine code of an ELF library, and where its calls to other functions go through."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property

from necropsy.errors import InputError
from necropsy.formats.elf import ElfFile

_DT_PLTRELSZ, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_JMPREL = 2, 6, 7, 8, 23
_ABSOLUTE, _GLOB_DAT, _JUMP_SLOT, _RELATIVE = 1, 6, 7, 8
"""R_X86_64_64 and its neighbours (System V x86-64 psABI, table 4.9)."""
_RELOCATION = struct.Struct("<QQq")
_SYMBOL = struct.Struct("<IBBHQQ")
_LARGEST_TABLE = 1 << 28


class ElfCode:
    """One file; see ``call_graph.MachineCode``."""

    has_leaves = False

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf

    def some(self, address: int, size: int) -> bytes:
        """The bytes at ``address``, as the file has them."""
        offset = self._elf.offset_of(address)
        try:
            return self._elf.bytes_at(offset, size) if offset is not None else b""
        except InputError:
            return b""

    def slot(self, address: int) -> tuple[str, int] | None:
        """The symbol whose address an entry of the global offset table gets."""
        return self._slots.get(address)

    def addresses(self) -> Iterator[int]:
        """What relative relocations and those for the file's own symbols write."""
        for _, kind, _, addend in self._relocations():
            if kind == _RELATIVE and addend > 0:
                yield addend
        yield from (address for _, address in self._slots.values() if address)

    @cached_property
    def _slots(self) -> dict[int, tuple[str, int]]:
        """By the address of an entry of the global offset table: the symbol's name, and its address or 0."""
        found: dict[int, tuple[str, int]] = {}
        symbols = self._elf.offset_of(self._elf.tag(_DT_SYMTAB))
        if symbols is None:
            return found
        for place, kind, number, _ in self._relocations():
            if kind in {_JUMP_SLOT, _GLOB_DAT, _ABSOLUTE}:
                try:
                    name, _, _, section, value, _ = _SYMBOL.unpack(
                        self._elf.bytes_at(symbols + number * _SYMBOL.size, _SYMBOL.size)
                    )
                except InputError:
                    continue
                text = self._elf.string(name)
                if text:
                    found[place] = (text, value if section else 0)
        return found

    def _relocations(self) -> list[tuple[int, int, int, int]]:
        """Address, kind, symbol number and addend."""
        rows: list[tuple[int, int, int, int]] = []
        for at, length in ((_DT_JMPREL, _DT_PLTRELSZ), (_DT_RELA, _DT_RELASZ)):
            offset, size = self._elf.offset_of(self._elf.tag(at)), self._elf.tag(length)
            if offset is None or not 0 < size <= _LARGEST_TABLE:
                continue
            try:
                raw = self._elf.bytes_at(offset, size // _RELOCATION.size * _RELOCATION.size)
            except InputError:
                continue
            rows += [
                (place, info & 0xFFFFFFFF, info >> 32, addend) for place, info, addend in _RELOCATION.iter_unpack(raw)
            ]
        return rows
