"""Crashes as other tools receive them: one incident for each death in a report, or for each bug in a triage."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from necropsy.model import BugGroup, Confidence, Culprit, Document, Fix, Frame, MergedFrame, Report
from necropsy.reports import triage as triage_words
from necropsy.reports import user_line, wording
from necropsy.reports.terminal import clean

UNKNOWN = "unrecognised-crash"
"""Stands for the rule of a death whose cause no rule recognised."""
_FRAMES = 64


@dataclass(frozen=True)
class Place:
    """A line of a source file, or a file without lines such as a library."""

    path: str
    line: int | None = None


@dataclass(frozen=True)
class Call:
    """One call of a stack."""

    function: str
    module: str | None = None
    place: Place | None = None

    @property
    def line(self) -> str:
        """``score_rows in rows.so (rows.cc:31)``."""
        where = f" in {self.module}" if self.module else ""
        at = self.place
        return self.function + where + (f" ({at.path}:{at.line})" if at is not None and at.line is not None else "")


@dataclass(frozen=True)
class Incident:
    """One death, or one bug; either ``report`` or ``group`` is there."""

    key: str
    """The same for the same bug in every run: the group's id, or a hash of the death's signature."""
    rule: str
    rule_title: str | None
    confidence: Confidence | None
    title: str
    """One line."""
    details: tuple[str, ...]
    """Sentences for a reader: what to do, or how often and where it was seen."""
    places: tuple[Place, ...]
    """The most useful one first: a line of the user's own code, if it is known."""
    stack: tuple[Call, ...]
    """Innermost call first."""
    python: tuple[Call, ...]
    count: int
    report: Report | None = None
    group: BugGroup | None = None

    @property
    def closed(self) -> bool:
        """It is a bug that was closed, and has not come back."""
        return self.group is not None and self.group.status == "closed"


def of_document(document: Document) -> list[Incident]:
    """The groups of a triage, by count; else the deaths that no other death explains, in the report's order."""
    if document.triage is not None:
        return [of_group(one) for one in document.triage.groups]
    return [of_report(one) for one in document.reports if not wording.follows(one, document)]


def of_group(group: BugGroup) -> Incident:
    """A bug, with its most frequent stack."""
    details = [f"{triage_words.counted(group.count, 'death')}, {triage_words.span(group)}".rstrip(", ") + "."]
    hosts = triage_words.on_hosts(group.hosts)
    details += [f"Seen {hosts}." if hosts.startswith("on ") else f"Seen on {hosts}."] if hosts else []
    details += [f"{triage_words.status_of(group).capitalize()}."] if group.status != "known" else []
    details += [f"An example: {triage_words.shows(group.example)}"] if group.example is not None else []
    frames = group.stacks[0].frames if group.stacks else ()
    native = tuple(_merged(one) for one in frames if not one.python)
    places = list(_places(group.culprit))
    if group.example is not None:
        places.append(Place(group.example.path))
    return Incident(
        key=group.id,
        rule=group.rule or UNKNOWN,
        rule_title=None,
        confidence=group.confidence,
        title=clean(group.title),
        details=tuple(map(clean, details)),
        places=tuple(places),
        stack=native or tuple(Call(name) for name in group.names),
        python=tuple(_merged(one) for one in frames if one.python),
        count=max(group.count, 1),
        group=group,
    )


def of_report(report: Report) -> Incident:
    """A death."""
    verdict = report.verdict
    said = user_line.headline(report)
    details = [f"Do now: {one.text}" + (f" {one.command}" if one.command else "") for one in _first_fix(report)]
    thread = wording.shown_thread(report.crash)
    own = user_line.of_report(report)
    places = list(_places(verdict.culprit if verdict is not None else None))
    if own is not None:
        places.insert(0, Place(own.file, own.line))
    same = report.signature or "\0".join((verdict.rule if verdict is not None else UNKNOWN, said))
    return Incident(
        key=hashlib.sha256(same.encode("utf-8", "backslashreplace")).hexdigest()[:32],
        rule=verdict.rule if verdict is not None else UNKNOWN,
        rule_title=verdict.title if verdict is not None else None,
        confidence=verdict.confidence if verdict is not None else None,
        title=clean(said),
        details=tuple(map(clean, details)),
        places=tuple(dict.fromkeys(places)),
        stack=tuple(map(_called, (thread.frames or ())[:_FRAMES])) if thread is not None else (),
        python=tuple(map(_called, (thread.python or ())[:_FRAMES])) if thread is not None else (),
        count=1,
        report=report,
    )


def stack_lines(one: Incident) -> Iterator[str]:
    """Both stacks for a reader, each line harmless; none where nothing is known."""
    for title, calls in (("native calls, innermost first:", one.stack), ("Python:", one.python)):
        if calls:
            yield title
            for call in calls:
                yield f"  {clean(call.line)}"


def in_repository(path: str) -> str | None:
    """``path`` relative to the checked-out repository with slashes: to GITHUB_WORKSPACE, or else to this folder.

    None if the file is elsewhere.
    """
    given = Path(path)
    root = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    if not given.is_absolute():
        return None if ".." in given.parts or path.startswith("<") else given.as_posix()
    try:
        return given.relative_to(root).as_posix()
    except ValueError:
        return None


def _first_fix(report: Report) -> Iterator[Fix]:
    if report.verdict is not None:
        yield from report.verdict.fixes[:1]


def _places(culprit: Culprit | None) -> Iterator[Place]:
    if culprit is None:
        return
    line = culprit.python
    if line is not None and line.file and not line.file.startswith("<"):
        yield Place(line.file, line.line)
    if culprit.source:
        yield Place(culprit.source, culprit.line)
    if culprit.module:
        yield Place(culprit.module)


def _merged(one: MergedFrame) -> Call:
    path, _, number = (one.line or "").rpartition(":")
    line = int(number) if number.isascii() and number.isdigit() and 0 < len(number) < 9 else None
    return Call(one.function, one.module, Place(path or one.line or "", line) if one.line else None)


def _called(frame: Frame) -> Call:
    function = frame.function or (
        str(frame.module_offset) if frame.module_offset is not None else "an unnamed function"
    )
    return Call(function, frame.module, Place(frame.source, frame.line) if frame.source else None)
