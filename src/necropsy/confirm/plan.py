"""Which experiments a report asks for: those of its verdict first, then those of its rivals."""

from __future__ import annotations

from collections.abc import Sequence

from necropsy.confirm.campaign import Planned
from necropsy.model import Crash, Report
from necropsy.rule import Rule


def planned(report: Report, rules: Sequence[Rule[Crash]]) -> tuple[Planned, ...]:
    """The experiments of the verdict, then of its rivals."""
    by_name = {rule.name: rule for rule in rules}
    found: list[Planned] = []
    diagnoses = [*((report.verdict,) if report.verdict else ()), *report.alternatives]
    for diagnosis in diagnoses:
        rule = by_name.get(diagnosis.rule)
        if rule is None or rule.experiments is None:
            continue
        for proposal in rule.experiments(report.crash):
            found.append(Planned(diagnosis.rule, proposal, is_verdict=diagnosis is report.verdict))  # noqa: PERF401
    return tuple(found)
