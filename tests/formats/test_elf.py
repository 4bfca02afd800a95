from __future__ import annotations

import contextlib
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import needs
from necropsy.errors import InputError
from necropsy.formats.eh_frame import UnwindTables
from necropsy.formats.elf import ElfFile
from writers import elf

NAMES = st.lists(st.text("abcdefghijklmnopqrstuvwxyz_0123456789", min_size=1, max_size=30), unique=True, max_size=30)


@given(NAMES)
def test_every_symbol_is_found_and_no_other(names: list[str]) -> None:
    file = ElfFile(elf.library([(name, 0x1000 + 16 * index, 16) for index, name in enumerate(names)]))
    for index, name in enumerate(names):
        found = file.symbol(name)
        assert found is not None
        assert (found.name, found.address, found.size) == (name, 0x1000 + 16 * index, 16)
    assert file.symbol("NOT_THERE") is None


def test_what_the_file_says_of_itself() -> None:
    file = ElfFile(elf.library(build_id=bytes(range(20)), soname="libx.so.3", needed=("libc.so.6", "libm.so.6")))
    assert file.build_id() == bytes(range(20)).hex()
    assert file.soname() == "libx.so.3"
    assert file.needed() == ("libc.so.6", "libm.so.6")


def test_what_is_not_there_is_none() -> None:
    file = ElfFile(elf.library())
    assert (file.build_id(), file.soname(), file.needed()) == (None, None, ())
    assert (UnwindTables(file).covers(0x1000), UnwindTables(file).row(0x1000)) == (None, None)


def test_unwind_tables_cover_their_functions_and_no_more() -> None:
    tables = UnwindTables(ElfFile(elf.library(covered=[(0x2000, 0x40), (0x1000, 0x10)])))
    assert [tables.covers(at) for at in (0xFFF, 0x1000, 0x100F, 0x1010)] == [False, True, True, False]
    assert [tables.covers(at) for at in (0x1FFF, 0x2000, 0x203F, 0x2040)] == [False, True, True, False]
    assert [tables.function(at) for at in (0xFFF, 0x100F, 0x2004)] == [None, (0x1000, 0x10), (0x2000, 0x40)]


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"MZ" + b"\0" * 100, b"\x7fELF\x01\x01" + b"\0" * 100])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        ElfFile(data)


def ask_everything(data: bytes) -> None:
    file = ElfFile(data)
    for question in (file.build_id, file.soname, file.needed):
        question()
    for name in ("first", "__abort_msg", "x"):
        with contextlib.suppress(InputError):
            file.symbol(name)
    tables = UnwindTables(file)
    for address in (0x1000, 0x1004):
        tables.covers(address)
        tables.row(address)
    file.bias(0x7F0000000000, 0)
    file.address_of(70)


LIAR = elf.library(
    [("first", 0x1000, 8), ("second", 0x2000, 8)],
    build_id=b"\1" * 20,
    soname="s",
    needed=("n",),
    covered=[(0x1000, 16)],
)


@given(st.lists(st.tuples(st.integers(0, len(LIAR) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_lying_file_costs_neither_a_traceback_nor_a_hang(changes: list[tuple[int, int]]) -> None:
    data = bytearray(LIAR)
    for at, value in changes:
        data[at] = value
    with contextlib.suppress(InputError):
        ask_everything(bytes(data))


@given(
    st.integers(0, len(LIAR) - 8), st.sampled_from([0, 1, 0x7FFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0x8000000000000000])
)
def test_extreme_numbers_are_only_numbers(at: int, value: int) -> None:
    data = bytearray(LIAR)
    struct.pack_into("<Q", data, at, value)
    with contextlib.suppress(InputError):
        ask_everything(bytes(data))


@given(st.integers(0, len(LIAR)))
def test_a_file_that_ends_early(size: int) -> None:
    with contextlib.suppress(InputError):
        ask_everything(LIAR[:size])


@needs.command("readelf")
def test_the_interpreters_own_file_as_readelf_reads_it() -> None:
    path = Path(sys.executable).resolve()
    text = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True).stdout
    build_id = ElfFile(path.read_bytes()).build_id()
    assert build_id is None or f"Build ID: {build_id}" in text
