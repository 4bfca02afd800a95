"""Instructions of a library that this processor does not have, by disassembly.

A library that asks the processor what it can do has such code legitimately, for other processors: of these nothing is
said. What counts is an instruction in a function that the unwind tables know, decoded from that function's start, so
that data between functions is not taken for code.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from necropsy.errors import InputError
from necropsy.formats import mangled
from necropsy.formats.cpu_features import BY_GROUP, BY_MNEMONIC, processor_flags
from necropsy.formats.eh_frame import UnwindTables
from necropsy.formats.elf import PT_LOAD, ElfFile
from necropsy.formats.elf_dynamic import MACHINES
from necropsy.formats.elf_symbols import FunctionTable
from necropsy.model import CpuNeed

_EXECUTABLE, _SHT_PROGBITS, _SHF_EXECINSTR = 1, 1, 4
_SECTION = struct.Struct("<IIQQQQIIQQ")
_MOST_CODE = 16 << 20
_MOST_FUNCTION = 1 << 20
_ASKS = frozenset({"cpuid", "xgetbv"})
_ASKS_BY_NAME = re.compile(
    r"cpuid|cpu_?(?:info|model|features?|supports|indicator)|TestCPUFeature|getauxval|x86_get_", re.IGNORECASE
)
# Processors without these take them for other instructions, and go on.
_HARMLESS = frozenset({"tzcnt", "lzcnt"})


def unsupported(file: ElfFile, imported: Sequence[str]) -> tuple[tuple[CpuNeed, ...] | None, str | None]:
    """Instructions that this processor lacks, one for each feature; None with the reason where that cannot be told.

    ``imported``: the names of the symbols that it needs.
    """
    flags = processor_flags()
    if MACHINES.get(file.machine) != "x86_64" or flags is None:
        return None, "instructions are only compared with x86-64 processors, on Linux"
    asking = next((name for name in imported if _ASKS_BY_NAME.search(name)), None)
    if asking is not None:
        return None, f"it asks the processor what it can do ({asking}), so it may have code for other ones"
    try:
        import capstone
    except ImportError:
        return None, "capstone is not installed"
    code = [(address, file.bytes_at(offset, size)) for address, offset, size in _code(file)]
    if sum(len(each) for _, each in code) > _MOST_CODE:
        return None, f"it has more than {_MOST_CODE >> 20} MiB of code"
    fast, exact = (capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64) for _ in range(2))
    fast.skipdata, exact.detail = True, True
    scan = _Scan(fast, exact, flags)
    suspects = [place for start, each in code for place in scan.suspects(start, each)]
    if scan.asks:
        return None, "it asks the processor what it can do (cpuid), so it may have code for other ones"
    return tuple(_needs(file, code, suspects, scan)), None


def _code(file: ElfFile) -> Iterator[tuple[int, int, int]]:
    """Address, offset and size of what is executed: its sections, or where these were stripped, its segments."""
    try:
        rows = list(_SECTION.iter_unpack(file.sections(4096)))
    except InputError:
        rows = []
    found = [
        (address, offset, size)
        for _, kind, flags, address, offset, size, *_ in rows
        if kind == _SHT_PROGBITS and flags & _SHF_EXECINSTR
    ]
    yield from found or (
        (one.address, one.offset, one.file_size)
        for one in file.segments
        if one.type == PT_LOAD and one.flags & _EXECUTABLE
    )


class _Scan:
    """Two disassemblers: ``exact`` says what an instruction needs, and is asked once for each kind of them."""

    def __init__(self, fast: Any, exact: Any, flags: frozenset[str]) -> None:
        self._fast, self._exact = fast, exact
        self._flags = flags
        self._lacks: dict[tuple[str, int, bool, bool], tuple[str, str] | None] = {}
        self.asks = False

    def suspects(self, start: int, code: bytes) -> Iterator[int]:
        """Addresses of instructions that the processor lacks."""
        for address, size, name, operands in self._fast.disasm_lite(code, start):
            if name in _ASKS:
                self.asks = True
            elif self.lacks(name, operands, code[address - start : address - start + size]) is not None:
                yield address

    def lacks(self, name: str, operands: str, code: bytes) -> tuple[str, str] | None:
        """The feature that this instruction needs and the processor lacks, and its flag."""
        name = name.rpartition(" ")[2]
        key = (name, code[0], "ymm" in operands, "zmm" in operands)
        if key not in self._lacks:
            self._lacks[key] = self._look_up(name, code)
        return self._lacks[key]

    def _look_up(self, name: str, code: bytes) -> tuple[str, str] | None:
        if name in _HARMLESS:
            return None
        if name in BY_MNEMONIC:
            needed = [BY_MNEMONIC[name]]
        else:
            # None: bytes that are no instruction.
            one = next(self._exact.disasm(code, 0, 1), None)
            groups = [one.group_name(each) for each in one.groups] if one is not None else []
            needed = [BY_GROUP[each] for each in groups if each in BY_GROUP]
        return next((feature for feature in needed if feature[1] not in self._flags), None)

    def within(self, start: int, code: bytes) -> Iterator[tuple[int, tuple[str, str], str]]:
        """Such instructions of one function: address, feature, text."""
        for address, size, name, operands in self._fast.disasm_lite(code, start):
            feature = self.lacks(name, operands, code[address - start : address - start + size])
            if feature is not None:
                yield address, feature, f"{name} {operands}".strip()


def _needs(file: ElfFile, code: Sequence[tuple[int, bytes]], suspects: Sequence[int], scan: _Scan) -> Iterator[CpuNeed]:
    tables, names = UnwindTables(file), FunctionTable(file) if suspects else None
    found: dict[tuple[str, str], tuple[int, str, set[int]]] = {}
    end = 0
    for place in suspects:
        if place < end:
            continue
        function = tables.function(place)
        if function is None or function[1] > _MOST_FUNCTION:
            continue
        start, end = function[0], function[0] + function[1]
        text = next((each[start - base : end - base] for base, each in code if base <= start < base + len(each)), b"")
        for address, feature, words in scan.within(start, text):
            found.setdefault(feature, (address, words, set()))[2].add(start)
    for (name, flag), (address, words, functions) in sorted(found.items()):
        named = names.at(address) if names is not None else None
        where = mangled.readable(named[0]) if named is not None else f"{address:#x}"
        yield CpuNeed(feature=name, flag=flag, text=words, where=where, functions=len(functions))
