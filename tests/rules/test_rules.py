"""Every rule keeps its word: derived from the rules' own hit, miss and page, so that a new rule is tested by being there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headings import HEADINGS
from necropsy.diagnose import diagnose
from necropsy.model import Crash
from necropsy.rule import NEVER, X86_64, Occurs, Processor, Rule
from necropsy.rules import all_rules, crash_rules
from sketch import crash, parse

RULES = crash_rules()
NAMES = {rule.name for rule in RULES}
CASES = sorted((Path(__file__).parent.parent / "cases").glob("*/*.txt"))
OF_CRASHED_THREAD = {"stack", "frames"}

each_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


@each_rule
def test_hits_its_hit_and_no_other_rule_becomes_the_verdict(rule: Rule[Crash]) -> None:
    report = diagnose(crash(rule.hit), RULES)
    assert report.verdict is not None, f"{rule.name} does not match its own hit, and neither does another rule"
    assert report.verdict.rule == rule.name, (
        f"the hit of {rule.name} leads to {report.verdict.rule}: make the hit more special, or name that rule in beats",
        [one.rule for one in report.alternatives],
    )
    assert not [gap for gap in report.gaps if gap.part.startswith("rule ")]


@each_rule
def test_misses_its_miss(rule: Rule[Crash]) -> None:
    report = diagnose(crash(rule.miss), RULES)
    assert report.verdict is None or report.verdict.rule != rule.name
    # It may still be named as a weaker rival, never as a certain one.
    assert rule.name not in {one.rule for one in report.alternatives if one.confidence == "certain"}


@each_rule
def test_is_not_tried_without_what_it_needs(rule: Rule[Crash]) -> None:
    for need in rule.needs:
        report = diagnose(without(crash(rule.hit), need), RULES)
        assert rule.name in {one.rule for one in report.not_tried}, need
        assert report.verdict is None or report.verdict.rule != rule.name


def without(subject: Crash, part: str) -> Crash:
    """The crash with ``part`` unknown; ``messages or guarded_block``: with neither."""
    part, *others = part.split(" or ")
    for other in others:
        subject = without(subject, other)
    if part not in OF_CRASHED_THREAD:
        return msgspec.structs.replace(subject, **{part: None})
    threads = tuple(
        msgspec.structs.replace(thread, **{part: None}) if thread.crashed else thread
        for thread in subject.threads or ()
    )
    return msgspec.structs.replace(subject, threads=threads)


@each_rule
def test_every_part_may_be_missing(rule: Rule[Crash]) -> None:
    subject = crash(rule.hit)
    for part in (*Crash.__struct_fields__, *OF_CRASHED_THREAD):
        if part != "gaps":
            rule.match(without(subject, part))
    rule.match(Crash())


@each_rule
def test_page_has_all_headings(rule: Rule[Crash]) -> None:
    found = re.findall(r"^(.+)\n-{3,}$", rule.page, re.MULTILINE)
    assert tuple(found) == HEADINGS
    assert re.search(r"https://\S+", rule.page.split("Sources")[1]), "a page names where its facts are from"


@each_rule
def test_beats_only_rules_that_may_exist(rule: Rule[Crash]) -> None:
    design = NAMES | PLANNED
    assert set(rule.beats) <= design, set(rule.beats) - design
    assert rule.name not in rule.beats


PLANNED: set[str] = set()


def test_no_two_rules_beat_each_other() -> None:
    beats = {rule.name: set(rule.beats) for rule in RULES}
    assert not [(a, b) for a in beats for b in beats[a] if a in beats.get(b, set())]


@each_rule
def test_finding_reads_well(rule: Rule[Crash]) -> None:
    finding = rule.match(crash(rule.hit))
    assert finding is not None
    assert finding.summary.endswith((".", "?")) and "\n" not in finding.summary
    assert finding.summary[0].isupper() or finding.summary[0] == "`"
    assert len(finding.summary) <= 320, len(finding.summary)
    assert finding.fixes, "say what to do now"
    assert "None" not in finding.summary + "".join(one.seen for one in finding.evidence)


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_case(path: Path) -> None:
    sketch = parse(path.read_text(encoding="utf-8"))
    assert path.parent.name in NAMES
    report = diagnose(sketch.crash, RULES)
    verdict = report.verdict
    assert (verdict.rule if verdict else "none") == sketch.verdict, verdict and verdict.summary
    if verdict is not None:
        assert sketch.confidence in {None, verdict.confidence}
        for text in sketch.says:
            assert text in verdict.summary
        told = "\n".join(f"{one.claim}: {one.seen}" for one in verdict.evidence)
        for text in sketch.shows:
            assert text in told
        ways = "\n".join(f"{fix.text} {fix.command or ''}" for fix in verdict.fixes)
        for text in sketch.fixes:
            assert text in ways
    assert set(sketch.alternatives) <= {one.rule for one in report.alternatives}


@each_rule
def test_has_cases(rule: Rule[Crash]) -> None:
    cases = list((Path(__file__).parent.parent / "cases" / rule.name).glob("*.txt"))
    assert len(cases) >= 2, f"write two crashes of this kind to tests/cases/{rule.name}/*.txt"


# ---------------------------------------------------------------- what came of the advice

ROOT = Path(__file__).parent.parent.parent


@each_rule
def test_says_what_came_of_its_advice(rule: Rule[Crash]) -> None:
    tried = rule.tried
    assert tried is not None
    assert len(tried.how) >= 30
    for text in (tried.advice, tried.how):
        assert text[0].isupper() or text[0] == "`"
        assert text.endswith(".")
    assert "Does the advice work?" in rule.whole_page
    if tried.test is None:
        return
    assert tried.result != "judged only", "what a test does has a result"
    file, _, function = tried.test.partition("::")
    source = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(rf"^def {function}\(", source, re.MULTILINE), tried.test
    assert f'"{rule.name}"' in source


def test_only_what_takes_a_gpu_or_windows_is_judged_only() -> None:
    judged = {rule.name for rule in RULES if rule.tried is not None and rule.tried.result == "judged only"}
    assert {one for one in judged if not one.startswith(("cuda-", "cudnn-", "gpu-"))} <= {"fast-fail"}


# ---------------------------------------------------------------- where it occurs


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name)
def test_its_page_says_where_it_occurs(rule: Rule[Any]) -> None:
    assert re.search(r"^Where it occurs\n-{3,}\n(Linux|Windows|macOS)\b.*x86-64", rule.whole_page, re.MULTILINE)


def test_where_it_occurs_is_spelled() -> None:
    assert str(Occurs()) == "Linux, Windows and macOS, on x86-64 and AArch64."
    divided = Occurs(linux=X86_64, macos=X86_64, but="There it gives 0.")
    assert str(divided) == "Linux and macOS, on x86-64; Windows, on x86-64 and AArch64. There it gives 0."


@pytest.mark.parametrize(
    ("system", "processor", "may"),
    [
        ("linux", "x86-64", True),
        ("linux", "AArch64", False),
        ("win32", "AArch64", True),
        ("darwin", None, False),
        ("win32", None, True),
        (None, "AArch64", True),
        (None, None, True),
    ],
)
def test_what_is_not_known_may_be_any(system: str | None, processor: Processor | None, may: bool) -> None:
    assert Occurs(linux=X86_64, macos=NEVER).on(system, processor) is may
