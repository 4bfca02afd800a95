"""What is said of a death on Windows speaks of Windows: no signals, no limits of a shell, no allocator of Linux'."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from necropsy.diagnose import diagnose
from necropsy.model import Diagnosis
from necropsy.predicates import on_windows
from necropsy.rules import crash_rules
from sketch import parse

RULES = crash_rules()
CASES = [
    path
    for path in sorted((Path(__file__).parent.parent / "cases").glob("*/*.txt"))
    if on_windows(parse(path.read_text(encoding="utf-8")).crash)
]
OF_LINUX = re.compile(
    r"\bSIG[A-Z]{3,4}\b|\bSEGV_|\bSI_KERNEL|ulimit|RLIMIT_|glibc|MALLOC_|\bLD_|/proc/|the kernel (?:does|knows|did)|\bldd\b|dmesg"
)


def text_of(diagnosis: Diagnosis) -> str:
    told = [f"{one.claim}: {one.seen} [{one.where}]" for one in diagnosis.evidence]
    ways = [f"{fix.text} {fix.command or ''}" for fix in diagnosis.fixes]
    return "\n".join([diagnosis.title, diagnosis.summary, *told, *ways])


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_speaks_of_windows(path: Path) -> None:
    report = diagnose(parse(path.read_text(encoding="utf-8")).crash, RULES)
    assert report.verdict is not None
    for diagnosis in (report.verdict, *report.alternatives):
        assert OF_LINUX.findall(text_of(diagnosis)) == [], f"{diagnosis.rule}: {text_of(diagnosis)}"


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_experiments_of_a_dump_are_only_proposals(path: Path) -> None:
    """A dump cannot be run again; what a rule would try must still be askable without harm."""
    crash = parse(path.read_text(encoding="utf-8")).crash
    verdict = diagnose(crash, RULES).verdict
    assert verdict is not None
    rule = next(one for one in RULES if one.name == verdict.rule)
    proposals = rule.experiments(crash) if rule.experiments is not None else ()
    assert all(one.name and one.text for one in proposals)
