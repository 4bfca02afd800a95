"""What places are called: by PDB, by DWARF, by symbol tables, by exports of the same function; else not at all."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made import BASE, Function, Made, Pieces, module
from stepping import module_of

import wine
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.windows.modules import ModuleImages
from necropsy.capture.windows.symbolizer import Symbolizer
from necropsy.formats import pe
from necropsy.formats.x64_unwind import Unwinder
from writers import pe as write

HERE = Path(__file__).parent
needs_symbolic = pytest.mark.skipif(sys.platform == "win32", reason="symbolic has no wheel for Windows")


@pytest.fixture
def names_of(tmp_path: Path) -> Iterator[Callable[[Made], Symbolizer]]:
    """The names of an image that is written to a file first."""
    with contextlib.ExitStack() as opened:

        def of(made: Made) -> Symbolizer:
            (tmp_path / "made.dll").write_bytes(made.image.written())
            images = ModuleImages([module(made.image)], Pieces(), [tmp_path])
            opened.callback(images.close)
            return Symbolizer(images, [tmp_path])

        yield of


def function_at(names: Symbolizer, address: int) -> str | None:
    (place,) = names.at(address, True)
    assert place.module == "made.dll"
    assert place.offset == address - BASE
    return place.function


def test_an_export_names_its_own_function_only(names_of: Callable[[Made], Symbolizer]) -> None:
    made = Made({"first": Function(), "second": Function(), "third": Function()})
    made.image.exports({"first": made.text, "third": made.text + 64})
    names = names_of(made)
    assert function_at(names, made.at("first", 20)) == "first"
    assert function_at(names, made.at("second", 20)) is None, "the nearest export is another function"
    assert function_at(names, made.at("third")) == "third"


def test_where_a_call_returns_to_belongs_to_the_function_that_called(names_of: Callable[[Made], Symbolizer]) -> None:
    made = Made({"first": Function(), "second": Function()})
    names = names_of(made)
    assert names.at(made.at("second"), False)[-1].function == "first"
    assert names.at(made.at("second"), True)[-1].function == "second"


def test_a_part_that_lies_elsewhere_has_the_name_of_its_function(names_of: Callable[[Made], Symbolizer]) -> None:
    image = write.Writer()
    text = image.section(".text", b"\x90" * 256, write.CODE)
    first = write.unwind(4, [write.alloc(4, 40)])
    at = image.next
    image.section(".xdata", first + write.unwind(0, [], chained=(text, text + 32, at)))
    image.functions([(text, text + 32, at), (text + 32, text + 64, at), (text + 200, text + 232, at + len(first))])
    image.exports({"whole": text, "inside": text + 16, "other": text + 40})
    made = Made.__new__(Made)
    made.image = image
    names = names_of(made)
    assert function_at(names, BASE + text + 210) == "whole"
    assert function_at(names, BASE + text + 8) == "whole"
    assert function_at(names, BASE + text + 20) == "inside", "a second entry of the same function"
    assert function_at(names, BASE + text + 36) is None
    assert function_at(names, BASE + text + 44) == "other"


def test_a_leaf_without_an_entry_is_named_where_code_leads_there_from_the_export(
    names_of: Callable[[Made], Symbolizer],
) -> None:
    call = bytes.fromhex("4c8bd1 b834000000 0f05 c3")  # mov r10, rcx; mov eax, 34h; syscall; ret
    made = Made({"NtWait": Function(has_entry=False, code=call), "gap": Function(has_entry=False, code=b"\xc3")})
    made.image.exports({"NtWait": made.text})
    names = names_of(made)
    assert function_at(names, made.at("NtWait", 10)) == "NtWait"
    assert function_at(names, made.at("NtWait", 11)) is None, "behind its return"
    assert function_at(names, made.at("NtWait", 9)) is None, "amid of an instruction"
    assert function_at(names, made.at("gap")) is None


def test_mingws_symbol_table_has_names_that_are_not_exported(names_of: Callable[[Made], Symbolizer]) -> None:
    made = Made({"one": Function(), "two": Function(), "three": Function(has_entry=False)})
    made.image.exports({})
    made.image.coff([("one", 0, 1, 0x20, 2), ("_ZN6tensor3twoEi", 32, 1, 0x20, 3)])
    names = names_of(made)
    assert function_at(names, made.at("one", 5)) == "one"
    assert function_at(names, made.at("two", 5)) == "tensor::two(int)"
    assert function_at(names, made.at("three", 5)) is None, "the function before it ends where its entry ends"


def test_what_is_no_code_has_no_name(names_of: Callable[[Made], Symbolizer]) -> None:
    made = Made({"one": Function()})
    data = made.image.section(".data", b"\0" * 64, write.DATA)
    made.image.exports({"variable": data})
    names = names_of(made)
    (place,) = names.at(BASE + data + 3, True)
    assert (place.function, place.executable) == (None, False)
    (place,) = names.at(0x1230, True)
    assert (place.function, place.module, place.offset) == (None, None, None)


# -- debug information ------------------------------------------------------------------------------------------------

SOURCE = """
typedef unsigned long long u64;
__declspec(dllimport) void ExitProcess(unsigned);
volatile int sink;
static __attribute__((always_inline)) inline int inlined(int *p) {
    return *p + 1;
}
__attribute__((noinline)) int hidden(int *p) {
    return inlined(p) * 2;
}
__attribute__((noinline)) __declspec(dllexport) int outer(int *p) {
    return hidden(p) + sink;
}
void start(void) {
    sink = outer((int *)&sink);
    ExitProcess(0);
}
"""
LINE = {text: number for number, text in enumerate((line.strip() for line in SOURCE.splitlines()), 1)}
TOOLS = [name for name in ("clang", "lld-link", "x86_64-w64-mingw32-dlltool") if shutil.which(name) is None]


def with_pdb(folder: Path) -> Path:
    """A program of the Microsoft kind, without any library, and its PDB beside it."""
    source, library = folder / "free.c", folder / "kernel32.lib"
    source.write_text(SOURCE)
    (folder / "kernel32.def").write_text("LIBRARY KERNEL32.dll\nEXPORTS\nExitProcess\n")
    target = [
        "--target=x86_64-pc-windows-msvc",
        "-O2",
        "-g",
        "-gcodeview",
        "-ffile-prefix-map=" + str(folder) + "=C:/src",
    ]
    commands: list[list[str | Path]] = [
        ["x86_64-w64-mingw32-dlltool", "-d", "kernel32.def", "-l", library],
        ["clang", *target, "-c", source, "-o", "free.obj"],
        [
            "lld-link",
            "/debug",
            "/nodefaultlib",
            "/entry:start",
            "/subsystem:console",
            "free.obj",
            library,
            "/out:free.exe",
        ],
    ]
    for command in commands:
        subprocess.run(command, cwd=folder, check=True, timeout=60, stdout=subprocess.DEVNULL)
    return folder / "free.exe"


def the_read(exe: Path) -> int:
    """The RVA of the first instruction of the function that is called ``hidden``: the only leaf of the program."""
    image = pe.in_bytes(exe.read_bytes())
    text = next(one for one in image.sections if one.name == ".text")
    unwinder = Unwinder(image)
    assert unwinder.row(text.rva, exact=True) is not None
    return text.rva


def places_at(exe: Path, rva: int, folders: list[Path]) -> tuple[CodeLocation, ...]:
    one = module_of(exe)
    images = ModuleImages([one], Pieces(), [exe.parent])
    names = Symbolizer(images, folders)
    try:
        return names.at(one.base + rva, True)
    finally:
        assert names.gaps() == ()
        images.close()


@needs_symbolic
@pytest.mark.skipif(bool(TOOLS), reason=f"not installed: {', '.join(TOOLS)}")
class TestPdb:
    def test_functions_lines_and_inlined_calls(self, tmp_path: Path) -> None:
        exe = with_pdb(tmp_path)
        inner, outer = places_at(exe, the_read(exe), [])
        assert (inner.function, inner.inline) == ("inlined(int*)", True)
        assert (outer.function, outer.inline) == ("hidden(int*)", False)
        assert (inner.line, outer.line) == (LINE["return *p + 1;"], LINE["return inlined(p) * 2;"])
        assert (inner.source or "").endswith("free.c")

    def test_in_a_symbol_store(self, tmp_path: Path) -> None:
        (tmp_path / "build").mkdir()
        exe = with_pdb(tmp_path / "build")
        image = pe.in_bytes(exe.read_bytes())
        assert image.codeview is not None
        store = tmp_path / "store" / "free.pdb" / f"{image.codeview.identity}{image.codeview.age:x}"
        store.mkdir(parents=True)
        exe.with_suffix(".pdb").rename(store / "free.pdb")
        assert places_at(exe, the_read(exe), [])[-1].function is None
        assert places_at(exe, the_read(exe), [tmp_path / "store"])[-1].function == "hidden(int*)"

    def test_the_pdb_of_another_build_is_not_used(self, tmp_path: Path) -> None:
        mine, others = tmp_path / "mine", tmp_path / "others"
        mine.mkdir()
        others.mkdir()
        exe = with_pdb(mine)
        with_pdb(others)
        (others / "free.pdb").write_bytes(_another(others))
        shutil.copy(others / "free.pdb", mine / "free.pdb")
        assert places_at(exe, the_read(exe), [])[-1].function is None


def _another(folder: Path) -> bytes:
    """The PDB of the same program with one more function."""
    (folder / "free.c").write_text(SOURCE + "int more(int a) { return a; }\n")
    target = ["--target=x86_64-pc-windows-msvc", "-O1", "-g", "-gcodeview"]
    subprocess.run(["clang", *target, "-c", "free.c", "-o", "free.obj"], cwd=folder, check=True, timeout=60)
    link = ["lld-link", "/debug", "/nodefaultlib", "/entry:start", "/subsystem:console", "free.obj", "kernel32.lib"]
    subprocess.run([*link, "/out:free.exe"], cwd=folder, check=True, timeout=60, stdout=subprocess.DEVNULL)
    return (folder / "free.pdb").read_bytes()


CPP = """
#include <windows.h>
namespace tensor {
struct Kernel {
    int *data;
    __attribute__((always_inline)) inline int first() const { return data[0]; }
    __attribute__((noinline)) int compute(int scale) const { return first() * scale; }
};
}
extern "C" __attribute__((noinline)) int __two_underscores(tensor::Kernel *one) { return one->compute(3) + 1; }
int main() {
    tensor::Kernel one{nullptr};
    return __two_underscores(&one);
}
"""


def built(folder: Path, *flags: str) -> tuple[Path, dict[str, int]]:
    """A program of MinGW's, and the RVA of the functions that the linker's own table names."""
    source = folder / "tensors.cc"
    source.write_text(CPP)
    exe = wine.mingw(source, "-O1", *flags)
    listing = subprocess.run(
        ["x86_64-w64-mingw32-nm", str(exe)], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    base = pe.in_bytes(exe.read_bytes()).image_base
    rows = [line.split() for line in listing.splitlines()]
    return exe, {row[2]: int(row[0], 16) - base for row in rows if len(row) == 3}


@wine.needed
@needs_symbolic
def test_dwarf_of_mingw(tmp_path: Path) -> None:
    exe, rvas = built(tmp_path)
    at = rvas["_ZNK6tensor6Kernel7computeEi"]
    inner, outer = max((places_at(exe, at + offset, []) for offset in range(4)), key=len)
    assert inner.function == "tensor::Kernel::first() const"
    assert outer.function == "tensor::Kernel::compute(int) const"
    assert outer.line == 1 + CPP.splitlines().index(
        next(one for one in CPP.splitlines() if "compute(int scale)" in one)
    )
    assert inner.source is not None
    assert inner.source.endswith("tensors.cc")
    (place,) = places_at(exe, rvas["__two_underscores"] + 1, [])
    assert place.function == "__two_underscores"
    assert place.line is not None


@needs_symbolic
@pytest.mark.skipif(bool(TOOLS), reason=f"not installed: {', '.join(TOOLS)}")
def test_the_nearest_symbol_of_a_pdb_is_no_name(tmp_path: Path) -> None:
    exe = with_pdb(tmp_path)
    image = pe.in_bytes(exe.read_bytes())
    text = next(one for one in image.sections if one.name == ".text")
    assert places_at(exe, text.rva, [])[-1].function == "hidden(int*)"
    for rva in range(text.rva + text.size - 8, text.rva + text.size + 64):
        (place,) = places_at(exe, rva, [])
        assert place.function is None or image.function(rva) is not None


@wine.needed
def test_without_symbolic_the_symbol_table_names_and_the_want_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe, rvas = built(tmp_path)
    monkeypatch.setitem(sys.modules, "symbolic.debuginfo", None)
    one = module_of(exe)
    images = ModuleImages([one], Pieces(), [exe.parent])
    names = Symbolizer(images)
    (place,) = names.at(one.base + rvas["_ZNK6tensor6Kernel7computeEi"] + 3, True)
    assert (place.function, place.line) == ("tensor::Kernel::compute(int) const", None)
    (gap,) = names.gaps()
    assert gap.part == "symbols"
    assert "necropsy[symbols]" in gap.why
    images.close()


@wine.needed
@needs_symbolic
def test_debug_information_that_is_damaged_names_nothing(tmp_path: Path) -> None:
    exe, rvas = built(tmp_path)
    data = bytearray(exe.read_bytes())
    image = pe.in_bytes(bytes(data))
    for section in image.sections:
        if section.name.startswith("/"):
            data[section.offset : section.offset + section.raw_size] = b"\xa5" * section.raw_size
    copy = tmp_path / exe.name
    copy.write_bytes(bytes(data))
    one = module_of(copy)
    images = ModuleImages([one], Pieces(), [tmp_path])
    (place,) = Symbolizer(images).at(one.base + rvas["_ZNK6tensor6Kernel7computeEi"] + 3, True)
    assert place.function == "tensor::Kernel::compute(int) const", "by the symbol table"
    images.close()


@wine.needed
@needs_symbolic
def test_debug_information_that_is_too_large_is_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exe, rvas = built(tmp_path)
    monkeypatch.setattr("necropsy.capture.windows.symbolizer._LARGEST_DEBUG_FILE", 4096)
    one = module_of(exe)
    images = ModuleImages([one], Pieces(), [exe.parent])
    names = Symbolizer(images)
    (place,) = names.at(one.base + rvas["__two_underscores"] + 1, True)
    assert (place.function, place.line) == ("__two_underscores", None)
    (gap,) = names.gaps()
    assert exe.name in gap.why
    images.close()
