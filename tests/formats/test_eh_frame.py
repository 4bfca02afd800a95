"""Unwind tables: compared with what readelf makes of the same files, and with lies."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import needs
from necropsy.errors import InputError
from necropsy.formats.eh_frame import CfiRow, UnwindTables
from necropsy.formats.elf import ElfFile
from necropsy.formats.processors import X86_64
from writers import elf

NAMES = (*X86_64.numbered[:-1], "ra")
NUMBERS = {name: number for number, name in enumerate(NAMES)}
"""Of the x86-64 psABI."""
CFA = re.compile(r"(r\w+)\+(\d+)")


@dataclass(frozen=True)
class Said:
    """One line of readelf's table: from which address on, the CFA's text, each register's."""

    address: int
    cfa: str
    registers: Mapping[str, str]
    is_signal: bool


def read_by_readelf(path: Path) -> Iterator[tuple[int, int, list[Said]]]:
    """First address, end and lines of each function."""
    command = ["readelf", "--debug-dump=frames-interp", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    signals: set[str] = set()
    for block in re.split(r"\n\n+", text):
        lines = block.splitlines()
        common = re.match(r"(\w+) \w+ \w+ CIE \"(\w*)\"", lines[0]) if lines else None
        if common is not None and "S" in common[2]:
            signals.add(common[1])
        entry = re.match(r"\w+ \w+ \w+ FDE cie=(\w+) pc=(\w+)\.\.(\w+)", lines[0]) if lines else None
        if entry is None or len(lines) < 3:  # readelf leaves out the one row of a function that is its CIE's
            continue
        names = lines[1].split()[2:]
        rows = [re.sub(r" \(\w+\)", "", line).split() for line in lines[2:]]
        said = [
            Said(int(row[0], 16), row[1], dict(zip(names, row[2:], strict=True)), entry[1] in signals) for row in rows
        ]
        yield int(entry[2], 16), int(entry[3], 16), said


def is_simple(said: Said) -> bool:
    """Whether every register that matters is where it was, or lies at a number behind the CFA."""
    kept = [
        said.registers.get(name, "u")
        for name, number in NUMBERS.items()
        if number in (*X86_64.kept_by_calls, X86_64.return_column)
    ]
    if said.is_signal or said.registers.get("rsp", "u") not in "us":
        return False
    return CFA.fullmatch(said.cfa) is not None and all(re.match(r"u$|s$|c[+-]\d", one) for one in kept)


def agrees(row: CfiRow | None, said: Said) -> bool:
    if not is_simple(said):
        return row is None
    cfa = CFA.fullmatch(said.cfa)
    if row is None or cfa is None:
        return False
    if (row.cfa_register, row.cfa_offset) != (NUMBERS[cfa[1]], int(cfa[2])):
        return False
    if row.outermost:
        return said.registers["ra"] == "u"
    wanted = {
        NUMBERS[name]: int(where[1:])
        for name, where in said.registers.items()
        if NUMBERS.get(name) in (*X86_64.kept_by_calls, X86_64.return_column) and where[0] == "c"
    }
    return dict(row.saved) == wanted


def libraries() -> list[Path]:
    """Files of different compilers and linkers: the C library, the interpreter, an extension module of its own."""
    loaded = {Path(line.split()[-1]) for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
    wanted = re.compile(r"libc\.so|libffi|libz|_ctypes|_core\.cpython")
    import ctypes  # noqa: F401 - maps libffi

    return sorted(path for path in loaded if wanted.search(path.name)) or [Path(sys.executable)]


@needs.command("readelf")
@pytest.mark.parametrize("path", libraries(), ids=lambda path: path.name)
def test_every_row_is_as_readelf_reads_it(path: Path) -> None:
    tables = UnwindTables(ElfFile(path.read_bytes()))
    wrong, seen, simple = [], 0, 0
    for first, end, lines in read_by_readelf(path):
        if first == end:
            continue
        assert tables.function(first) == (first, end - first)
        for index, said in enumerate(lines):
            stop = lines[index + 1].address if index + 1 < len(lines) else end
            for address in {said.address, stop - 1} if stop > said.address else set():
                seen += 1
                simple += is_simple(said)
                if not agrees(tables.row(address), said):
                    wrong.append((hex(address), said, tables.row(address)))
    assert wrong == []
    assert seen > 20
    assert simple > seen / 2


def library(code: bytes) -> UnwindTables:
    """A function at 0x1000 of 64 bytes with these call frame instructions."""
    return UnwindTables(ElfFile(elf.library(covered=[(0x1000, 64)], instructions=code)))


PUSH_RBP = bytes((0x41, 0x0E, 16, 0x86, 2))
"""After one byte: the CFA is rsp+16, rbp lies at CFA-16."""


def test_a_prologue_row_by_row() -> None:
    tables = library(PUSH_RBP + bytes((0x43, 0x0D, 6)))
    rows = [tables.row(0x1000 + offset) for offset in (0, 1, 4, 63)]
    assert [(row.cfa_register, row.cfa_offset) for row in rows if row] == [(7, 8), (7, 16), (6, 16), (6, 16)]
    assert [dict(row.saved) for row in rows if row] == [{16: -8}, *[{16: -8, 6: -16}] * 3]
    assert [tables.row(at) for at in (0xFFF, 0x1040)] == [None, None]


def test_a_state_that_is_remembered_comes_back() -> None:
    tables = library(PUSH_RBP + bytes((0x0A, 0x42, 0x0E, 8, 0xC6, 0x41, 0x0B)))
    rows = [tables.row(0x1000 + offset) for offset in (2, 3, 4)]
    assert [row.cfa_offset for row in rows if row] == [16, 8, 16]
    assert [6 in dict(row.saved) for row in rows if row] == [True, False, True]


def test_who_has_no_return_address_was_called_by_nobody() -> None:
    row = library(bytes((0x07, 16))).row(0x1000)
    assert row is not None
    assert row.outermost


@pytest.mark.parametrize(
    "code",
    [
        bytes((0x0F, 1, 0x9C)),  # the CFA by an expression
        bytes((0x10, 6, 2, 0x76, 0)),  # rbp by an expression
        bytes((0x09, 16, 3)),  # the return address is in a register
        bytes((0x3F,)),  # no such instruction
        bytes((0x0B,)),  # nothing was remembered
        bytes((0x0E,) + (0x80,) * 20),  # a number without an end
        bytes((0x0A,)) * 100,  # remembered without end
    ],
)
def test_what_is_not_simple_is_left_to_others(code: bytes) -> None:
    assert library(code).row(0x1000) is None
    assert library(code).covers(0x1000)


@given(st.binary(max_size=60))
def test_any_instructions_are_read_or_refused(code: bytes) -> None:
    tables = library(code)
    for address in (0x1000, 0x1008, 0x103F):
        row = tables.row(address)
        assert row is None or row.outermost or X86_64.return_column in dict(row.saved)


WHOLE = elf.library(covered=[(0x1000, 16), (0x2000, 64)], instructions=PUSH_RBP)


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_lying_tables_cost_nothing_but_their_rows(changes: list[tuple[int, int]]) -> None:
    data = bytearray(WHOLE)
    for at, value in changes:
        data[at] = value
    try:
        tables = UnwindTables(ElfFile(bytes(data)))
    except InputError:
        return
    for address in (0, 0x1000, 0x100F, 0x2020, 1 << 63):
        tables.row(address)
        tables.covers(address)
        tables.function(address)
