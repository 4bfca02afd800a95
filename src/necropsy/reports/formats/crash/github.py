"""Crashes as workflow commands of GitHub Actions, one ``::error`` each: they appear beside the lines of a pull request.

GitHub shows ten errors a step and drops the others without a word, so a notice then says how many there are.
https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
"""

from __future__ import annotations

from necropsy.model import Document
from necropsy.reports import incidents
from necropsy.reports.formats.audit.github import command
from necropsy.reports.incidents import Incident
from necropsy.reports.rule_page import Source

MOST = 10
"""Annotations of one kind that GitHub shows for a step."""


def render(document: Document, _pages: Source | None = None) -> str:
    """A line for each of the first ``MOST`` deaths or open bugs, and one that counts the others."""
    found = [one for one in incidents.of_document(document) if not one.closed]
    lines = [_of_incident(one) for one in found[:MOST]]
    if left := len(found) - MOST:
        noun = "bugs" if document.triage is not None else "deaths"
        said = f"{left:,} more {noun} are not shown: GitHub shows {MOST} annotations a step. The report lists them all."
        lines += [command("notice", {"title": "necropsy"}, said)] if left > 0 else []
    return "".join(f"{line}\n" for line in lines)


def _of_incident(one: Incident) -> str:
    properties = {}
    for place in one.places:
        path = incidents.in_repository(place.path) if place.line is not None else None
        if path is not None:
            properties = {"file": path, "line": str(place.line)}
            break
    times = f"{one.count:,}x " if one.group is not None else ""
    sure = f" ({one.confidence})" if one.confidence is not None else ""
    properties["title"] = f"necropsy: {times}{one.rule}{sure}"
    known = f" [{one.key}]" if one.group is not None else ""
    return command("error", properties, "\n".join([one.title + known, *one.details]))
