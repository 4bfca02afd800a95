"""What is said of a death on Windows speaks of Windows: no signals, no limits of a shell, no allocator of Linux'."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from necropsy.diagnose import diagnose
from necropsy.model import Crash, Diagnosis
from necropsy.predicates import on_windows
from necropsy.rules import crash_rules
from sketch import parse

RULES = crash_rules()
CASES = Path(__file__).parent.parent / "cases"
OF_LINUX = re.compile(
    r"\bSIG[A-Z]{3,4}\b|\bSEGV_|\bSI_KERNEL|ulimit|RLIMIT_|glibc|MALLOC_|\bLD_|/proc/|the kernel (?:does|knows|did)|\bldd\b|dmesg"
)


@cache
def cases() -> dict[str, Crash]:
    """Read when a test runs: it takes as long as to collect all tests."""
    crashes = {
        str(path.relative_to(CASES)): parse(path.read_text(encoding="utf-8")).crash
        for path in sorted(CASES.glob("*/*.txt"))
    }
    found = {name: crash for name, crash in crashes.items() if on_windows(crash)}
    assert len(found) >= 60
    return found


def text_of(diagnosis: Diagnosis) -> str:
    told = [f"{one.claim}: {one.seen} [{one.where}]" for one in diagnosis.evidence]
    ways = [f"{fix.text} {fix.command or ''}" for fix in diagnosis.fixes]
    return "\n".join([diagnosis.title, diagnosis.summary, *told, *ways])


def test_speaks_of_windows() -> None:
    wrong: dict[tuple[str, str], str] = {}
    for name, crash in cases().items():
        report = diagnose(crash, RULES)
        assert report.verdict is not None, name
        texts = {one.rule: text_of(one) for one in (report.verdict, *report.alternatives)}
        wrong |= {(name, rule): text for rule, text in texts.items() if OF_LINUX.search(text)}
    assert wrong == {}


def test_experiments_of_a_dump_are_only_proposals() -> None:
    """A dump cannot be run again; what a rule would try must still be askable without harm."""
    for name, crash in cases().items():
        verdict = diagnose(crash, RULES).verdict
        assert verdict is not None, name
        rule = next(one for one in RULES if one.name == verdict.rule)
        proposals = rule.experiments(crash) if rule.experiments is not None else ()
        assert all(one.name and one.text for one in proposals), name
