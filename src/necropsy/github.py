"""GitHub Actions output: an ``::error`` line on stderr, which the runner also reads, and a summary page."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from necropsy.console import say
from necropsy.model import Document
from necropsy.reports import markdown, user_line, wording
from necropsy.reports.formats.audit import github as workflow_commands

SUMMARY_LIMIT = 1 << 20
"""Bytes; the runner refuses a step's summary that is larger."""


def tell(document: Document, variables: Mapping[str, str] = os.environ) -> None:
    """Write to the runner; does nothing outside GitHub Actions. Raises ``OSError`` if the summary cannot be written."""
    if variables.get("GITHUB_ACTIONS") != "true" or not document.reports:
        return
    say(annotation(document, variables.get("GITHUB_WORKSPACE")))
    path = variables.get("GITHUB_STEP_SUMMARY")
    if path:
        _append(markdown.render(document), Path(path))


def annotation(document: Document, workspace: str | None = None) -> str:
    """The ``::error`` line of a document's first death; at its line of Python where that lies in the ``workspace``."""
    report = document.reports[0]
    verdict = report.verdict
    properties = {}
    place = verdict.culprit.python if verdict is not None and verdict.culprit is not None else None
    file = _below(place.file, workspace) if place is not None else None
    if place is not None and file is not None:
        properties["file"] = file
        if place.line is not None:
            properties["line"] = str(place.line)
    properties["title"] = f"necropsy: {verdict.rule} ({verdict.confidence})" if verdict else "necropsy: a native death"
    message = user_line.headline(report)
    if verdict is not None and verdict.fixes:
        message += f"\nDo now: {verdict.fixes[0].text}"
    more = sum(not wording.follows(one, document) for one in document.reports) - 1
    if more > 0:
        message += f"\n{more} more deaths are in the report."
    return workflow_commands.command("error", properties, message)


def _below(file: str | None, workspace: str | None) -> str | None:
    if not file or not workspace:
        return None
    try:
        return str(Path(file).relative_to(workspace))
    except ValueError:
        return None


def _append(text: str, path: Path) -> None:
    """Append after what the step has already written, within the remaining space."""
    present = path.stat().st_size if path.exists() else 0
    data = text.encode("utf-8", "replace")
    room = SUMMARY_LIMIT - present - 2
    if len(data) > room:
        # A character has at most four bytes.
        data = markdown.shortened(text, room // 4).encode("utf-8", "replace")
    if data and len(data) <= room:
        with path.open("ab") as file:
            file.write(b"\n" + data + b"\n")
