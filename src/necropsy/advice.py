"""What a report of ``necropsy run`` must not advise: to run the program under necropsy, which has just been done."""

from __future__ import annotations

import re

import msgspec

from necropsy.model import Diagnosis, Fix, Possibility, Report

_AGAIN = re.compile(r"necropsy run python(?: \.\.\.| \w+\.py)")
"""Only the plain command; with a time limit or on one test alone it is another experiment."""
_WATCHED = Fix(
    text=(
        "necropsy watched this run, and nothing else was seen of this process: read the last lines that it wrote, "
        "and find the call of exit() or sys.exit() with this code."
    )
)


def of_watched(report: Report) -> Report:
    """The report without the advice to run the program under necropsy."""
    verdict = _of_watched(report.verdict) if report.verdict is not None else None
    return msgspec.structs.replace(report, verdict=verdict, alternatives=tuple(map(_of_watched, report.alternatives)))


def _of_watched(diagnosis: Diagnosis) -> Diagnosis:
    fixes = tuple(fix for fix in diagnosis.fixes if not _AGAIN.fullmatch(fix.command or ""))
    return msgspec.structs.replace(
        diagnosis,
        fixes=fixes or ((_WATCHED,) if diagnosis.fixes else ()),
        possible=tuple(map(_without_command, diagnosis.possible)),
    )


def _without_command(one: Possibility) -> Possibility:
    return msgspec.structs.replace(one, command=None) if _AGAIN.fullmatch(one.command or "") else one
