"""The columns of an instruction, held against what the interpreter itself says of its code."""

from __future__ import annotations

import argparse
import sys
from types import CodeType

import pytest

from necropsy.capture.process.cpython_frames import BEYOND, columns_of


def codes(code: CodeType) -> list[CodeType]:
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return [code, *(each for one in inner for each in codes(one))]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="before CPython 3.11 code has no columns")
def test_of_every_instruction_of_a_module() -> None:
    with open(argparse.__file__, encoding="utf-8") as file:
        text = file.read() + "\nlong = (1,\n  'é' + " + " + ".join(["x"] * 300) + ")\n"
    looked_at = 0
    for code in codes(compile(text, "argparse.py", "exec")):
        positions = list(code.co_positions())
        # The first, some in the middle, the last: each is looked up from the beginning of the table.
        for at in range(0, len(positions), max(1, len(positions) // 40)):
            line, end_line, first, last = positions[at]
            found = columns_of(code.co_linetable, 2 * at)
            if first is None or last is None or line is None or (line == end_line and first >= last):
                assert found is None
            else:
                assert found == (first, last if line == end_line else BEYOND)
                looked_at += 1
    assert looked_at > 1000
