from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.errors import InputError
from necropsy.formats.elf import ElfFile
from necropsy.formats.elf_symbols import FunctionTable

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("gcc") or not shutil.which("nm"), reason="it builds an ELF file"
)

SOURCE = """
static int hidden(int n) { return n * 3; }
int shown(int n) { return hidden(n) + 1; }
int other_name(int n) __attribute__((alias("shown")));
__asm__(".text\\n.globl sizeless\\nsizeless: nop\\nret\\n");
int main(int count, char **words) { return shown(count); }
"""


@lru_cache(maxsize=1)
def the_program() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made"
        subprocess.run(["gcc", "-O0", "-x", "c", "-", "-o", str(made)], input=SOURCE.encode(), check=True)
        return made.read_bytes()


def listed(program: bytes) -> list[tuple[int, int, str]]:
    """Start, size and name of each function, as ``nm`` has them."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(program)
        file.flush()
        lines = subprocess.run(["nm", "-S", file.name], capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split() for line in lines]
    return [(int(row[0], 16), int(row[1], 16), row[3]) for row in rows if len(row) == 4 and row[2] in "Tt"]


def sorted_table(elf: ElfFile) -> FunctionTable:
    """One that has been asked so often that it has sorted its functions."""
    table = FunctionTable(elf)
    for _ in range(100):
        table.at(1)
    return table


def test_each_byte_of_a_function_has_its_name() -> None:
    program = the_program()
    elf = ElfFile(program)
    functions = listed(program)
    names = {name for _, _, name in functions}
    assert {"hidden", "shown", "other_name", "main"} <= names
    assert "sizeless" not in names
    table = sorted_table(elf)
    for start, size, _ in functions:
        aliases = {name for at, _, name in functions if at == start}
        for address in (start, start + size // 2, start + size - 1):
            searched = FunctionTable(elf).at(address)
            assert searched == FunctionTable(elf).at(address, (start, start + size)) == table.at(address)
            assert searched is not None
            assert searched[0] in aliases
            assert searched[1] == start


@pytest.mark.parametrize(
    "extent", [(-1, 0), (1, 1), (1, -1), (0, -1), (0, 1 << 40), (0, -1 << 40), (-1 << 40, 0), (1 << 70, 1 << 70)]
)
def test_an_extent_that_is_not_exact_leads_to_the_function_too(extent: tuple[int, int]) -> None:
    elf = ElfFile(the_program())
    start, size, _ = next(row for row in listed(the_program()) if row[2] == "hidden")
    told = start + extent[0], start + size + extent[1]
    assert FunctionTable(elf).at(start + size // 2, told) == ("hidden", start)


def test_between_functions_there_is_none() -> None:
    elf = ElfFile(the_program())
    end = max(start + size for start, size, _ in listed(the_program()))
    for table in (FunctionTable(elf), sorted_table(elf)):
        assert table.at(end) is None
        assert table.at(-1) is None
        assert table.at(1 << 64) is None
        assert table.at(end, (end, end + 16)) is None


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=8), st.integers(0))
def test_what_a_damaged_file_has_sorted_a_search_finds_too(changes: list[tuple[int, int]], address: int) -> None:
    data = bytearray(the_program())
    for at, value in changes:
        data[at % len(data)] = value
    try:
        elf = ElfFile(bytes(data))
    except InputError:
        return
    searched, ordered = FunctionTable(elf).at(address % 0x8000), sorted_table(elf).at(address % 0x8000)
    assert ordered is None or searched == ordered
