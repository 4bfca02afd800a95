"""(Crash, verdict) -> environment defects that could explain it, by ``doctor``'s rules on the dead process. Pure."""

from __future__ import annotations

import msgspec

from necropsy.examine import examine
from necropsy.model import Crash, Diagnosis, Report
from necropsy.rules import environment_rules_named
from necropsy.rules.mapped import environment_of
from necropsy.rules.related import SAME, asked_about, explains

_MOST = 3
"""Pieces of evidence that a verdict takes from one finding."""


def with_environment(report: Report) -> Report:
    """The report with the findings that could explain its death; the reasons of the verdict are evidence."""
    verdict = report.verdict
    found = findings(report.crash, verdict)
    if verdict is None or not found:
        return report
    reasons = [one for one in found if verdict.rule in SAME.get(one.rule, ())]
    return msgspec.structs.replace(report, verdict=_supported(verdict, reasons), environment_findings=found)


def findings(crash: Crash, verdict: Diagnosis | None) -> tuple[Diagnosis, ...]:
    """What is wrong with the environment and could explain the death; nothing where the verdict has no room for it."""
    if verdict is None or not (names := asked_about(crash, verdict)):
        return ()
    environment = environment_of(crash)
    if environment is None:
        return ()
    found = examine(
        environment,
        environment_rules_named(names),
        lambda rule, finding: explains(rule.name, finding, crash, environment, verdict),
    )
    return found.findings


def _supported(verdict: Diagnosis, reasons: list[Diagnosis]) -> Diagnosis:
    """Add the findings' evidence that the verdict does not have yet."""
    seen = {one.seen for one in verdict.evidence}
    more = [one for reason in reasons for one in reason.evidence[:_MOST] if one.seen not in seen]
    return msgspec.structs.replace(verdict, evidence=(*verdict.evidence, *more)) if more else verdict
