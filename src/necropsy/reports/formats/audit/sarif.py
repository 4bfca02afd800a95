"""Findings as SARIF 2.1.0, which GitHub code scanning and other services read.

"Static Analysis Results Interchange Format (SARIF) Version 2.1.0", OASIS Standard; what GitHub asks for beyond it:
https://docs.github.com/code-security/code-scanning/integrating-with-code-scanning/sarif-support-for-code-scanning
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from necropsy.model import Diagnosis, Document, Location

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(document: Document, pages: Callable[[str], str | None] | None = None) -> str:
    """The log with one run. ``pages`` gives the page of a rule, which becomes its help."""
    names = list(dict.fromkeys(one.rule for one in document.findings))
    driver = {
        "name": document.tool.name,
        "semanticVersion": document.tool.version,
        "rules": [_rule(name, document, pages) for name in names],
    }
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, names.index(one.rule)) for one in document.findings],
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [
                    {"level": "note", "message": {"text": f"not checked: {gap.part}: {gap.why}"}}
                    for gap in document.gaps
                ],
            }
        ],
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(name: str, document: Document, pages: Callable[[str], str | None] | None) -> dict[str, Any]:
    first = next(one for one in document.findings if one.rule == name)
    page = pages(name) if pages is not None else None
    return {
        "id": name,
        "shortDescription": {"text": first.title},
        **({"help": {"text": page}} if page is not None else {}),
        "defaultConfiguration": {"level": first.severity},
    }


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
    # A library has no lines, but GitHub requires one.
    region: dict[str, int] = {"startLine": place.line or 1}
    if place.column is not None:
        region["startColumn"] = place.column
    if place.end_line is not None:
        region["endLine"] = place.end_line
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(place.path)}, "region": region}}


def _uri(path: str) -> str:
    """Relative to the working directory, which is the repository's root in CI; else a file URI."""
    whole = Path(path)
    if whole.is_absolute():
        try:
            whole = whole.relative_to(Path.cwd())
        except ValueError:
            return whole.as_uri()
    return quote(whole.as_posix())
