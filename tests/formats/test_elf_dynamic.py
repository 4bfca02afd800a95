"""The tables that the dynamic loader reads: as readelf sees them, and with any byte of the file changed."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.errors import InputError
from necropsy.formats import elf_dynamic
from necropsy.formats.elf import ElfFile
from necropsy.formats.elf_dynamic import dynamic, end_of_segments, undefined

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("gcc") or not shutil.which("readelf"), reason="it builds an ELF file"
)
CACHE = Path("/etc/ld.so.cache")
LDCONFIG = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
CODE = '#include <stdio.h>\n__thread int i; extern int other; int f(void) { return puts("x") + i + other; }'


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("elf") / "lib.so"
    options = ("-Wl,-soname,libx.so.1,-rpath,$ORIGIN/a:/b,--enable-new-dtags", "-ftls-model=initial-exec")
    words = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path), *options]
    subprocess.run(words, input=CODE.encode(), check=True)
    return path


def test_it_reads_what_readelf_reads(built: Path) -> None:
    shown = subprocess.run(["readelf", "-dVW", built], capture_output=True, text=True, check=True).stdout
    read = dynamic(ElfFile(built.read_bytes()))
    assert read.needed == tuple(re.findall(r"\(NEEDED\).*\[(.*)\]", shown))
    assert (read.soname, read.runpath, read.rpath) == ("libx.so.1", ("$ORIGIN/a", "/b"), ())
    assert [name for name, _ in read.needs] == ["libc.so.6"]
    assert set(read.needs[0][1]) == set(re.findall(r"Name: (GLIBC_\S+)", shown))
    assert (read.tls_size, read.static_tls) == (4, True)
    assert end_of_segments(ElfFile(built.read_bytes())) <= built.stat().st_size


def test_undefined_symbols_with_and_without_section_headers(built: Path) -> None:
    found = undefined(ElfFile(built.read_bytes()), 1000)
    assert found is not None
    names = {one.name: one.version for one in found}
    assert names["other"] is None
    assert (names["puts"] or "").startswith("GLIBC_")
    assert "__gmon_start__" not in names, "weak ones may be missing"
    data = bytearray(built.read_bytes())
    data[0x28:0x30] = bytes(8)  # e_shoff
    data[0x3C:0x40] = bytes(4)
    again = undefined(ElfFile(bytes(data)), 1000)
    assert again is not None
    assert {one.name for one in again} == set(names)
    assert undefined(ElfFile(built.read_bytes()), 1) is None


@given(at=st.integers(0, 1 << 16), byte=st.integers(0, 255), cut=st.integers(0, 1 << 16))
def test_no_bytes_make_it_fall_over(built: Path, at: int, byte: int, cut: int) -> None:
    data = bytearray(built.read_bytes())
    data[at % len(data)] = byte
    for one in (bytes(data), bytes(data[: cut % len(data)])):
        with suppress(InputError, struct.error):
            elf = ElfFile(one)
            dynamic(elf)
            undefined(elf, 1000)


@pytest.mark.skipif(LDCONFIG is None or not CACHE.exists(), reason="no ld.so.cache here")
def test_the_cache_holds_what_ldconfig_prints() -> None:
    printed = subprocess.run([str(LDCONFIG), "-p"], capture_output=True, text=True, check=True).stdout
    rows = re.findall(r"^\t(\S+) \(libc6,(?:x86-64|AArch64)[^)]*\) => (\S+)$", printed, re.MULTILINE)
    assert set(elf_dynamic.cache_entries(CACHE.read_bytes(), os.uname().machine)) >= set(rows) != set()


@given(st.binary(max_size=300))
def test_no_cache_makes_it_fall_over(data: bytes) -> None:
    for one in (data, b"glibc-ld.so.cache1.1" + data):
        list(elf_dynamic.cache_entries(one, "x86_64"))
