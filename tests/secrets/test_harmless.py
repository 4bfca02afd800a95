"""Three hundred lines of real logs that only sound like secrets stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from necropsy import mask

LINES = [
    line
    for line in (Path(__file__).parent / "harmless.txt").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("# ")
]


def test_there_are_enough_of_them() -> None:
    assert len(set(LINES)) >= 300
    assert len([line for line in LINES if mask._is_suspicious(line)]) > 150, "most must be worth a look"


@pytest.mark.parametrize("line", LINES)
def test_a_harmless_line_stays(line: str) -> None:
    assert mask.text(line) == line


def test_they_stay_as_one_log_and_as_words() -> None:
    whole = "\n".join(LINES)
    assert mask.text(whole) == whole
    assert mask.text(whole.replace("\n", "\r\n")) == whole.replace("\n", "\r\n")
    assert mask.argv(["python", "train.py", *LINES]) == ("python", "train.py", *LINES)
