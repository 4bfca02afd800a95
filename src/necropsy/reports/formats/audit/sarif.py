"""Findings as SARIF 2.1.0, which GitHub code scanning and other services read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from necropsy.model import Diagnosis, Document, Location
from necropsy.reports.formats import sarif_log


def render(document: Document, pages: Callable[[str], str | None] | None = None) -> str:
    """The log with one run. ``pages`` gives the page of a rule, which becomes its help."""
    names = list(dict.fromkeys(one.rule for one in document.findings))
    return sarif_log.dumps(
        document.tool,
        [_rule(name, document, pages) for name in names],
        [_result(one, names.index(one.rule)) for one in document.findings],
        [f"not checked: {gap.part}: {gap.why}" for gap in document.gaps],
    )


def _rule(name: str, document: Document, pages: Callable[[str], str | None] | None) -> dict[str, Any]:
    first = next(one for one in document.findings if one.rule == name)
    return sarif_log.rule(name, first.title, first.severity, pages(name) if pages is not None else None)


def _result(one: Diagnosis, index: int) -> dict[str, Any]:
    fix = f" {one.fixes[0].text}" if one.fixes else ""
    function = one.culprit.function if one.culprit is not None else None
    # The same in the next run, also where lines have moved.
    same = "\0".join((one.rule, one.locations[0].path if one.locations else "", function or one.summary))
    return {
        "ruleId": one.rule,
        "ruleIndex": index,
        "level": one.severity,
        "message": {"text": one.summary + fix},
        "locations": [_location(place) for place in one.locations[:1]],
        "relatedLocations": [
            {"id": number, **_location(place), "message": {"text": place.role or "see also"}}
            for number, place in enumerate(one.locations[1:], 1)
        ],
        "partialFingerprints": {"necropsyFinding/v1": hashlib.sha256(same.encode()).hexdigest()},
        "properties": {"confidence": one.confidence, "status": one.status},
    }


def _location(place: Location) -> dict[str, Any]:
    at = sarif_log.physical(place.path, place.line, column=place.column, end_line=place.end_line)
    return {"physicalLocation": at}
