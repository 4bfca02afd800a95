"""A report as one HTML file that needs nothing else: no script, no font, no picture from anywhere.

Everything that a dying program may have written is escaped by the template engine and, before that, made printable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING

from necropsy.model import Diagnosis, Document, Evidence, Fix, Report, Thread
from necropsy.reports import environment, experiments, listing, scale, stack, text, wording
from necropsy.reports.layout import clean, lines_of, size

if TYPE_CHECKING:
    import jinja2

WHOLE_REPORTS = 10
THREADS = 100
LOG_LINES = 200
_LONGEST, _WHOLE, _COLUMNS = 300, 5000, 72


@dataclass(frozen=True)
class Line:
    """One line of a stack's list; ``anchor`` is what evidence and the drawing lead to, ``whole`` the name uncut."""

    mark: str
    name: str
    whole: str
    place: str
    kind: str
    anchor: str | None
    locals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proof:
    """Evidence, and the anchor of what it speaks of, where that can be told."""

    claim: str
    seen: str
    where: str | None
    anchor: str | None


@dataclass(frozen=True)
class Other:
    """A thread that did not crash."""

    anchor: str
    name: str
    note: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Death:
    """Everything that is shown of one report; anchors begin with ``key``."""

    key: str
    headline: str
    verdict: Diagnosis | None
    meaning: str
    fixes: tuple[Fix, ...]
    failed: tuple[Fix, ...]
    facts: list[tuple[str, str]]
    evidence: tuple[Proof, ...]
    thread: str | None
    drawing: scale.Drawing | None
    anchors: tuple[str | None, ...]
    lines: tuple[Line, ...]
    complete: bool | None
    others: tuple[Other, ...]
    crashed: bool
    threads_more: int
    experiments: tuple[tuple[str, str, str], ...]
    contradictions: tuple[str, ...]
    possible: tuple[tuple[str, str | None], ...]
    possible_title: str
    alternatives: tuple[tuple[str, list[Diagnosis]], ...]
    missing: dict[str, list[str]]
    not_tried: str | None
    environment: list[tuple[str, str]]
    registers: list[tuple[str, str]]
    modules: list[tuple[str, str, str]]
    log: list[str]
    signature: str | None


def render(subject: Document | Report) -> str:
    """The page of a report, or of all reports of a document."""
    document = subject if isinstance(subject, Document) else None
    reports = subject.reports if isinstance(subject, Document) else (subject,)
    deaths = [_death(f"d{place}-", report, document) for place, report in enumerate(reports[:WHOLE_REPORTS])]
    title = wording.headline(reports[0]) if reports else "nothing crashed"
    return _template().render(
        title=f"necropsy: {title}"[:200],
        deaths=deaths,
        more=len(reports) - len(deaths),
        healthy=text.render(document, width=100).strip("\n").split("\n") if document and not reports else [],
        document=document,
    )


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    import jinja2
    import markupsafe

    def printable(value: object) -> object:
        return clean(value) if isinstance(value, str) and not isinstance(value, markupsafe.Markup) else value

    engine = jinja2.Environment(
        autoescape=True, finalize=printable, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    engine.filters["size"] = size
    engine.filters["coded"] = _coded
    engine.filters["fitted"] = lambda name: stack.fit_name(clean(name), 74)
    source = files("necropsy.reports").joinpath("report.html.j2").read_text(encoding="utf-8")
    return engine.from_string(source)


def _coded(value: str) -> object:
    """Prose in which backticks mark code, as elements; everything in it is escaped."""
    import markupsafe

    pieces = re.split(r"`([^`\n]+)`", clean(value))
    return markupsafe.Markup("").join(
        markupsafe.Markup("<code>{}</code>").format(piece) if place % 2 else piece for place, piece in enumerate(pieces)
    )


def _death(key: str, report: Report, document: Document | None) -> Death:
    crash, verdict, thread = report.crash, report.verdict, wording.shown_thread(report.crash)
    blamed = verdict.culprit.function if verdict is not None and verdict.culprit is not None else None
    lines = _lines(thread, key, blamed) if thread is not None else ()
    drawing = scale.draw(thread) if thread is not None else None
    others = [one for one in crash.threads or () if one is not thread]
    log = list(lines_of(crash.log_tail))[-LOG_LINES:] if crash.log_tail and crash.log_tail.strip() else []
    return Death(
        key=key,
        headline=wording.headline(report),
        verdict=verdict,
        meaning=wording.MEANING[verdict.confidence] if verdict else "",
        fixes=experiments.helped(verdict.fixes) if verdict else (),
        failed=experiments.did_not_help(verdict.fixes) if verdict else (),
        facts=[row for row in wording.facts(report, document) if row[0] != "Verdict"],
        evidence=tuple(
            _proof(one, thread, others[:THREADS], lines, key, drawn=drawing is not None) for one in verdict.evidence
        )
        if verdict
        else (),
        thread=wording.thread_name(thread) if thread is not None else None,
        drawing=drawing,
        anchors=tuple(
            _line_of(block.frame, lines, key) if block.frame is not None else None
            for block in (drawing.blocks if drawing else ())
        ),
        lines=lines,
        complete=thread.complete if thread is not None else None,
        others=tuple(_other(one, key) for one in others[:THREADS]),
        crashed=crash.crashed_thread is not None,
        threads_more=max(0, len(others) - THREADS),
        experiments=tuple((row.change, row.died, row.told) for row in experiments.rows(report)),
        contradictions=tuple(wording.contradiction(one) for one in report.contradictions),
        possible=tuple((wording.possibility(one), one.command) for one in (verdict.possible if verdict else ())),
        possible_title=wording.possible_title(verdict.possible if verdict else ()),
        alternatives=tuple(experiments.alternatives(report)),
        missing=wording.missing(report),
        not_tried=wording.not_tried(report),
        environment=environment.rows(crash, document),
        registers=[(name, str(value)) for name, value in (crash.registers or {}).items()],
        modules=[(one.path, one.version or "", one.build_id or "") for one in crash.modules or ()],
        log=[line[:1000] for line in log],
        signature=report.signature,
    )


def _lines(thread: Thread, key: str | None, blamed: str | None = None) -> tuple[Line, ...]:
    lines = []
    known: set[str] = set()
    for row in stack.rows_of(thread, blamed):
        name, *variables = row.name.split("\n")
        anchor = None
        if key is not None and row.index is not None:
            anchor = f"{key}{'p' if row.kind == 'python' else 'f'}{row.index}"
            anchor = None if anchor in known else anchor
            known.add(anchor or "")
        whole = name[:_LONGEST].replace("  ", ", ")
        shown = whole if row.kind in {"python", "times"} else stack.fit_name(clean(name[:_WHOLE]), _COLUMNS)
        lines.append(Line(row.mark, shown, whole, row.place, row.kind, anchor, tuple(variables)))
    return tuple(lines)


def _other(thread: Thread, key: str) -> Other:
    lines = _lines(thread, None)
    top = next((line.name for line in lines if line.kind == "native" and not line.name.startswith("0x")), "")
    note = f"in {listing.short_function(top)}" if top and thread.waits is None else ""
    return Other(f"{key}t{thread.tid}", wording.thread_title(thread), note, lines[:40])


# ---------------------------------------------------------------- evidence to frames


def _proof(
    one: Evidence, thread: Thread | None, others: Sequence[Thread], lines: Sequence[Line], key: str, *, drawn: bool
) -> Proof:
    number = re.search(r"\bthread (\d{1,10})\b", f"{one.claim} {one.where or ''}")
    if number is not None and any(other.tid == int(number[1]) for other in others):
        return Proof(one.claim, one.seen, one.where, f"{key}t{number[1]}")
    anchor = _anchor(one, thread, lines, key) if thread is not None else None
    if anchor is None and drawn and "stack" in one.claim:
        anchor = f"{key}stack"
    return Proof(one.claim, one.seen, one.where, anchor)


def _anchor(one: Evidence, thread: Thread, lines: Sequence[Line], key: str) -> str | None:
    """The line that a piece of evidence speaks of: by a frame's number, an address, a place in Python, or a name."""
    where = one.where or ""
    number = re.search(r"\bframe #?(\d{1,9})\b", where) or re.search(r"\bframe #?(\d{1,9})\b", one.seen)
    if number is not None:
        return _line_of(int(number[1]), lines, key)
    address = re.search(r"\bcode at (0x[0-9a-f]+)", where)
    if address is not None:
        frame = next((frame for frame in thread.frames or () if str(frame.address) == address[1]), None)
        return _line_of(frame.index, lines, key) if frame is not None else None
    if "Python" in f"{where} {one.claim} {one.seen}":
        for line in lines:
            place = line.whole.partition(" in ")[0]
            if line.kind == "python" and line.anchor and place and place in one.seen:
                return line.anchor
    for line in lines:
        # A name of one or two letters stands in any sentence.
        name = listing.short_function(line.whole)
        if line.anchor and line.kind != "python" and len(name) > 2 and re.search(rf"\b{re.escape(name)}\b", one.seen):
            return line.anchor
    return None


def _line_of(index: int, lines: Sequence[Line], key: str) -> str | None:
    """The line that shows native frame ``index``: its own, or the one of those that it is counted with."""
    found = None
    for line in lines:
        if line.anchor and line.anchor.startswith(f"{key}f") and int(line.anchor.removeprefix(f"{key}f")) <= index:
            found = line.anchor
    return found
