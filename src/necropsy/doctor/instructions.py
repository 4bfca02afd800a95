"""Instructions of a library that this processor does not have, by disassembly.

A library that asks the processor what it can do has such code legitimately, for other processors: of these nothing is
said. What counts is an instruction in a function that the unwind tables know, decoded from that function's start, so
that data between functions is not taken for code.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from necropsy.doctor import elf
from necropsy.errors import InputError
from necropsy.formats import demangle_itanium
from necropsy.formats.cpu_features import BY_GROUP, BY_MNEMONIC
from necropsy.formats.eh_frame import UnwindTables
from necropsy.formats.elf import PT_LOAD, ElfFile
from necropsy.formats.elf_dynamic import MACHINES, undefined
from necropsy.formats.elf_symbols import FunctionTable
from necropsy.model import CpuNeed, Library

_EXECUTABLE, _SHT_PROGBITS, _SHF_EXECINSTR = 1, 1, 4
_SECTION = struct.Struct("<IIQQQQIIQQ")
_MOST_CODE = 16 << 20
_CODE_OF_PACKAGES = 640 << 10
_SMALL = 160 << 10
"""Maximum bytes of a package library whose code is read."""
_MOST_SYMBOLS = 200_000
_MOST_FUNCTION = 1 << 20
_CPUID = b"\x0f\xa2"
_ASKS = frozenset({"cpuid", "xgetbv"})
_ASKS_BY_NAME = re.compile(
    r"cpuid|cpu_?(?:info|model|features?|supports|indicator)|TestCPUFeature|getauxval|x86_get_", re.IGNORECASE
)
_FOR_A_PROCESSOR = re.compile(r"avx|sse\d|fma|x86_64_v\d|haswell|skylake|zen\d|sapphire", re.IGNORECASE)
"""Files for specific processors, which some code chooses between."""
# Processors without these take them for other instructions, and go on.
_HARMLESS = frozenset({"tzcnt", "lzcnt"})


def of_packages(libraries: Sequence[Library], flags: frozenset[str]) -> tuple[Library, ...]:
    """Add the processor needs of one small library per distribution.

    A distribution's libraries are mostly compiled alike, and code is read at 3 MB/s. Distributions that have files for
    several processors or ask the processor are skipped.
    """
    left = _CODE_OF_PACKAGES
    found: dict[str, Library] = {}
    for name, own in _by_distribution(libraries).items():
        one = _small(own)
        if one is None or any(_FOR_A_PROCESSOR.search(os.path.basename(each.path)) for each in own):
            continue
        try:
            with elf.opened(one.path) as file:
                size = sum(size for _, _, size in _code(file))
                if size > left:
                    continue
                left -= size
                needs, _ = unsupported(file, [each.name for each in undefined(file, _MOST_SYMBOLS) or ()], flags)
        except (InputError, OSError):
            continue
        if needs and not any(_asks(each.path) for each in own):
            found[name] = msgspec.structs.replace(one, unsupported=needs)
    paths = {one.path: one for one in found.values()}
    return tuple(paths.get(one.path, one) for one in libraries)


def _by_distribution(libraries: Sequence[Library]) -> dict[str, list[Library]]:
    found: dict[str, list[Library]] = {}
    for one in libraries:
        # NVIDIA's packages hold no code of their own for the processor that matters here.
        if one.distribution is not None and one.machine == "x86_64" and not one.distribution.startswith("nvidia-"):
            found.setdefault(one.distribution, []).append(one)
    return found


def _small(libraries: Sequence[Library]) -> Library | None:
    """The largest small one, which has the most code."""
    sizes = [(os.path.getsize(one.path), one.path, one) for one in libraries if os.path.isfile(one.path)]
    return max((row for row in sizes if row[0] <= _SMALL), default=(0, "", None))[2]


def _asks(path: str) -> bool:
    """It may ask the processor for features: it has the bytes of ``cpuid``, or cannot be read."""
    try:
        with elf.opened(path) as file:
            if any(_ASKS_BY_NAME.search(one.name) for one in undefined(file, _MOST_SYMBOLS) or ()):
                return True
            return any(file.find(_CPUID, offset, size) >= 0 for _, offset, size in _code(file))
    except (InputError, OSError):
        return True


def unsupported(
    file: ElfFile, imported: Sequence[str], flags: frozenset[str] | None
) -> tuple[tuple[CpuNeed, ...] | None, str | None]:
    """Instructions that the processor lacks, one for each feature; None and a reason if unknown.

    ``imported``: names of required symbols; ``flags``: the processor's features, None if unknown.
    """
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
    """Address, offset and size of executable sections, or of segments if sections were stripped."""
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
    """Two disassemblers; the slower ``exact`` one finds an instruction's needs, once per kind."""

    def __init__(self, fast: Any, exact: Any, flags: frozenset[str]) -> None:
        self._fast, self._exact = fast, exact
        self._flags = flags
        self._lacks: dict[tuple[str, int, bool, bool], tuple[str, str] | None] = {}
        self.asks = False

    def suspects(self, start: int, code: bytes) -> Iterator[int]:
        for address, size, name, operands in self._fast.disasm_lite(code, start):
            if name in _ASKS:
                self.asks = True
            elif self.lacks(name, operands, code[address - start : address - start + size]) is not None:
                yield address

    def lacks(self, name: str, operands: str, code: bytes) -> tuple[str, str] | None:
        """The missing feature and its flag."""
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
        """Missing instructions in one function: address, feature, text."""
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
        where = demangle_itanium.readable(named[0]) if named is not None else f"{address:#x}"
        yield CpuNeed(feature=name, flag=flag, text=words, where=where, functions=len(functions))
