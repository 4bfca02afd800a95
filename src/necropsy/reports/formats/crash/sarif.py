"""Crashes as SARIF 2.1.0, by which code scanning follows a bug over commits: a result for each death or bug."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from necropsy.model import Document
from necropsy.reports import incidents
from necropsy.reports.formats import sarif_log
from necropsy.reports.incidents import Call, Incident, Place
from necropsy.reports.rule_page import Source

MOST = 5_000
"""Results of a run that GitHub shows."""
_FRAMES = 50


def render(document: Document, pages: Source | None = None) -> str:
    """The log with one run. ``pages`` gives the page of a rule, which becomes its help."""
    found = incidents.of_document(document)
    shown = found[:MOST]
    rules = list(dict.fromkeys(one.rule for one in shown))
    titles = {one.rule: one.rule_title for one in reversed(shown)}
    notes = [f"not observed: {gap.part}: {gap.why}" for gap in document.gaps]
    if document.triage is not None:
        notes += [f"skipped: {one.path}: {one.why}" for one in document.triage.skipped[:100]]
    if len(found) > MOST:
        notes.append(f"{len(found) - MOST:,} more results are left out, because GitHub shows {MOST:,} of a run")
    return sarif_log.dumps(
        document.tool,
        [sarif_log.rule(name, titles[name], "error", pages(name) if pages is not None else None) for name in rules],
        [_result(one, rules.index(one.rule)) for one in shown],
        notes,
    )


def _result(one: Incident, index: int) -> dict[str, Any]:
    group = one.group
    inside = [place for place in one.places if place.line is not None and incidents.in_repository(place.path)]
    places = list(dict.fromkeys((*inside, *one.places)))
    stacks = [
        {"message": {"text": title}, "frames": [_frame(call) for call in calls[:_FRAMES]]}
        for title, calls in (("native calls", one.stack), ("Python", one.python))
        if calls
    ]
    known = {"count": group.count, "status": group.status, "first": group.first, "last": group.last} if group else {}
    return {
        "ruleId": one.rule,
        "ruleIndex": index,
        "level": "error",
        "message": {"text": " ".join([one.title, *one.details])},
        "locations": [_location(place, one.stack) for place in places[:1]],
        "relatedLocations": [
            {"id": number, "physicalLocation": sarif_log.physical(place.path, place.line)}
            for number, place in enumerate(places[1:], 1)
        ],
        "partialFingerprints": _fingerprints(one),
        **({"stacks": stacks} if stacks else {}),
        "occurrenceCount": one.count,
        **({"suppressions": [_suppression(one)]} if one.closed else {}),
        "properties": {
            key: value for key, value in {"confidence": one.confidence, **known}.items() if value is not None
        },
    }


def _fingerprints(one: Incident) -> dict[str, str]:
    """GitHub reads only ``primaryLocationLineHash``: it follows the bug, and not the line that the bug is on today."""
    ours = "necropsyGroup/v1" if one.group is not None else "necropsySignature/v1"
    followed = hashlib.sha256(f"{ours}:{one.key}".encode()).hexdigest()[:16]
    return {ours: one.key, "primaryLocationLineHash": f"{followed}:1"}


def _suppression(one: Incident) -> dict[str, Any]:
    fixed = one.group.fixed_in if one.group is not None else None
    return {"kind": "external", "status": "accepted", "justification": f"fixed in {fixed}" if fixed else "closed"}


def _location(place: Place, stack: Sequence[Call]) -> dict[str, Any]:
    logical = [{"fullyQualifiedName": stack[0].function, "kind": "function"}] if stack else []
    return {
        "physicalLocation": sarif_log.physical(place.path, place.line),
        **({"logicalLocations": logical} if logical else {}),
    }


def _frame(call: Call) -> dict[str, Any]:
    location: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": call.function, "kind": "function"}]}
    if call.place is not None and call.place.path:
        location["physicalLocation"] = sarif_log.physical(call.place.path, call.place.line)
    return {"location": location, **({"module": call.module} if call.module else {})}
