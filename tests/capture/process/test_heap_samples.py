"""Which line was running while memory grew."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from necropsy.capture.process.heap_samples import HeapSamples
from necropsy.model import HeapFrame, PythonPlace, ResourceUse

MIB = 1 << 20


def use(at: float, mib: float) -> ResourceUse:
    return ResourceUse(at=at, rss=int(mib * MIB))


def test_growth_beyond_the_highest_is_added_to_the_line_that_was_running() -> None:
    lines = iter(PythonPlace(function=name, file="a.py", line=1) for name in ("first", "second", "first"))
    samples = HeapSamples(lambda: next(lines))
    assert samples.whole() is None
    for at, mib in ((0, 10), (1, 30), (2, 20), (3, 30), (4, 90), (5, 90.01), (6, 100)):
        samples.look(use(at, mib))
    samples.look(use(7, 103), last=True)
    found = samples.whole()
    assert found is not None
    assert (found.how, found.peak, found.peak_at) == ("sample", 93 * MIB, 7)
    assert [(one.bytes // MIB, one.count, [frame.function for frame in one.frames]) for one in found.stacks] == [
        (60, 1, ["second"]),
        (30, 2, ["first"]),
        (3, 1, []),
    ]
    assert found.stacks[0].frames == (HeapFrame(function="second", file="a.py", line=1),)


def test_more_lines_than_are_kept_are_left_out() -> None:
    numbers = iter(range(1000))
    samples = HeapSamples(lambda: PythonPlace(function="f", file="a.py", line=next(numbers)))
    for at in range(151):
        samples.look(use(at, at))
    found = samples.whole()
    assert found is not None
    assert len(found.stacks) == 100
    assert found.left_out == 50 * MIB
    assert found.peak == 150 * MIB


PROGRAM = """
import time
kept = []
def growing():
    for _ in range(40):
        kept.append(bytearray(4 << 20))
        time.sleep(0.03)
growing()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")
def test_the_lines_of_a_program_that_grows(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    file = tmp_path / "profile.json"
    words = [
        "profile",
        "--heap",
        "sample",
        "--interval",
        "0.02",
        "--json",
        str(file),
        "--",
        sys.executable,
        "program.py",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "necropsy", *words], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    heap = json.loads(file.read_bytes())["processes"][0]["heap"]
    assert heap["how"] == "sample"
    assert 20 * MIB < heap["peak"] < 180 * MIB, "what grew before the first look is not seen"
    known = [one for one in heap["stacks"] if one["frames"] and one["frames"][0]["function"] == "growing"]
    assert sum(one["bytes"] for one in known) > heap["peak"] / 4
    assert "these lines of Python were running then" in done.stderr
    assert "growing (program.py:" in done.stderr
