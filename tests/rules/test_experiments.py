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


OTHER = {
    "python-exception": """
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 12, in <module>
        log     walk(tree)
        log RecursionError: maximum recursion depth exceeded
    """,
    "assertion-failed": """
        signal SIGABRT SI_TKILL
        thread 4711 python crashed
        frame abort @ libc.so.6
        thread 4712 worker
        frame wait @ libgomp.so.1
        log python: op.c:14: fill: Assertion `done == n' failed.
    """,
    "python-without-gil": """
        signal SIGSEGV SEGV_MAPERR 0x28 read
        thread 4711 python crashed
        frame PyThreadState_New @ python3.11
        frame exit @ libc.so.6
    """,
}
OTHER["check-failed"] = OTHER["assertion-failed"]
"""Where the rule's own sketch is of a death that no change can prevent."""


@pytest.mark.parametrize("rule", WITH, ids=lambda rule: rule.name)
def test_what_a_rule_proposes(rule: Rule[Crash]) -> None:
    assert rule.experiments is not None
    proposals = rule.experiments(crash_of(OTHER.get(rule.name, rule.hit)))
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


def test_an_exception_that_no_limit_raised_is_not_put_to_the_test() -> None:
    (rule,) = [rule for rule in WITH if rule.name == "python-exception"]
    assert rule.experiments is not None
    assert not rule.experiments(crash_of(rule.hit))


def test_a_name_that_tensorflow_2_has_not_is_no_matter_of_its_behaviour() -> None:
    (rule,) = [rule for rule in WITH if rule.name == "tf1-session-in-tf2"]
    assert rule.experiments is not None
    text = """
        exit 1
        log Traceback (most recent call last):
        log   File "/home/u/train.py", line 12, in <module>
        log AttributeError: module 'tensorflow' has no attribute 'Session'
    """
    assert rule.match(crash_of(text)) is not None
    assert not rule.experiments(crash_of(text))
