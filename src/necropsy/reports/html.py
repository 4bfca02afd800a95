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
from necropsy.reports import (
    alike,
    calls,
    deadlock,
    environment,
    experiments,
    listing,
    scale,
    stack,
    text,
    user_line,
    wording,
)
from necropsy.reports.calls import Line
from necropsy.reports.layout import clean, lines_of, size

if TYPE_CHECKING:
    import jinja2

WHOLE_REPORTS = 10
THREADS = 100
LOG_LINES = 200
_LONGEST, _DOTS = 300, 10


@dataclass(frozen=True)
class Proof:
    """Evidence, and the anchor of what it speaks of, where that can be told."""

    claim: str
    seen: str
    where: str | None
    anchor: str | None


@dataclass(frozen=True)
class Other:
    """Threads that did not crash, all of them at the same place: the anchor and the name of each."""

    names: tuple[tuple[str, str], ...]
    title: str
    note: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Trial:
    """An experiment. ``dots``: whether it died, for each run, those that died first; empty where they are too many."""

    change: str
    died: str
    told: str
    dots: tuple[bool, ...]


@dataclass(frozen=True)
class Death:
    """Everything that is shown of one report; anchors begin with ``key``."""

    key: str
    byline: str
    headline: str
    own: user_line.UserLine | None
    verdict: Diagnosis | None
    meaning: str
    proof: str | None
    fixes: tuple[Fix, ...]
    failed: tuple[Fix, ...]
    facts: dict[str, list[str]]
    deadlock: list[str]
    evidence: tuple[Proof, ...]
    thread: str | None
    drawing: scale.Drawing | None
    to_look_at: bool
    cycle: calls.Cycle | None
    anchors: tuple[str | None, ...]
    parts: tuple[calls.Part, ...]
    not_read: str | None
    others: tuple[Other, ...]
    crashed: bool
    threads: int
    threads_more: int
    experiments: tuple[Trial, ...]
    quoted: wording.Quotation | None
    contradictions: tuple[str, ...]
    possible: tuple[tuple[str, str | None], ...]
    possible_title: str
    found: tuple[tuple[str, Fix | None], ...]
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
    title = user_line.headline(reports[0]).replace("`", "") if reports else "nothing crashed"
    page = _template().render(
        title=f"necropsy: {title}"[:200],
        deaths=deaths,
        more=len(reports) - len(deaths),
        healthy=text.render(document, width=100).strip("\n").split("\n") if document and not reports else [],
        document=document,
    )
    head, style, body = page.partition("</style>")
    return head + style + _ANYWHERE.sub("&#35;", _AT_START.sub(r"\1&#58;", body))


# As ``layout.without_commands``, in a page's own way of writing a character.
_AT_START = re.compile(r"^([^\S\n]*):(?=:)", re.MULTILINE)
_ANYWHERE = re.compile(r"#(?=#(?:\[|vso\[|teamcity\[))")


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    folder = files("necropsy.reports")
    texts = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in ("report.html.j2", "report.css")}
    made = engine(texts)
    made.filters["size"] = size
    made.filters["fitted"] = lambda name: stack.fit_name(clean(name), 74)
    return made.get_template("report.html.j2")


def engine(texts: dict[str, str]) -> jinja2.Environment:
    """What fills in the templates ``texts``: everything is escaped and printable; ``coded`` marks code in prose."""
    import jinja2
    import markupsafe

    def printable(value: object) -> object:
        return clean(value) if isinstance(value, str) and not isinstance(value, markupsafe.Markup) else value

    made = jinja2.Environment(
        autoescape=True,
        finalize=printable,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=jinja2.DictLoader(texts),
    )
    made.filters["coded"] = _coded
    return made


def _coded(value: str) -> object:
    """Prose in which backticks mark code, as elements; everything in it is escaped."""
    import markupsafe

    pieces = re.split(r"`([^`\n]+)`", clean(value))
    return markupsafe.Markup("").join(
        markupsafe.Markup("<code>{}</code>").format(piece) if place % 2 else piece for place, piece in enumerate(pieces)
    )


def _death(key: str, report: Report, document: Document | None) -> Death:
    crash, verdict, thread = report.crash, report.verdict, wording.shown_thread(report.crash)
    culprit = verdict.culprit if verdict is not None else None
    lines = calls.lines(thread, key, culprit.function if culprit is not None else None) if thread is not None else ()
    drawing = scale.draw(thread) if thread is not None else None
    others = [one for one in crash.threads or () if one is not thread]
    log = list(lines_of(crash.log_tail))[-LOG_LINES:] if crash.log_tail and crash.log_tail.strip() else []
    evidence = tuple(
        _proof(one, thread, others[:THREADS], lines, key, drawn=drawing is not None)
        for one in (verdict.evidence if verdict is not None else ())
    )
    anchors = tuple(
        _line_of(block.frame, lines, key) if block.frame is not None else None
        for block in (drawing.blocks if drawing else ())
    )
    facts: dict[str, list[str]] = {}
    for name, value in wording.facts(report, document):
        facts.setdefault(name, []).append(value)
    proof = facts.pop("Proof", [None])[0]
    facts.pop("Verdict", None)
    own = {re.split(r"[/\\]", culprit.module)[-1]} if culprit is not None and culprit.module else set()
    seen = _to_look_at(drawing, evidence, f"{key}stack")
    linked = {*(anchors if seen else ()), *(one.anchor for one in evidence)}
    return Death(
        key=key,
        byline=_byline(report, document),
        headline=user_line.headline(report),
        own=user_line.of_report(report),
        verdict=verdict,
        meaning=wording.MEANING[verdict.confidence] if verdict else "",
        proof=proof,
        fixes=experiments.helped(verdict.fixes) if verdict else (),
        failed=experiments.did_not_help(verdict.fixes) if verdict else (),
        facts=facts,
        deadlock=deadlock.lines(verdict),
        evidence=evidence,
        thread=wording.thread_name(thread) if thread is not None else None,
        drawing=drawing,
        to_look_at=seen,
        cycle=calls.cycle(thread) if thread is not None else None,
        anchors=anchors,
        parts=calls.parts(lines, own, linked),
        not_read=stack.not_read(thread) if thread is not None and thread.complete is False else None,
        others=tuple(_other(group, key) for group in alike.groups(others[:THREADS])),
        crashed=crash.crashed_thread is not None,
        threads=len(others),
        threads_more=max(0, len(others) - THREADS),
        experiments=tuple(map(_trial, experiments.rows(report))),
        quoted=wording.quotation(report),
        contradictions=tuple(wording.contradiction(one) for one in report.contradictions),
        possible=tuple((wording.possibility(one), one.command) for one in (verdict.possible if verdict else ())),
        possible_title=wording.possible_title(verdict.possible if verdict else ()),
        found=tuple((environment.finding(one), next(iter(one.fixes), None)) for one in report.environment_findings),
        alternatives=tuple(experiments.alternatives(report)),
        missing=wording.missing(report),
        not_tried=wording.not_tried(report),
        environment=environment.rows(crash, document),
        registers=[(name, str(value)) for name, value in (crash.registers or {}).items()],
        modules=[(one.path, one.version or "", one.build_id or "") for one in crash.modules or ()],
        log=[line[:1000] for line in log],
        signature=report.signature,
    )


def _to_look_at(drawing: scale.Drawing | None, evidence: Sequence[Proof], anchor: str) -> bool:
    """Whether the stack's extent has to do with the death: else the drawing is a detail."""
    if drawing is None:
        return False
    return drawing.full or drawing.used > drawing.size / 2 or any(one.anchor == anchor for one in evidence)


def _byline(report: Report, document: Document | None) -> str:
    """What was run, when it died and on what, in a line: the page may be read weeks later, by somebody else."""
    known = dict(environment.rows(report.crash, document))
    at = re.sub(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d).*$", r"\1 \2 UTC", known.get("Died at", ""))
    python = f"Python {known['Python']}" if "Python" in known else ""
    subject = document.subject if document is not None else None
    of = known.get("Command") or ((subject.path or subject.text) if subject is not None else None) or ""
    return " \N{MIDDLE DOT} ".join(part for part in (of[:_LONGEST], at, python, known.get("System", "")) if part)


def _trial(row: experiments.Row) -> Trial:
    counted = re.fullmatch(r"(\d{1,6}) of (\d{1,6})", row.died)
    died, runs = (int(counted[1]), int(counted[2])) if counted is not None else (0, 0)
    dots = tuple(place < died for place in range(runs)) if runs <= _DOTS else ()
    return Trial(row.change, row.died, row.told, dots)


def _other(threads: Sequence[Thread], key: str) -> Other:
    first, lines = threads[0], calls.lines(threads[0], None)
    title = wording.thread_name(first) if len(threads) == 1 else f"{len(threads)} threads at the same place"
    names = tuple(zip((f"{key}t{one.tid}" for one in threads), alike.names(threads), strict=True))
    waits = wording.thread_title(first).removeprefix(wording.thread_name(first)).removeprefix(", ")
    top = next((line.name for line in lines if line.kind == "native" and not line.name.startswith("0x")), "")
    python = next((line.whole for line in lines if line.kind == "python"), "")
    where = [waits or (f"in {listing.short_function(top)}" if top else "")]
    where.append("at " + re.split(r"[/\\]", python)[-1] if python else "")
    where.append(stack.estimated(first.frames_estimate) if first.frames_estimate is not None else "")
    return Other(names, title, ", ".join(part for part in where if part), lines[:40])


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
