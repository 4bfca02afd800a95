"""A report as one self-contained HTML file; a dying program's output is made printable and escaped by the template."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

from necropsy.model import Diagnosis, Document, Evidence, Exit, Fix, Report, Thread
from necropsy.reports import (
    call_lines,
    deadlock,
    environment,
    experiments,
    listing,
    markdown,
    page,
    rule_page,
    stack,
    stack_diagram,
    text,
    threads,
    user_line,
    wording,
)
from necropsy.reports.call_lines import CallLine
from necropsy.reports.terminal import lines_of

WHOLE_REPORTS = 10
"""Kinds of death shown in full; others get one line each."""
LINES, SAME = 200, 500
LOG_LINES = 200
_LONGEST, _DOTS = 300, 10


@dataclass(frozen=True)
class ProofView:
    """Evidence, and the anchor of what it speaks of, where that can be told."""

    claim: str
    seen: str
    where: str | None
    anchor: str | None


@dataclass(frozen=True)
class TrialView:
    """An experiment. ``dots``: whether it died, for each run, those that died first; empty where they are too many."""

    change: str
    died: str
    told: str
    dots: tuple[bool, ...]


@dataclass(frozen=True)
class Same:
    """A further process that died in the same way; ``at`` by ISO 8601."""

    pid: int | None
    command: str
    at: str | None
    ended: str


@dataclass(frozen=True)
class DeathView:
    """Everything that is shown of a report; anchors begin with ``key``. ``same``: others that died in the same way."""

    key: str
    same: tuple[Same, ...]
    same_more: int
    hung: bool
    byline: tuple[str, ...]
    at: str | None
    headline: str
    own: user_line.UserLine | None
    changed: bool
    verdict: Diagnosis | None
    meaning: str
    proof: str | None
    fixes: tuple[Fix, ...]
    failed: tuple[Fix, ...]
    facts: dict[str, list[str]]
    deadlock: tuple[deadlock.Step, ...]
    codes: dict[int, str | None]
    evidence: tuple[ProofView, ...]
    thread: str | None
    drawing: stack_diagram.Drawing | None
    to_look_at: bool
    cycle: call_lines.Cycle | None
    anchors: tuple[str | None, ...]
    parts: tuple[call_lines.CallPart, ...]
    not_read: str | None
    threads: threads.ThreadTable
    crashed: bool
    experiments: tuple[TrialView, ...]
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


def render(subject: Document | Report, pages: rule_page.Source | None = None) -> str:
    """The page of a report, or of all reports of a document, with the page of each rule that ``pages`` has."""
    document = subject if isinstance(subject, Document) else None
    reports = subject.reports if isinstance(subject, Document) else (subject,)
    follow = [one for one in reports if wording.follows(one, document)]
    kinds = _kinds(one for one in reports if not wording.follows(one, document))
    deaths = [_death(f"d{place}-", kind, document) for place, kind in enumerate(kinds[:WHOLE_REPORTS])]
    others = Counter(user_line.headline(one) for kind in kinds[WHOLE_REPORTS:] for one in kind)
    others.update(map(user_line.headline, follow))
    title = user_line.headline(reports[0]).replace("`", "") if reports else "nothing crashed"
    return page.render(
        "report.html.j2",
        {
            "deaths": deaths,
            "count": len(reports),
            "kinds": len(deaths) + len(others),
            "others": [*others.items()][:LINES],
            "more": max(0, len(others) - LINES),
            "healthy": text.render(document, width=100).strip("\n").split("\n") if document and not reports else [],
            "rules": rule_page.pages(_rules(kind[0] for kind in kinds[:WHOLE_REPORTS]), pages),
        },
        title=f"necropsy: {title}",
        identity=document.id if document is not None else None,
        tool=document.tool if document is not None else None,
        markdown=markdown.render(subject) if reports else None,
    )


def _kinds(reports: Iterable[Report]) -> list[tuple[Report, ...]]:
    """Group by signature, in order of first occurrence; a report without one is a group."""
    found: dict[object, list[Report]] = {}
    for place, report in enumerate(reports):
        found.setdefault(report.signature or place, []).append(report)
    return [tuple(kind) for kind in found.values()]


def _rules(reports: Iterable[Report]) -> list[str]:
    """Verdicts' rules first."""
    every = list(reports)
    verdicts = [one.verdict.rule for one in every if one.verdict is not None]
    rivals = [one.rule for report in every for one in (*report.alternatives, *report.environment_findings)]
    return [*verdicts, *rivals]


def _death(key: str, kind: Sequence[Report], document: Document | None) -> DeathView:
    report, *same = kind
    crash, verdict, thread = report.crash, report.verdict, wording.shown_thread(report.crash)
    culprit = verdict.culprit if verdict is not None else None
    lines = (
        call_lines.lines(thread, key, culprit.function if culprit is not None else None) if thread is not None else ()
    )
    drawing = stack_diagram.draw(thread) if thread is not None else None
    others = [one for one in crash.threads or () if one is not thread]
    log = list(lines_of(crash.log_tail))[-LOG_LINES:] if crash.log_tail and crash.log_tail.strip() else []
    evidence = tuple(
        _proof(one, thread, others[: threads.MOST], lines, key, drawn=drawing is not None)
        for one in (verdict.evidence if verdict is not None else ())
    )
    anchors = tuple(
        _line_of(block.frame, lines, key) if block.frame is not None else None
        for block in (drawing.blocks if drawing else ())
    )
    circle = deadlock.steps(verdict)
    line, changed = user_line.of_report(report), crash.gap("source lines")
    facts = _facts(report, document)
    proof = facts.pop("Proof", [None])[0]
    own = {re.split(r"[/\\]", culprit.module)[-1]} if culprit is not None and culprit.module else set()
    seen = _to_look_at(drawing, evidence, f"{key}stack")
    linked = {*(anchors if seen else ()), *(one.anchor for one in evidence)}
    return DeathView(
        key=key,
        same=tuple(_same(one, document) for one in same[:SAME]),
        same_more=len(same[SAME:]),
        hung=wording.stood(crash),
        byline=_byline(report, document),
        at=crash.at,
        headline=user_line.headline(report),
        own=line,
        changed=line is not None and changed is not None and line.file in changed.why,
        verdict=verdict,
        meaning=wording.MEANING[verdict.confidence] if verdict else "",
        proof=proof,
        fixes=experiments.helped(verdict.fixes) if verdict else (),
        failed=experiments.did_not_help(verdict.fixes) if verdict else (),
        facts=facts,
        deadlock=circle,
        codes={
            one.thread: next((threads.line(each)[1] for each in crash.threads or () if each.tid == one.thread), None)
            for one in circle
        },
        evidence=evidence,
        thread=wording.thread_name(thread) if thread is not None else None,
        drawing=drawing,
        to_look_at=seen,
        cycle=call_lines.cycle(thread) if thread is not None else None,
        anchors=anchors,
        parts=call_lines.parts(lines, own, linked),
        not_read=stack.not_read(thread) if thread is not None and thread.complete is False else None,
        threads=threads.table(crash.threads or (), thread, key),
        crashed=crash.crashed_thread is not None,
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


def _facts(report: Report, document: Document | None) -> dict[str, list[str]]:
    """How it ended, where, and what is needed to run it again."""
    facts: dict[str, list[str]] = {}
    for name, value in wording.facts(report, document):
        facts.setdefault(name, []).append(value)
    facts.pop("Verdict", None)
    took = facts.pop("Took", None)
    code = spelled(report.crash.exit)
    if code is not None:
        facts["Exit code"] = [code]
    place = report.crash.environment.working_directory if report.crash.environment is not None else None
    if place is not None:
        facts["Working directory"] = [place]
    return facts | ({"Took": took} if took is not None else {})


def _same(report: Report, document: Document | None) -> Same:
    process = wording.process_of(report, document) or ""
    _, _, command = process.partition("a child of the command: ")
    return Same(report.pid, command[:_LONGEST], report.crash.at, wording.end_in_a_word(report.crash))


def _to_look_at(drawing: stack_diagram.Drawing | None, evidence: Sequence[ProofView], anchor: str) -> bool:
    """Whether the stack's extent is relevant; otherwise the drawing is a detail."""
    if drawing is None:
        return False
    return drawing.full or drawing.used > drawing.size / 2 or any(one.anchor == anchor for one in evidence)


def _byline(report: Report, document: Document | None) -> tuple[str, ...]:
    """What was run, and on what, for readers weeks later."""
    known = dict(environment.rows(report.crash, document))
    python = f"Python {known['Python']}" if "Python" in known else ""
    subject = document.subject if document is not None else None
    of = known.get("Command") or ((subject.path or subject.text) if subject is not None else None) or ""
    return tuple(part for part in (of[:_LONGEST], python, known.get("System", "")) if part)


def _trial(row: experiments.ExperimentRow) -> TrialView:
    counted = re.fullmatch(r"(\d{1,6}) of (\d{1,6})", row.died)
    died, runs = (int(counted[1]), int(counted[2])) if counted is not None else (0, 0)
    dots = tuple(place < died for place in range(runs)) if runs <= _DOTS else ()
    return TrialView(row.change, row.died, row.told, dots)


# ---------------------------------------------------------------- evidence to frames


def _proof(
    one: Evidence, thread: Thread | None, others: Sequence[Thread], lines: Sequence[CallLine], key: str, *, drawn: bool
) -> ProofView:
    number = re.search(r"\bthread (\d{1,10})\b", f"{one.claim} {one.where or ''}")
    if number is not None and any(other.tid == int(number[1]) for other in others):
        return ProofView(one.claim, one.seen, one.where, f"{key}t{number[1]}")
    anchor = _anchor(one, thread, lines, key) if thread is not None else None
    if anchor is None and drawn and "stack" in one.claim:
        anchor = f"{key}stack"
    return ProofView(one.claim, one.seen, one.where, anchor)


def _anchor(one: Evidence, thread: Thread, lines: Sequence[CallLine], key: str) -> str | None:
    """The line that evidence refers to, by a frame's number, an address, a Python place, or a name."""
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


def _line_of(index: int, lines: Sequence[CallLine], key: str) -> str | None:
    """The line for native frame ``index``, which may represent several frames."""
    found = None
    for line in lines:
        if line.anchor and line.anchor.startswith(f"{key}f") and int(line.anchor.removeprefix(f"{key}f")) <= index:
            found = line.anchor
    return found


if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the backport of the same parser
    import tomli as tomllib


@lru_cache(maxsize=1)
def _numbers() -> dict[str, int]:
    table = tomllib.loads(files("necropsy.data").joinpath("signals.toml").read_text(encoding="utf-8"))
    return {one["name"]: one["number"] for one in table["signal"]}


def spelled(end: Exit | None) -> str | None:
    """``139 in a shell, -11 in Python``; None where the process did not end, or the number is not known."""
    if end is None:
        return None
    if end.ntstatus is not None:
        return f"{end.ntstatus.value}, shown as {end.ntstatus.signed} by Python"
    if end.kind == "exited":
        return str(end.code) if end.code is not None else None
    number = _numbers().get(end.signal or "") if end.kind == "signaled" else None
    return f"{128 + number} in a shell, -{number} in Python" if number is not None else None
