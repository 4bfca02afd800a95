"""Every rule on an environment keeps its word: derived from the rules' own hit, miss and page."""

from __future__ import annotations

import re

import msgspec
import pytest

from environment_sketch import environment
from headings import HEADINGS
from necropsy.examine import examine
from necropsy.model import Environment, Evidence, Interpreter
from necropsy.rule import Finding, Rule, several
from necropsy.rules import all_rules, audit_rules, environment_rules

RULES = (*environment_rules(), *audit_rules())
each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@each_rule
def test_hits_its_hit_and_no_other_rule_does(rule: Rule[Environment]) -> None:
    answers = examine(environment(rule.hit), RULES)
    assert {one.rule for one in answers.findings} == {rule.name}
    assert not answers.failed


@each_rule
def test_misses_its_miss(rule: Rule[Environment]) -> None:
    answers = examine(environment(rule.miss), RULES)
    assert rule.name not in {one.rule for one in answers.findings}
    assert rule.name in {one.rule for one in answers.passed}


@each_rule
def test_is_not_tried_without_what_it_needs(rule: Rule[Environment]) -> None:
    assert rule.needs, "what was not observed must not pass for being in order"
    for need in rule.needs:
        answers = examine(msgspec.structs.replace(environment(rule.hit), **dict.fromkeys(need.split(" or "))), RULES)
        assert rule.name in {one.rule for one in answers.not_tried}, need


@each_rule
def test_every_part_may_be_missing(rule: Rule[Environment]) -> None:
    subject = environment(rule.hit)
    for part in Environment.__struct_fields__:
        if part not in {"gaps", "asked", *(one for need in rule.needs for one in need.split(" or "))}:
            rule.match(msgspec.structs.replace(subject, **{part: None}))


@each_rule
def test_page_and_words(rule: Rule[Environment]) -> None:
    found = re.split(r"^(.+)\n-{3,}$", rule.page, flags=re.MULTILINE)
    assert tuple(found[1::2]) == HEADINGS
    sections = {title: text.strip() for title, text in zip(found[1::2], found[2::2], strict=True)}
    assert all(len(text) >= 40 for text in sections.values())
    assert "``" in sections["How to fix it now"]
    assert "https://" in sections["Sources"]
    assert rule.checks, "say what it looks at"
    assert set(rule.beats) <= {one.name for one in all_rules()}


@each_rule
def test_finding_reads_well(rule: Rule[Environment]) -> None:
    finding = rule.match(environment(rule.hit))
    assert finding is not None
    for one in (finding, *finding.also):
        assert one.summary.endswith(".") and "\n" not in one.summary
        assert len(one.summary) <= 320
        assert one.fixes or rule.severity == "note", "say what to do now"
        assert "None" not in one.summary + "".join(each.seen for each in one.evidence)


def found(about: str, *claims: str) -> Finding:
    seen = tuple(Evidence(claim=claim, seen="x") for claim in claims)
    return Finding(evidence=seen, summary="It is so.", confidence="certain", about=frozenset({about}))


def test_a_cause_is_told_once_by_the_more_special_rule() -> None:
    general, special = RULES[0], RULES[1]
    first = answering(general, several([found("numpy", "a", "b"), found("h5py", "c")]), ())
    second = answering(special, found("numpy", "a", "d"), (general.name,))
    answers = examine(Environment(distributions=()), [first, second])
    told = {tuple(each.claim for each in one.evidence): one.rule for one in answers.findings}
    assert told == {("c",): general.name, ("a", "d", "b"): special.name}


def test_a_failed_import_makes_the_warning_of_its_cause_an_error() -> None:
    text = """
        distribution reader 1.0 checked
        requires other>=2
        distribution other 1.0 checked
    """
    (warning,) = examine(environment(text), RULES).findings
    assert (warning.rule, warning.severity) == ("env-package-conflict", "warning")
    text = f"""{text.rstrip()}
        import reader raised reader
        import-text ImportError: cannot import name f from other
    """
    (error,) = examine(environment(text), RULES).findings
    assert (error.rule, error.severity) == ("env-package-conflict", "error")
    assert error.evidence[-1].seen.startswith("ImportError")


def answering(rule: Rule[Environment], finding: Finding | None, beats: tuple[str, ...]) -> Rule[Environment]:
    def match(_: Environment) -> Finding | None:
        return finding

    return Rule(match, name=rule.name, beats=beats)


@pytest.mark.parametrize(("value", "is_enough"), [("16384", True), ("0x4000", True), ("0512", False), ("abc", False)])
def test_a_tunable_of_glibc_is_read_as_glibc_reads_it(value: str, is_enough: bool) -> None:
    rule = next(one for one in RULES if one.name == "env-static-tls")
    answers = examine(environment(rule.miss.replace("=16384", f"={value}")), RULES)
    assert not answers.failed
    assert (rule.name in {one.rule for one in answers.passed}) == is_enough


@pytest.mark.parametrize(("system", "machine", "asked"), [("linux", "x86_64", True), ("linux", "aarch64", False)])
def test_what_cannot_occur_there_is_neither_passed_nor_not_tried(system: str, machine: str, asked: bool) -> None:
    interpreter = Interpreter(executable="/usr/bin/python3", version="3.11.2", system=system, machine=machine)
    answers = examine(Environment(interpreter=interpreter), environment_rules())
    names = {one.rule for one in answers.passed} | {one.rule for one in answers.not_tried}
    assert ("env-cpu-features" in names) is asked
    assert "env-stack-too-small" in names
    assert "env-msvc-runtime-too-old" not in names
