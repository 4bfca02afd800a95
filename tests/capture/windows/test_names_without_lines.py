"""Names that a debugger or a symbol table has only in part: classes that were left out, underscores of 32-bit x86."""

from __future__ import annotations

from pathlib import Path

import pytest
from made import BASE, Pieces, module

from necropsy.capture.windows.modules import ModuleImages
from necropsy.capture.windows.symbolizer import Symbolizer
from writers import pe as write


def written(folder: Path, symbols: list[tuple[str, int]], *, machine: int = 0x8664) -> ModuleImages:
    image = write.Writer(machine=machine, base=0x400000)
    assert image.section(".text", b"\x90" * 64 + b"\xc3", write.CODE) == 0x1000
    image.coff([(name, value, 1, 0x20, 2) for name, value in symbols])
    (folder / "made.dll").write_bytes(image.written(wide=machine == 0x8664))
    return ModuleImages([module(image)], Pieces(), [folder])


@pytest.mark.parametrize(
    ("told", "symbol", "expected"),
    [
        ("~Bad", "_ZN3BadD1Ev", "Bad::~Bad"),
        ("throwing", "_Z8throwingi", "throwing"),
        ("Bad::run", "_ZN3Bad3runEv", "Bad::run"),
        ("other", "_ZN3BadD1Ev", "other"),
        ("plain", "plain", "plain"),
        ("hidden", "_ZN12_GLOBAL__N_16hiddenEv", "hidden"),
        ("ZN3Bad3runEv", "_ZN3Bad3runEv", "Bad::run"),
    ],
)
def test_what_a_debugger_leaves_out_is_in_the_symbol_table(
    tmp_path: Path, told: str, symbol: str, expected: str
) -> None:
    images = written(tmp_path, [(symbol, 0)])
    try:
        (place,) = Symbolizer(images, symbols=lambda _address: (told, "made.cc", 7)).at(BASE + 0x1010, True)
    finally:
        images.close()
    assert place.function is not None and place.function.split("(")[0] == expected
    assert (place.source, place.line) == ("made.cc", 7)


def test_32_bit_names_lose_the_underscore_that_the_compiler_adds(tmp_path: Path) -> None:
    images = written(tmp_path, [("_run", 0), ("__Z3fooi", 16), ("_told@8", 32)], machine=0x14C)
    try:
        names = Symbolizer(images)
        found = [names.at(BASE + 0x1000 + at, True)[-1].function for at in (4, 20, 36)]
    finally:
        images.close()
    assert found[0] == "run" and (found[1] or "").split("(")[0] in {"foo", "_Z3fooi"} and found[2] == "told"
