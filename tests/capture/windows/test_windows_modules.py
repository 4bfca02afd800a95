"""Which file was loaded as a module: the right one or none, and what its pages held where a dump has holes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made import BASE, Function, Made, Pieces, module, read

from necropsy.capture.windows.modules import ModuleImages
from necropsy.formats.minidump_records import CodeView
from writers import pe as write


def image(*, timestamp: int = 0x5F3759DF, checksum: int = 0) -> write.Writer:
    return Made({"one": Function()}, write.Writer(timestamp=timestamp, checksum=checksum)).image


def found_in(folder: Path, wanted: write.Writer, name: str = "made.dll", **values: Any) -> Path | None:
    images = ModuleImages([replace(module(wanted, name), **values)], Pieces(), [folder])
    loaded = images.modules[0]
    try:
        assert (loaded.image is None) == (loaded.file is None)
        assert loaded.file is None or images.gaps() == ()
        return loaded.file
    finally:
        images.close()


@pytest.mark.parametrize(
    "place",
    [
        "made.dll",
        "deep/er/MADE.DLL",
        "made.dll/5F3759DF{size:x}/made.dll",
        "made.dll/5f3759df{size:x}/made.dll",
        "made.dll/5F3759DF{size:X}/made.dll",
    ],
)
def test_found_in_a_folder_or_in_a_symbol_store(place: str, tmp_path: Path) -> None:
    one = image()
    path = tmp_path / place.format(size=one.size_of_image)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(one.written())
    assert found_in(tmp_path, one) == path


def test_the_right_one_of_several_of_the_same_name(tmp_path: Path) -> None:
    for number in range(5):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "made.dll").write_bytes(image(timestamp=1000 + number).written())
    (tmp_path / "made.dll").write_bytes(b"no image at all")
    assert found_in(tmp_path, image(timestamp=1003)) == tmp_path / "3" / "made.dll"


@pytest.mark.parametrize("difference", ["timestamp", "size", "checksum"])
def test_another_build_is_refused_and_named(difference: str, tmp_path: Path) -> None:
    one = image(checksum=0x1111)
    (tmp_path / "made.dll").write_bytes(one.written())
    changed: dict[str, Any] = {"timestamp": one.timestamp + 1, "size": one.size_of_image + 4096, "checksum": 0x2222}
    images = ModuleImages([replace(module(one), **{difference: changed[difference]})], Pieces(), [tmp_path])
    assert images.modules[0].image is None
    (gap,) = images.gaps()
    assert gap.part == "images"
    assert "made.dll" in gap.why
    assert "is not what was loaded" in gap.why
    images.close()


def test_an_image_with_another_pdb_is_refused(tmp_path: Path) -> None:
    one = image()
    one.pdb(bytes(16), 1, "made.pdb")
    (tmp_path / "made.dll").write_bytes(one.written())
    own = read(one).codeview
    assert own is not None
    assert found_in(tmp_path, one, codeview=own) is not None
    assert found_in(tmp_path, one, codeview=CodeView("RSDS", own.identity, 2, "made.pdb")) is None
    assert found_in(tmp_path, one, codeview=CodeView("RSDS", "F" * 32, 1, "made.pdb")) is None


def test_an_image_that_only_the_dump_has(tmp_path: Path) -> None:
    one = Made({"one": Function(), "two": Function()})
    images = ModuleImages([module(one.image)], Pieces(one.image.loaded(base=BASE)), [tmp_path])
    loaded = images.at(BASE + 0x1010)
    assert loaded is not None
    assert loaded.file is None
    assert loaded.image is not None
    assert loaded.unwinder is not None
    assert loaded.image.export_in(one.text, one.text + 32, one.text) == (one.text, "one")
    assert images.gaps() == ()


def test_headers_alone_are_no_tables() -> None:
    one = Made({"one": Function()})
    headers = {BASE: one.image.loaded(base=BASE)[BASE]}
    images = ModuleImages([module(one.image)], Pieces(headers))
    loaded = images.modules[0]
    assert loaded.image is not None, "it tells sections and the size of stacks"
    assert [gap.part for gap in images.gaps()] == ["images"]


def test_nothing_is_told_of_images_that_nobody_asked_for(tmp_path: Path) -> None:
    images = ModuleImages([module(image())], Pieces(), [tmp_path])
    assert images.gaps() == ()
    assert images.modules[0].image is None
    (gap,) = images.gaps()
    assert "--images" in gap.why


def test_addresses_between_modules_belong_to_none() -> None:
    first, second = image(), image()
    images = ModuleImages([module(second, "b.dll", base=BASE + 0x100000), module(first, "a.dll")], Pieces())
    assert images.at(BASE - 1) is None
    names = {address: images.at(address) for address in (BASE, BASE + 0xFFFFF, BASE + 0x100000)}
    assert [one.name if one else None for one in names.values()] == ["a.dll", None, "b.dll"]
    assert images.at(1 << 64) is None


@pytest.mark.parametrize("path", ["", "..", "C:\\x\\..", "a\0b.dll", "/", "C:\\", "x" * 5000, "\ud800.dll"])
def test_names_that_lie(path: str, tmp_path: Path) -> None:
    (tmp_path / "made.dll").write_bytes(image().written())
    images = ModuleImages([replace(module(image()), path=path)], Pieces(), [tmp_path])
    assert images.modules[0].image is None
    images.gaps()


# -- memory with holes ------------------------------------------------------------------------------------------------


def filled(*, dumped: dict[int, bytes] | None = None) -> tuple[ModuleImages, write.Writer, dict[str, int]]:
    """An image with code, constants (an address and the import table among them) and data that may be written."""
    one = write.Writer()
    places = {"code": one.section(".text", bytes(range(64)), write.CODE)}
    places["constant"] = one.section(
        ".rdata", b"text\0\0\0\0" + (write.BASE + 0x1000).to_bytes(8, "little") + b"imports!"
    )
    places["data"] = one.section(".data", b"was like this", write.DATA)
    one.directories[12] = places["constant"] + 16, 8
    one.relocations([places["constant"] + 8])
    return ModuleImages([module(one)], Pieces(dumped)), one, places


def test_code_and_constants_are_as_they_were_loaded_and_data_is_unknown(tmp_path: Path) -> None:
    _, one, places = filled()
    (tmp_path / "made.dll").write_bytes(one.written())
    images = ModuleImages([module(one)], Pieces(), [tmp_path])
    memory = images.memory
    assert memory.exactly(BASE + places["code"], 64) == bytes(range(64))
    assert memory.exactly(BASE + places["constant"], 5) == b"text\0"
    assert memory.u64(BASE + places["constant"] + 8) == BASE + 0x1000, "moved to where it was loaded"
    assert memory.some(BASE + places["constant"], 64) == b"text\0\0\0\0" + (BASE + 0x1000).to_bytes(8, "little")
    assert memory.u64(BASE + places["constant"] + 16) is None, "the loader wrote there"
    assert memory.some(BASE + places["data"], 8) == b""
    assert memory.some(BASE + one.size_of_image, 8) == b""
    images.close()


def test_what_the_dump_holds_counts(tmp_path: Path) -> None:
    _, one, places = filled()
    (tmp_path / "made.dll").write_bytes(one.written())
    patched = {BASE + places["code"]: b"\xcc\xcc", BASE + places["data"]: b"is now"}
    images = ModuleImages([module(one)], Pieces(patched), [tmp_path])
    assert images.memory.exactly(BASE + places["code"], 6) == b"\xcc\xcc\x02\x03\x04\x05"
    assert images.memory.some(BASE + places["data"], 32) == b"is now"
    images.close()


def test_what_may_have_changed_is_only_told_where_it_is_asked_for(tmp_path: Path) -> None:
    _, one, places = filled()
    (tmp_path / "made.dll").write_bytes(one.written())
    images = ModuleImages([module(one)], Pieces(), [tmp_path])
    loaded = images.modules[0]
    assert loaded.initial(BASE + places["data"] + 4, 4) == b"like"
    assert loaded.initial(BASE + places["constant"] + 8, 8) == (BASE + 0x1000).to_bytes(8, "little")
    assert loaded.constant(BASE + places["data"], 4) == b""
    images.close()
