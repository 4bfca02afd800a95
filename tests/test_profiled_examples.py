"""The page of profiled examples: its numbers are those that the catalogue allows, and what it says of them is true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from demo import profiled
from demo.examples import FOLDER, catalogue
from necropsy.data.stack_sizes import stack_sizes

PAGE = (Path(__file__).parent.parent / "docs" / "explanation" / "profiled-examples.md").read_text(encoding="utf-8")
SURVIVED = re.compile(
    r"survived here, used ([\d.]+) of (\d+) MiB \(([\d,]+) bytes\)(?:, would not fit into the ([\d,]+) )?"
)
WINDOWS = next(one.bytes for one in stack_sizes() if one.where.startswith("Windows"))


def numbers(text: str) -> list[float]:
    found = SURVIVED.search(text)
    assert found is not None, text
    return [float((one or "0").replace(",", "")) for one in found.groups()]


@pytest.mark.parametrize("name", profiled.STACKS)
def test_the_page_says_what_the_numbers_say(name: str) -> None:
    shown = PAGE.partition(f"<!-- {name}: begin -->\n")[2].partition(f"<!-- {name}: end -->")[0]
    mib, size, peak, elsewhere = numbers(shown)
    assert abs(mib - peak / (1 << 20)) <= 0.051
    assert size == profiled.STACKS[name] / 1024
    assert peak < size * (1 << 20)
    assert elsewhere == (WINDOWS if peak > WINDOWS else 0)
    example = next(one for one in catalogue(FOLDER).example if one.name == name)
    if example.peak:
        low, high = example.peak
        assert low <= peak <= high, "the catalogue is held against runs of today"
    rows = re.findall(r"^ +([\d,]+) +([\d.]+)% +([\d,]+) x ([\d,]+) bytes", shown, re.MULTILINE)
    assert bool(rows) == (name not in profiled.OVERWRITTEN)
    for row in rows:
        octets, share, times, each = (float(one.replace(",", "")) for one in row)
        assert octets == pytest.approx(times * each, rel=0.01)
        assert share == pytest.approx(100 * octets / peak, abs=0.1)
