"""Every rule on a call that was made several times keeps its word: its hit, its miss, and its page."""

from __future__ import annotations

import re

import msgspec
import pytest

from necropsy.model import CallComparison
from necropsy.rule import Rule
from necropsy.rules import call_rules, crash_rules

RULES = call_rules()
HEADINGS = re.findall(r"^(.+)\n-{3,}$", crash_rules()[0].page, re.MULTILINE)

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


def found(text: str) -> list[str]:
    comparison = msgspec.json.decode(text, type=CallComparison)
    return [rule.name for rule in RULES if rule.match(comparison) is not None]


@each_rule
def test_hits_its_hit_and_nothing_else(rule: Rule[CallComparison]) -> None:
    assert found(rule.hit) == [rule.name]
    assert found(rule.miss) == [] or rule.name not in found(rule.miss)
    finding = rule.match(msgspec.json.decode(rule.hit, type=CallComparison))
    assert finding is not None
    assert finding.summary.endswith(".")
    assert len(finding.summary) < 320
    assert finding.fixes


@each_rule
def test_says_nothing_of_a_call_without_a_difference(rule: Rule[CallComparison]) -> None:
    assert rule.match(CallComparison(target="X", runs=3)) is None


@each_rule
def test_page_has_all_headings(rule: Rule[CallComparison]) -> None:
    parts = re.split(r"^(.+)\n-{3,}$", rule.page, flags=re.MULTILINE)
    assert parts[1::2] == HEADINGS
    assert all(len(text.strip()) >= 40 for text in parts[2::2])
    assert "``" in parts[2 + 2 * HEADINGS.index("How to fix it now")]
    assert "https://" in parts[-1]


def test_the_names_are_those_of_the_contract() -> None:
    names = ["uninitialised-read", "nondeterministic", "input-modified", "shape-function-wrong", "gradient-wrong"]
    assert {rule.name for rule in RULES} >= {"data-race", *(f"op-{name}" for name in names)}
