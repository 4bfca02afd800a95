"""What images import from each other and offer, in bytes that are written here field by field."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.errors import InputError
from necropsy.formats import pe
from necropsy.formats.pe_imports import Exports, wanted
from writers import pe as write


def importing(rows: dict[str, list[str | int]], *, wide: bool = True, lookup: bool = True) -> bytes:
    """An image with an import directory; ``lookup``: with lookup tables beside the tables of addresses."""
    writer = write.Writer(base=write.BASE if wide else 0x400000)
    writer.takes(rows, wide=wide, lookup=lookup)
    return writer.written(wide=wide)


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("lookup", [True, False])
def test_what_is_imported_is_read_in_order(wide: bool, lookup: bool) -> None:
    rows: dict[str, list[str | int]] = {"inner.dll": ["two", "one"], "numbers.dll": [7, "named", 65535], "none.dll": []}
    found = list(wanted(pe.in_bytes(importing(rows, wide=wide, lookup=lookup))))
    assert found == [(dll, one) for dll, functions in rows.items() for one in functions]


def test_an_image_without_imports_wants_nothing() -> None:
    writer = write.Writer()
    writer.section(".text", b"\xc3", write.CODE)
    assert list(wanted(pe.in_bytes(writer.written()))) == []


def exporting(names: list[str]) -> Exports:
    writer = write.Writer()
    rva = writer.section(".text", b"\xc3" * 64, write.CODE)
    writer.exports({name: rva + index for index, name in enumerate(names)}, forwarded={"passed_on": "OTHER.there"})
    return Exports(pe.in_bytes(writer.written()))


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_each_name_that_is_exported_is_found(count: int) -> None:
    names = [f"f{number:03}" for number in range(count)]
    exports = exporting(names)
    assert all(exports.offers(name) for name in [*names, "passed_on"])
    assert not any(exports.offers(name) for name in ["", "f", "f0000", "zz", "F000"])


def test_numbers_count_from_the_first_on() -> None:
    exports = exporting(["a", "b"])
    assert [exports.offers(number) for number in (0, 1, 2, 3, 4, 1 << 40)] == [False, True, True, True, False, False]


def test_an_image_without_exports_offers_nothing() -> None:
    writer = write.Writer()
    writer.section(".text", b"\xc3", write.CODE)
    exports = Exports(pe.in_bytes(writer.written()))
    assert (exports.offers("f"), exports.offers(1)) == (False, False)


def test_a_table_of_names_that_is_cut_off_says_nothing() -> None:
    writer = write.Writer()
    writer.directories[0] = writer.section(".edata", struct.pack("<16x6I", 1, 9, 9, 0x90000, 0x90000, 0)), 40
    exports = Exports(pe.in_bytes(writer.written()))
    assert (exports.offers("f"), exports.offers(1)) == (None, None)


WHOLE = importing({"inner.dll": ["two", "one"], "numbers.dll": [7, "named"]})


@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=12), st.integers(0, len(WHOLE))
)
def test_damage_costs_answers_only(changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(WHOLE[:cut])
    for at, value in changes:
        if at < len(data):
            data[at] = value
    try:
        image = pe.in_bytes(bytes(data))
    except InputError:
        return
    assert len(list(wanted(image))) <= 1 << 16
    assert Exports(image).offers("two") in {True, False, None}
