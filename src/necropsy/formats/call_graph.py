"""Who calls whom in an ELF library for x86-64: calls and tail calls whose target stands in the machine code.

Stubs of the procedure linkage table are followed to the function that they lead to, in the same file or in another one.
Calls through a register or a table are counted, for their target is not known before the program runs.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from functools import cached_property

from necropsy.errors import InputError
from necropsy.formats.elf import ElfFile
from necropsy.formats.frame_sizes import FrameSizes

_DT_PLTRELSZ, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_JMPREL = 2, 6, 7, 8, 23
_ABSOLUTE, _GLOB_DAT, _JUMP_SLOT, _RELATIVE = 1, 6, 7, 8
"""R_X86_64_64 and its neighbours (System V x86-64 psABI, table 4.9)."""
_RELOCATION = struct.Struct("<QQq")
_SYMBOL = struct.Struct("<IBBHQQ")
_LARGEST_TABLE = 1 << 28
_LARGEST_FUNCTION = 1 << 20
# endbr64 and bnd are there or not: .plt, .plt.sec and .plt.got of the linkers differ.
_STUB = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\xf2?\xff\x25(.{4})", re.DOTALL)
_RIP_RELATIVE = re.compile(r"qword ptr \[rip ([+-]) (0x[0-9a-f]+|\d+)\]")


@dataclass(frozen=True)
class Calls:
    """What one function calls: indices into its ``FrameSizes``, and names of functions of other libraries."""

    called: tuple[int, ...] = ()
    jumped: tuple[int, ...] = ()
    """Tail calls, and parts of the same function that the compiler has put elsewhere: the frame is not kept."""
    outside: tuple[str, ...] = ()
    indirect: int = 0
    taken: tuple[int, ...] = ()
    """Functions whose address it takes: callbacks, as a rule."""
    is_dynamic: bool = False
    """It takes memory from the stack whose size is known only when it runs (``alloca``, variable-length arrays)."""


class CallGraph:
    """The calls of one file; each function is disassembled when it is asked for."""

    def __init__(self, elf: ElfFile, functions: FrameSizes) -> None:
        """Look at ``elf``, whose functions are ``functions``.

        Raises:
            ImportError: capstone is not installed.

        """
        import capstone

        self._elf, self._functions = elf, functions
        self._machine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self._stubs: dict[int, int | str | None] = {}

    def calls(self, index: int) -> Calls:
        """What the function of this index calls."""
        start, size = self._functions.extent(index)
        offset = self._elf.offset_of(start)
        if offset is None or size > _LARGEST_FUNCTION:
            return Calls(indirect=1)
        try:
            code = self._elf.bytes_at(offset, size)
        except InputError:
            return Calls(indirect=1)
        called: dict[int, None] = {}
        jumped: dict[int, None] = {}
        outside: dict[str, None] = {}
        taken: dict[int, None] = {}
        indirect, is_dynamic = 0, False
        for address, length, name, operands in self._machine.disasm_lite(code, start):
            if name == "lea" and operands.endswith("]"):
                place = _relative(operands.partition(", ")[2], address + length)
                target = self._functions.beginning_at(place) if place is not None else None
                if target is not None:
                    taken[target] = None
                continue
            if name == "sub" and operands.startswith("rsp, r"):
                is_dynamic = True
                continue
            is_call = name in {"call", "bnd call", "notrack call"}
            if not is_call and not name.startswith(("j", "bnd j", "notrack j")):
                continue
            found = self._target(operands, address + length)
            if found is None:
                # A jump through a register is a switch's as a rule.
                indirect += is_call
            elif isinstance(found, str):
                outside[found] = None
            elif is_call:
                called[found] = None
            elif not start <= self._functions.starts[found] < start + size:
                jumped[found] = None
        return Calls(tuple(called), tuple(jumped), tuple(outside), indirect, tuple(taken), is_dynamic)

    def _target(self, operands: str, after: int) -> int | str | None:
        """A function of this file, one of another library by its name, or None for what is not known."""
        if operands.startswith("0x"):
            address = int(operands, 16)
            index = self._functions.beginning_at(address)
            return index if index is not None else self._through_stub(address)
        slot = _relative(operands, after)
        return self._in_slot(slot) if slot is not None else None

    def _through_stub(self, address: int) -> int | str | None:
        if address not in self._stubs:
            offset = self._elf.offset_of(address)
            found: int | str | None = None
            if offset is not None:
                try:
                    match = _STUB.match(self._elf.bytes_at(offset, 16))
                except InputError:
                    match = None
                if match is not None:
                    found = self._in_slot(address + match.end() + struct.unpack("<i", match[1])[0])
            self._stubs[address] = found
        return self._stubs[address]

    def _in_slot(self, slot: int) -> int | str | None:
        symbol = self._slots.get(slot)
        if symbol is None:
            return None
        name, address = symbol
        index = self._functions.beginning_at(address) if address else None
        return index if index is not None else name

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

    def virtual(self) -> list[int]:
        """Functions whose address stands in the file's data: virtual ones, and tables of functions."""
        found: dict[int, None] = {}
        for _, kind, _, addend in self._relocations():
            index = self._functions.beginning_at(addend) if kind == _RELATIVE and addend > 0 else None
            if index is not None:
                found[index] = None
        for _, address in self._slots.values():
            index = self._functions.beginning_at(address) if address else None
            if index is not None:
                found[index] = None
        return list(found)

    def _relocations(self) -> list[tuple[int, int, int, int]]:
        """Address, kind, number of the symbol, and addend."""
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


def _relative(operand: str, after: int) -> int | None:
    """The address that an operand relative to the next instruction names."""
    match = _RIP_RELATIVE.fullmatch(operand) if "rip" in operand else None
    if match is None:
        match = _RIP_RELATIVE.fullmatch(f"qword ptr {operand}") if operand.startswith("[rip") else None
    if match is None:
        return None
    distance = int(match[2], 0)
    return after + distance if match[1] == "+" else after - distance
