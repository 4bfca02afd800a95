"""Every rule on a dataset keeps its word: its hit and its miss are real elements, and are walked over."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from necropsy.model import Dataset, Diagnosis, Part
from necropsy.rule import Rule
from necropsy.rules import crash_rules, data_rules
from necropsy.validation import check_target
from walked import of_body, source_of

RULES = data_rules()
KILLS = "data-crash"
"""Its hit kills the process that walks."""
HEADINGS = re.findall(r"^(.+)\n-{3,}$", crash_rules()[0].page, re.MULTILINE)

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


def found(body: str, folder: Path, *, kills: bool) -> tuple[Diagnosis, ...]:
    if not kills:
        return of_body(body)
    (folder / "hit.py").write_text(source_of(body))
    return check_target(f"{folder / 'hit.py'}:elements", sys.executable).findings


@each_rule
def test_hits_its_hit_and_nothing_else(rule: Rule[Part], tmp_path: Path) -> None:
    diagnoses = found(rule.hit, tmp_path, kills=rule.name == KILLS)
    # That values are all zero is a note, and true of many of these.
    diagnoses = tuple(one for one in diagnoses if one.rule == rule.name or one.severity != "note")
    assert [one.rule for one in diagnoses] == [rule.name]
    assert diagnoses[0].severity == rule.severity
    assert not re.search(r"\bNone\b", diagnoses[0].summary)
    assert diagnoses[0].summary.endswith(".") and len(diagnoses[0].summary) < 320
    assert diagnoses[0].fixes


@each_rule
def test_misses_its_miss(rule: Rule[Part]) -> None:
    assert rule.name not in {one.rule for one in of_body(rule.miss)}


@each_rule
def test_every_part_may_be_missing(rule: Rule[Part]) -> None:
    assert rule.match(Part(dataset=Dataset())) is None


@each_rule
def test_page_has_all_headings(rule: Rule[Part]) -> None:
    parts = re.split(r"^(.+)\n-{3,}$", rule.page, flags=re.MULTILINE)
    assert parts[1::2] == HEADINGS
    assert all(len(text.strip()) >= 40 for text in parts[2::2])
    assert "``" in parts[2 + 2 * HEADINGS.index("How to fix it now")]
    assert "https://" in parts[-1]


def test_the_names_are_those_of_the_contract() -> None:
    names = "structure dtype rank shape inconsistent ragged empty nan inf out-of-range index-out-of-range constant huge"
    assert {rule.name for rule in RULES} >= {f"data-{name}" for name in (*names.split(), "count", "error", "crash")}
