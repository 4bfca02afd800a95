"""What is read from built libraries is held against what the compiler says and what a thread really uses."""

from __future__ import annotations

import ctypes
import mmap
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import needs
from necropsy.audit import binaries
from necropsy.errors import InputError, NoInputError
from necropsy.formats import demangle_itanium, frame_sizes
from necropsy.formats.elf import ElfFile
from necropsy.formats.elf_symbols import FunctionTable
from necropsy.model import Binary, CallPath

SOURCE = Path(__file__).parent / "kernels.cc"
STACK = 8 << 20
BUILDS = {
    "O0": ["-O0"],
    "O2": ["-O2"],
    "O2-hardened": ["-O2", "-fstack-clash-protection", "-fcf-protection", "-fstack-protector-strong", "-fno-plt"],
    "O2-frame-pointer": ["-O2", "-fno-omit-frame-pointer", "-mno-red-zone"],
}

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="ELF files are built on Linux"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="the kernels need g++"),
]


@pytest.fixture(scope="module", params=BUILDS)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp(request.param) / "kernels.so"
    command = ["g++", "-shared", "-fPIC", "-g0", "-fstack-usage", "-pthread", "-o", str(out), str(SOURCE)]
    subprocess.run([*command, *BUILDS[request.param]], check=True, cwd=out.parent)
    return out


@pytest.fixture(scope="module")
def binary(library: Path) -> Binary:
    found, gaps = binaries.look(str(library), STACK)
    assert not gaps
    return found


def test_each_frame_is_as_large_as_the_compiler_says(library: Path) -> None:
    told: dict[str, set[int]] = {}
    for line in next(library.parent.glob("*.su")).read_text().splitlines():
        place, size, kind = line.rsplit("\t", 2)
        match = re.search(r"([\w:~]+)\((?:int|float|tensorflow|void)?[^()]*\)$", place)
        if kind == "static" and match is not None:
            told.setdefault(match[1].split(":", 3)[-1], set()).add(int(size))
    seen = 0
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        elf = ElfFile(data)
        sizes, names = frame_sizes.of_elf(elf), FunctionTable(elf)
        assert sizes.unknown == 0
        for index, start in enumerate(sizes.starts):
            symbol = names.at(start)
            name = demangle_itanium.readable(symbol[0]) if symbol is not None and symbol[1] == start else None
            if name is not None and "~" not in name and len(told.get(name, ())) == 1:  # destructors have several forms
                # The compiler leaves the return address out, but for the functions that keep a frame pointer.
                (stated,) = told[name]
                assert sizes.frame(index) - stated in {0, 8}, (name, sizes.frame(index), stated)
                seen += 1
    assert seen >= 9


def path(binary: Binary, kernel: str) -> CallPath:
    return next(one for one in binary.paths or () if one.frames[0].function == f"{kernel}::Compute")


def test_the_depth_below_a_kernel_is_what_a_thread_uses(library: Path, binary: Binary) -> None:
    measured = ctypes.CDLL(str(library)).MeasureNested()
    below_empty = path(binary, "Empty").bytes
    found = path(binary, "Nested")
    assert found.indirect == 0
    assert abs(found.bytes - below_empty - measured) <= 0.05 * measured
    assert [one.function for one in found.frames] == ["Nested::Compute", "Middle", "Leaf"]


def test_circles_of_calls(binary: Binary) -> None:
    circles = {frozenset(each.function for each in one.frames): one for one in binary.cycles or ()}
    assert circles[frozenset({"Recurse"})].entry == "Direct::Compute"
    assert circles[frozenset({"Even", "Odd"})].entry == "Mutual::Compute"
    for one in circles.values():
        assert one.bytes == sum(each.bytes for each in one.frames)
    left = [names for names in circles if not names & {"Recurse", "Even", "Odd"}]
    assert len(left) == 1, "the destructor of a list; not std::map and std::sort, which stay shallow"
    assert any("Node" in name or "unique_ptr" in name or "default_delete" in name for name in left[0])
    assert circles[left[0]].entry == "List::Compute"


def test_a_large_frame_and_calls_that_are_not_known(binary: Binary) -> None:
    assert [one.function for one in binary.wide or ()] == ["Huge::Compute"]
    assert (binary.wide or ())[0].bytes >= 39_999_000, (
        "a function that calls no other uses the 128 bytes below its frame too"
    )
    assert path(binary, "Indirect").indirect > 0, "std::function calls through a pointer"
    assert "operator new" in path(binary, "List").outside or path(binary, "List").indirect


def test_without_symbols_virtual_functions_are_the_roots(library: Path, tmp_path: Path) -> None:
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", "-o", stripped, library], check=True)
    found, _ = binaries.look(str(stripped), STACK)
    assert found.cycles and found.wide, "the dynamic symbols are left"


@needs.command("x86_64-w64-mingw32-g++")
def test_a_library_for_windows(tmp_path: Path) -> None:
    out = tmp_path / "kernels.pyd"
    subprocess.run(["x86_64-w64-mingw32-g++", "-O2", "-shared", "-static", "-o", out, SOURCE], check=True)
    found, gaps = binaries.look(str(out), STACK)
    assert (found.system, gaps) == ("win32", ())
    assert [one.function for one in found.wide or ()] == ["Huge::Compute"]
    assert not (found.wide or ())[0].is_dynamic
    names = {frozenset(each.function for each in one.frames): one for one in found.cycles or ()}
    assert names[frozenset({"Recurse"})].entry == "Direct::Compute"
    assert names[frozenset({"Even", "Odd"})].entry == "Mutual::Compute"
    nested = path(found, "Nested")
    assert [one.function for one in nested.frames] == ["Nested::Compute", "Middle", "Leaf"]
    assert 132_000 < nested.bytes < 132_500


@pytest.mark.parametrize("kind", ["empty", "text", "truncated", "missing", "folder"])
def test_what_is_no_library_is_told_in_a_line(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "op.so"
    if kind == "text":
        file.write_text("not a library")
    elif kind == "empty":
        file.touch()
    elif kind == "truncated":
        file.write_bytes(Path(sys.executable).resolve().read_bytes()[:3000])
    elif kind == "folder":
        file.mkdir()
    with pytest.raises(NoInputError if kind in {"missing", "folder"} else InputError) as told:
        binaries.look(str(file), STACK)
    assert "\n" not in str(told.value)
    assert str(file) in str(told.value)
    assert ("it is cut off: it has 3,000 bytes" in str(told.value)) == (kind == "truncated")
