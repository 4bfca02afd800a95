"""The experiments that rules bring are well-formed, and each says something."""

from __future__ import annotations

import pytest

from necropsy.model import Crash
from necropsy.rule import Rule
from necropsy.rules import crash_rules
from sketch import crash as crash_of

WITH = [rule for rule in crash_rules() if rule.experiments is not None]


def test_the_seed_causes_have_some() -> None:
    names = {rule.name for rule in WITH}
    assert names >= {"null-dereference", "heap-corruption", "data-race", "duplicate-openmp", "cuda-kernel-fault"}


@pytest.mark.parametrize("rule", WITH, ids=lambda rule: rule.name)
def test_what_a_rule_proposes(rule: Rule[Crash]) -> None:
    assert rule.experiments is not None
    proposals = rule.experiments(crash_of(rule.hit))
    assert proposals
    assert len({one.name for one in proposals}) == len(proposals)
    for one in proposals:
        assert one.predicts
        assert one.text
        assert one.change != type(one.change)(), "it changes something"
        if one.proves and one.fix is None:
            assert one.finds
        if one.fix is not None:
            assert one.fix.verified is None, "only a run can verify it"
            assert one.fix.command
