"""Findings as workflow commands of GitHub Actions, one line each: they appear beside the lines of a pull request.

The forms are those of https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands and of the
runner's own toolkit (``@actions/core``, command.ts), which says what is escaped.
"""

from __future__ import annotations

from collections.abc import Mapping

from necropsy.model import Diagnosis, Document
from necropsy.reports.rule_page import Source
from necropsy.reports.terminal import clean

_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}
_LONGEST = 4_000


def render(document: Document, _pages: Source | None = None) -> str:
    """A line for each finding."""
    return "".join(f"{_of_finding(one)}\n" for one in document.findings)


def _of_finding(one: Diagnosis) -> str:
    properties = {}
    place = one.locations[0] if one.locations else None
    if place is not None:
        properties["file"] = place.path
        numbers = {"line": place.line, "endLine": place.end_line, "col": place.column}
        properties |= {name: str(value) for name, value in numbers.items() if value is not None}
    properties["title"] = f"necropsy: {one.rule}"
    fix = f"\n{clean(one.fixes[0].text)}" if one.fixes else ""
    return command(_LEVELS[one.severity], properties, clean(one.summary) + fix)


def command(name: str, properties: Mapping[str, str], message: str) -> str:
    """One workflow command; whatever is in its parts, it stays one line and one command."""
    said = ",".join(f"{key}={_property(clean(value))}" for key, value in properties.items())
    return f"::{name} {said}::{_data(message[:_LONGEST])}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
