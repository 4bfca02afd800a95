"""PE images: what is written by another hand is read back; what lies gives an InputError or nothing, and soon."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from necropsy.errors import InputError
from necropsy.formats import pe
from necropsy.formats.coff_symbols import CoffSymbols
from necropsy.formats.pe import Image, PeFunction
from necropsy.formats.pe_relocations import Relocations
from writers import pe as write

GUID = bytes(range(16))


def full() -> write.Writer:
    """One of everything."""
    out = write.Writer(reserve=2_000_000, commit=4096)
    text = out.section(".text", b"\xc3" * 0x900, write.CODE)
    out.section(".data", b"written", write.DATA, size=0x3000)
    info = out.section(".xdata", write.unwind(4, [write.alloc(4, 40)]))
    out.functions([(text + 16 * index, text + 16 * index + 12, info) for index in range(100)])
    out.exports({"first": text, "second": text + 20, "late": text + 0x800}, {"elsewhere": "other.dll.real"})
    out.imports(["KERNEL32.dll", "VCRUNTIME140.dll"])
    out.imports(["cudart64_12.dll"], delayed=True)
    out.pdb(GUID, 3, r"D:\build\own.pdb")
    out.version(10, 0, 19041, 1)
    return out


def mapped(out: write.Writer, base: int = write.BASE) -> Image:
    memory = out.loaded(base=base)

    def read(offset: int, size: int) -> bytes:
        for at, content in memory.items():
            if at <= base + offset < at + len(content):
                return content[base + offset - at :][:size]
        return b""

    return Image(read, mapped=True)


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_everything_is_read_back(kind: str) -> None:
    out = full()
    image = pe.in_bytes(out.written()) if kind == "file" else mapped(out)
    assert (image.machine, image.timestamp, image.is_64, image.is_dll) == (pe.X64, 0x5F3759DF, True, False)
    assert (image.size_of_image, image.image_base, image.entry_point) == (out.size_of_image, write.BASE, 0x1234)
    assert (image.stack_reserve, image.stack_commit) == (2_000_000, 4096)
    assert [one.name for one in image.sections][:2] == [".text", ".data"]
    assert image.sections[0].executable
    assert image.sections[1].writable
    assert image.imports == ("KERNEL32.dll", "VCRUNTIME140.dll")
    assert image.delay_imports == ("cudart64_12.dll",)
    assert image.file_version == "10.0.19041.1"
    assert image.codeview is not None
    assert image.codeview.identity == "0302010005040706" + "08090A0B0C0D0E0F"
    assert (image.codeview.age, image.codeview.path) == (3, r"D:\build\own.pdb")


def test_32_bit_header() -> None:
    out = write.Writer(machine=0x14C, base=0x400000, reserve=0x200000, flags=0x2102)
    out.section(".text", b"\xc3", write.CODE)
    image = pe.in_bytes(out.written(wide=False))
    assert (image.is_64, image.machine, image.is_dll, image.image_base) == (False, pe.X86, True, 0x400000)
    assert (image.stack_reserve, image.size_of_image) == (0x200000, out.size_of_image)


def test_bytes_are_those_of_the_loaded_image() -> None:
    image = pe.in_bytes(full().written())
    data = next(one for one in image.sections if one.name == ".data")
    assert image.at(data.rva, 9) == b"written\0\0"
    assert image.at(data.rva + 0x2FF0, 16) == b"\0" * 16
    assert image.at(data.rva + 0x2FF0, 17) is None, "the section ends there"
    assert image.at(0, 2) == b"MZ"
    assert image.at(-1, 2) is None
    assert image.at(1 << 40, 1) is None


def test_a_function_is_found_by_each_of_its_bytes_and_by_no_other() -> None:
    image = pe.in_bytes(full().written())
    text = image.sections[0].rva
    for index in range(100):
        begin = text + 16 * index
        for rva in range(begin, begin + 12):
            found = image.function(rva)
            assert found is not None
            assert (found.begin, found.end) == (begin, begin + 12)
        assert image.function(begin + 12) is None
    assert image.function(text - 1) is None
    assert image.function(text + 1600) is None


def test_a_table_of_387811_functions_is_looked_up_and_not_loaded(tmp_path: Path) -> None:
    out = write.Writer()
    text = out.section(".text", b"\xc3", write.CODE, size=16 * 387_811)
    info = out.section(".xdata", write.unwind(0))
    out.functions([(text + 16 * index, text + 16 * index + 12, info) for index in range(387_811)])
    path = tmp_path / "large.dll"
    path.write_bytes(out.written())
    with path.open("rb", buffering=0) as file:
        tracemalloc.start()
        image = pe.in_file(file)
        for index in range(0, 387_811, 1999):
            found = image.function(text + 16 * index + 5)
            assert found is not None
            assert found.begin == text + 16 * index
            assert image.function(text + 16 * index + 13) is None
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 200_000


def test_an_entry_may_stand_for_another() -> None:
    out = write.Writer()
    text = out.section(".text", b"\xc3" * 64, write.CODE)
    info = out.section(".xdata", write.unwind(0))
    table = out.next
    out.functions([(text, text + 8, info), (text + 8, text + 16, table | 1)])
    assert pe.in_bytes(out.written()).function(text + 9) == PeFunction(text + 8, text + 16, info)


def test_exports_only_within_the_bounds_that_are_asked_for() -> None:
    image = pe.in_bytes(full().written())
    text = image.sections[0].rva
    assert image.export_in(text, text + 12, text + 5) == (text, "first")
    assert image.export_in(text + 16, text + 28, text + 25) == (text + 20, "second")
    assert image.export_in(text + 16, text + 28, text + 18) is None, "it begins behind the place"
    assert image.export_in(text + 32, text + 0x700, text + 0x600) is None
    assert image.export_in(0, 1 << 31, (1 << 31) - 1) == (text + 0x800, "late"), "a forwarder is no function"


def test_no_image() -> None:
    for data in (b"", b"MZ", b"\x7fELF" + b"\0" * 200, b"MZ" + b"\0" * 58 + b"\x40\0\0\0" + b"NE\0\0" + b"\0" * 300):
        with pytest.raises(InputError):
            pe.in_bytes(data)


def test_a_file_that_is_cut_off_says_so_or_has_less() -> None:
    data = full().written()
    for size in range(0, len(data), 37):
        try:
            image = pe.in_bytes(data[:size])
        except InputError:
            continue
        _look_everywhere(image)


def _look_everywhere(image: Image) -> None:
    try:
        image.function(0x1008)
        image.function(0x7FFFFFFF)
    except InputError:
        pass
    image.export_in(0, 1 << 32, 0x1800)
    _ = image.codeview, image.imports, image.delay_imports, image.file_version, image.has_functions
    CoffSymbols(image).function_before(0x1010)
    assert len(Relocations(image, 1 << 40).some(0x1000, 64)) <= 64


@given(st.lists(st.tuples(st.integers(0, 0x1400), st.binary(min_size=1, max_size=8)), min_size=1, max_size=8))
@settings(max_examples=300, deadline=None)
def test_damaged_images(changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(full().written())
    for at, new in changes:
        data[at : at + len(new)] = new
    try:
        image = pe.in_bytes(bytes(data))
    except InputError:
        return
    _look_everywhere(image)


@pytest.mark.parametrize("number", [0, 1, 2, 3, 5, 6, 13])
def test_tables_that_claim_to_have_no_end_take_no_memory(number: int) -> None:
    out = full()
    rva, _ = out.directories.get(number, (0x1000, 0))
    out.directories[number] = rva, 0xFFFFFFF0
    out.directories.setdefault(5, (0x1000, 0xFFFFFFF0))
    image = pe.in_bytes(out.written())
    tracemalloc.start()
    _look_everywhere(image)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_relocations_move_addresses_and_nothing_else() -> None:
    out = write.Writer()
    content = bytes(range(16)) + (write.BASE + 0x1234).to_bytes(8, "little") + b"kept"
    rva = out.section(".rdata", content)
    out.relocations([rva + 16])
    image = pe.in_bytes(out.written())
    base = 0x7FF612340000
    moved = bytes(range(16)) + (base + 0x1234).to_bytes(8, "little") + b"kept"
    relocations = Relocations(image, base)
    assert relocations.some(rva, 28) == moved
    for start in range(28):
        for end in range(start + 1, 29):
            assert relocations.some(rva + start, end - start) == moved[start:end]
    assert Relocations(image, write.BASE).some(rva, 28) == content


def test_symbols_that_mingw_writes() -> None:
    out = write.Writer()
    text = out.section(".text", b"\xc3" * 256, write.CODE)
    out.section(".data", b"\0" * 16, write.DATA)
    out.coff(
        [
            (".text", 0, 1, 0, 3),
            ("short", 16, 1, 0x20, 2),
            ("_ZN10tensorflow9longer_oneEv", 64, 1, 0x20, 3),
            ("by_hand", 128, 1, 0, 2),
            ("variable", 0, 2, 0, 2),
        ]
    )
    table = CoffSymbols(pe.in_bytes(out.written()))
    assert table.function_before(text + 15) is None
    assert table.function_before(text + 16) == (text + 16, "short")
    assert table.function_before(text + 100) == (text + 64, "_ZN10tensorflow9longer_oneEv")
    assert table.function_before(text + 100, text + 70) is None
    assert table.function_before(text + 0x1004) == (text + 128, "by_hand"), "data has no functions"
