"""The report on a run of a written test: in a fork of a process with the frameworks, or in a process of its own."""

from __future__ import annotations

from pathlib import Path

from necropsy.crashed import own_report
from necropsy.fuzz import plain_run
from necropsy.fuzz.causes import Alone
from necropsy.fuzz.forked_runs import ForkedRuns
from necropsy.fuzz.sanitized_build import SanitizedBuild
from necropsy.fuzz.target.functions import VARIABLE
from necropsy.model import Document, Report

_IMPORTS_S = 22.0
"""Seconds for the imports before a call that does not end."""


def report_of(
    python: str, test: Path, function: str, alone: Alone, *, build: SanitizedBuild | None, forked: ForkedRuns | None
) -> Report | None:
    """The report on a run of this function of the test; None where it survived, or died in another way than meant.

    A fork that survives does not count, since another process may have other memory behind a buffer.
    """
    configuration = alone.configuration
    if forked is not None and build is None and can_be_forked(alone):
        report = _meant(forked.document_of(test, function, configuration), alone)
        if report is not None:
            return report
    document = plain_run.document_of(
        *(python, test, function),
        guard=configuration.guard_options,
        own=None if build is None else {**build.variables(), VARIABLE: str(build.library)},
        limit_s=plain_run.LIMIT_S if configuration.limit is None else configuration.limit + _IMPORTS_S,
        caught=alone.death.caught,
    )
    return _meant(document, alone)


def can_be_forked(alone: Alone) -> bool:
    """Whether a fork of a process without AddressSanitizer shows it. A call that does not end takes long anyway."""
    configuration = alone.configuration
    return not configuration.sanitized and configuration.limit is None and alone.death.caught is None


def _meant(document: Document | None, alone: Alone) -> Report | None:
    if document is None:
        return None
    report = own_report(document) or next(iter(document.reports), None)
    return report if report is not None and report.verdict is not None and _is_meant(report, alone) else None


def _is_meant(report: Report, alone: Alone) -> bool:
    end = report.crash.exit
    if alone.configuration.limit is not None:
        return end is not None and end.kind == "timeout"
    if end is not None and (end.kind == "signaled" or end.ntstatus is not None):
        return True
    # Windows' abort() may end with exit code 3.
    return report.crash.fault is not None or (report.verdict is not None and report.verdict.rule == "abort")
