"""Who reads only the first twelve lines of a report knows what to change: thirty reports, and the answer to each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import tomllib

import sketch
from necropsy import document
from necropsy.diagnose import diagnose
from necropsy.reports import brief
from necropsy.rules import crash_rules

CASES = Path(__file__).parent.parent / "cases"
LINES = 12


@dataclass(frozen=True)
class Answer:
    """A row of ``answers.toml``."""

    case: str
    change: str
    shows: tuple[str, ...]


def _read() -> list[Answer]:
    rows = tomllib.loads(Path(__file__).with_name("answers.toml").read_text(encoding="utf-8"))["report"]
    return [Answer(row["case"], row["change"], tuple(row["shows"])) for row in rows]


ANSWERS = _read()


def test_there_are_thirty_of_as_many_kinds() -> None:
    assert len({answer.case for answer in ANSWERS}) >= 30
    assert len({answer.case.partition("/")[0] for answer in ANSWERS}) >= 25
    assert all(answer.change and "Do now" in answer.shows for answer in ANSWERS)


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.case)
def test_the_first_twelve_lines_say_what_to_change(answer: Answer) -> None:
    crash = sketch.crash((CASES / f"{answer.case}.txt").read_text(encoding="utf-8"))
    report = document.of_watched(diagnose(crash, crash_rules()))
    assert report.verdict is not None
    assert report.verdict.rule == answer.case.partition("/")[0]
    lines = brief.render(report, width=80).strip("\n").splitlines()[:LINES]
    said = " ".join(" ".join(lines).split())
    assert [words for words in answer.shows if words not in said] == [], answer.change
