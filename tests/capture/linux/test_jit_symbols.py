"""Code that was made at run time has names where its compiler registered it for debuggers (GDB's JIT interface)."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest
from harness import build, compiler, dying
from hypothesis import given
from hypothesis import strategies as st

from necropsy.capture.linux.inspect import crash_builder
from necropsy.errors import InputError
from necropsy.formats.elf import ElfFile
from necropsy.formats.elf_symbols import FunctionTable, address_of
from necropsy.model import Thread

GENERATED = """
__attribute__((noinline)) static int read_it(volatile int *at) { return *at + 1; }
int generated(volatile int *at) { return read_it(at) + 1; }
"""
PROGRAM = r"""
#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
struct entry { struct entry *next, *previous; const char *file; uint64_t size; };
KIND struct { uint32_t version, action; struct entry *relevant, *first; } __jit_debug_descriptor = { 1 };
__attribute__((noinline)) int run(int (*function)(volatile int *)) { return function((volatile int *)0x18) + 1; }
int main(int argc, char **argv) {
  static char image[1 << 16]; static struct entry entry;
  int file = open(argv[1], O_RDONLY);
  entry.size = read(file, image, sizeof image);
  Elf64_Ehdr *header = (Elf64_Ehdr *)image;
  Elf64_Shdr *sections = (Elf64_Shdr *)(image + header->e_shoff);
  char *names = image + sections[header->e_shstrndx].sh_offset;
  char *code = 0;
  for (int i = 0; i < header->e_shnum; i++) {
    if (strcmp(names + sections[i].sh_name, ".text")) continue;
    code = mmap(0, 1 << 16, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(code, image + sections[i].sh_offset, sections[i].sh_size);
    sections[i].sh_addr = (uint64_t)code;
  }
  entry.file = image;
  entry.next = argc > 3 ? &entry : 0;
  __jit_debug_descriptor.first = &entry;
  return run((int (*)(volatile int *))(code + atoi(argv[2])));
}
"""


@lru_cache(maxsize=1)
def the_object() -> bytes:
    """What a compiler makes."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.o"
        command = [compiler(), "-O0", "-fcf-protection=none", "-x", "c", "-c", "-o", str(made), "-"]
        subprocess.run(command, input=GENERATED.encode(), capture_output=True, check=True)
        return made.read_bytes()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """An object file, and where ``generated`` begins in its code."""
    path = tmp_path_factory.mktemp("object") / "made.o"
    path.write_bytes(the_object())
    table = FunctionTable(ElfFile(path.read_bytes()))
    return str(path), str(next(at for at in range(256) if (table.at(at) or ("",))[0] == "generated"))


def crashed(program: Path, *arguments: str) -> Thread:
    with dying([str(program), *arguments]) as death:
        thread = crash_builder.capture(death).crashed_thread
    assert thread is not None
    return thread


@pytest.mark.parametrize("kind", ["", "static"])
@pytest.mark.parametrize("has_drgn", [True, False])
def test_registered_functions_are_named(
    tmp_path: Path, made: tuple[str, str], monkeypatch: pytest.MonkeyPatch, kind: str, has_drgn: bool
) -> None:
    if not has_drgn:
        monkeypatch.setitem(sys.modules, "drgn", None)
    program = build(tmp_path, PROGRAM, "-g", "-O0", f"-DKIND={kind}", "-rdynamic", name="a-jit")
    thread = crashed(program, *made)
    assert thread.frames is not None
    assert [(frame.function, frame.module) for frame in thread.frames[:4]] == [
        ("read_it", None),
        ("generated", None),
        ("run", "a-jit"),
        ("main", "a-jit"),
    ]


def test_a_list_that_goes_in_circles_ends(tmp_path: Path, made: tuple[str, str]) -> None:
    program = build(tmp_path, PROGRAM, "-g", "-O0", "-DKIND=", "-rdynamic", name="a-jit")
    thread = crashed(program, *made, "in circles")
    assert thread.frames is not None
    assert [frame.function for frame in thread.frames[:2]] == ["read_it", "generated"]


def test_symbols_are_found_exported_or_not(tmp_path: Path) -> None:
    program = build(tmp_path, "static int hidden = 7; int shown = 8; int main(void) { return hidden + shown; }", "-O0")
    listed = subprocess.run(["nm", str(program)], capture_output=True, text=True, check=True).stdout
    wanted = {line.split()[-1]: int(line.split()[0], 16) for line in listed.splitlines() if len(line.split()) == 3}
    elf = ElfFile(program.read_bytes())
    for name in ("hidden", "shown", "main"):
        assert address_of(elf, name) == wanted[name]
    assert address_of(elf, "hidde") is None


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_lying_object_costs_its_names_only(changes: list[tuple[int, int]]) -> None:
    data = bytearray(the_object())
    for at, value in changes:
        data[at % len(data)] = value
    try:
        elf = ElfFile(bytes(data))
    except InputError:
        return
    FunctionTable(elf).at(0)
    address_of(elf, "generated")
