"""Stacks of real Windows programs: at each instruction that they execute, and where they die."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from stepping import Window, module_of, steps

import wine
from necropsy.capture.windows.images import Images
from necropsy.capture.windows.names import Names
from necropsy.capture.windows.walk import StackWalker, Walked
from necropsy.model import Address, Stack

HERE = Path(__file__).parent
pytestmark = wine.needed


def returned_to(walked: Walked) -> list[int]:
    """The program counters of all frames but the first, without inlined calls."""
    return [place.pc for place in walked.places if not place.inline][1:]


@pytest.mark.parametrize("flags", ["-O0", "-O2", "-O3 -fno-omit-frame-pointer -fstack-protector-all"])
def test_callers_are_right_at_each_instruction(flags: str, tmp_path: Path) -> None:
    exe = wine.mingw(HERE / "frames.cc", *flags.split())
    window = Window()
    images = Images([module_of(exe)], window, [exe.parent])
    walker = StackWalker(images, Names(images))
    count, guessed = 0, set()
    for step in steps(exe, tmp_path):
        window.low, window.data = step.registers["rsp"], step.stack
        high = window.low + len(window.data)
        walked = walker.walk(step.registers, Stack(high=Address(high)), time.monotonic() + 10)
        wanted = list(step.returns)
        assert returned_to(walked)[: len(wanted)] == wanted, hex(step.registers["rip"])
        if any(walked.frame(at).found_by == "scan" for at in range(1, 1 + len(wanted))):
            guessed.add(walked.places[0].function)
        count += 1
    images.close()
    assert count > 1500
    assert guessed <= {"___chkstk_ms"}, "all others have tables"
