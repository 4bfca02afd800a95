"""A report to paste into an issue on GitHub: what happened and why it is believed first, details folded away."""

from __future__ import annotations

import re
from collections.abc import Sequence

from necropsy.model import Diagnosis, Document, Fix, Possibility, Report, Thread
from necropsy.reports import deadlock, environment, experiments, stack, tracker, user_line, wording
from necropsy.reports.deadlock import group_names, group_title, grouped
from necropsy.reports.terminal import Pen, clean, lines_of, without_commands

LIMIT = 60_000
"""Characters; an issue's text has room for 65,536."""
WHOLE_REPORTS = 3
LOG_LINES = 50
THREADS = 20
_THREAD_LINES = 12
_WIDTH = 100
_SPECIAL = re.compile(
    r"[\\`*\[\]<>|~@#&$]"
    r"|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # inside of a word it is only itself
    r"|^[-+=]|(?<=^\d)[.)](?=\s)|(?<=^\d\d)[.)](?=\s)"  # a list, or the line under a title
)


def render(subject: Document | Report, *, limit: int = LIMIT) -> str:
    """Markdown in at most ``limit`` characters; details of later deaths are dropped first."""
    document = subject if isinstance(subject, Document) else None
    reports = subject.reports if isinstance(subject, Document) else (subject,)
    if not reports:
        return "Nothing crashed in this run.\n"[:limit]
    whole = ""
    for detailed in (WHOLE_REPORTS, 1, 0):
        parts = [
            _report(report, document, details=place < detailed)
            if place < WHOLE_REPORTS and not wording.follows(report, document)
            else [f"**{prose(user_line.headline(report))}**"]
            for place, report in enumerate(reports)
        ]
        whole = without_commands("\n\n---\n\n".join("\n\n".join(part) for part in parts) + "\n")
        if len(whole) <= limit:
            return whole
    return shortened(whole, limit)


def shortened(text: str, limit: int) -> str:
    """The beginning of a rendered text in at most ``limit`` characters, at the end of a line, its fences closed."""
    if len(text) <= limit:
        return text
    note = "\n\n*(cut here to fit)*\n"
    kept = text[: max(0, limit - len(note) - 8)]
    kept = kept.rpartition("\n")[0]
    fences = re.findall(r"^`{3,}", kept, re.MULTILINE)
    if len(fences) % 2:
        kept += "\n" + fences[-1]
    return (kept + note)[:limit]


def _report(report: Report, document: Document | None, *, details: bool) -> list[str]:
    verdict, thread = report.verdict, wording.shown_thread(report.crash)
    name = f"{verdict.rule} ({verdict.confidence})" if verdict else "cause not recognised"
    parts = [f"### {prose(name)}", f"**{prose(user_line.headline(report))}**"]
    own = user_line.of_report(report)
    if own is not None and (own.code is not None or own.values is not None):
        parts.append(f"`{clean(own.file).replace('`', '_')}:{own.line}`")
        parts += [fence(_source(own))] if own.code is not None else []
        parts += [prose(own.values)] if own.values is not None else []
    quoted = wording.quotation(report)
    if quoted is not None:
        parts += [prose(f"{quoted.title}:"), fence([clean(line) for line in quoted.lines])]
    advice = experiments.helped(verdict.fixes) if verdict is not None else ()
    if advice:
        parts.append(f"**Do now:** {_fix(advice[0])}")
    parts += [f"**Note:** {prose(wording.contradiction(one))}" for one in report.contradictions]
    parts.append(_table(wording.facts(report, document)))
    if drawn := deadlock.lines(verdict):
        parts += [f"#### {deadlock.TITLE}", fence([clean(line) for line in drawn])]
    if verdict is not None:
        parts += ["#### Evidence", "\n".join(_evidence(verdict))]
    if experiments.rows(report):
        parts += ["#### Experiments", _experiments(report)]
    drawing = _drawing(thread, verdict) if thread is not None else []
    if thread is not None and drawing:
        parts += [f"#### Stack of {prose(wording.thread_name(thread))}, innermost call first", fence(drawing)]
    failed = experiments.did_not_help(verdict.fixes) if verdict is not None else ()
    for heading, fixes in (("What else to do", advice[1:]), ("What was tried, and did not help", failed)):
        if fixes:
            parts += [f"#### {heading}", "\n".join(f"- {_fix(fix)}" for fix in fixes)]
    if verdict is not None and verdict.possible:
        causes = [f"{place}. {_possible(one)}" for place, one in enumerate(verdict.possible, 1)]
        parts += [f"#### {wording.possible_title(verdict.possible)}", "\n".join(causes)]
    if report.environment_findings:
        found = [
            "\n  ".join([f"- {prose(environment.finding(one))}", *map(_fix, one.fixes[:1])])
            for one in report.environment_findings
        ]
        parts += [f"#### {environment.TITLE}", "\n".join(found)]
    for heading, diagnoses in experiments.alternatives(report):
        rivals = [f"- {prose(experiments.rival(one))}" for one in diagnoses]
        parts += [f"#### {heading}", "\n".join(rivals)]
    missing = [f"{', '.join(names)}: {why}" for why, names in wording.missing(report).items()]
    if missing:
        parts += ["#### What was not observed", "\n".join(f"- {prose(one)}" for one in missing)]
    parts.append(_folded("Environment", _table(environment.rows(report.crash, document))))
    parts.append(_issue(report))
    if details:
        parts += _details(report)
    return [part for part in parts if part]


def _issue(report: Report) -> str:
    """Text for the tracker of the culprit's package; empty if it is in none."""
    found, of = tracker.issue(report), tracker.package(report)
    if found is None or of is None:
        return ""
    title, lines = found
    parts = [f"Title: {code(title)}", fence(lines, "markdown")]
    known = (
        next((one.seen for one in report.verdict.evidence if one.claim == wording.KNOWN), None)
        if report.verdict
        else None
    )
    if known is not None:
        parts.insert(0, f"**Try the newer version first:** {prose(known)}.")
    return _folded(f"For the issue tracker of {of[0]}", "\n\n".join(parts))


def _details(report: Report) -> list[str]:
    crash = report.crash
    parts = []
    first = wording.shown_thread(crash)
    others = [thread for thread in crash.threads or () if thread is not first]
    groups = grouped(others)
    shown = [line for group in groups[:THREADS] for line in (*_threads(group), "")]
    if left := sum(map(len, groups[THREADS:])):
        shown.append(f"and {left} more threads")
    if shown:
        parts.append(_folded(f"Other threads ({len(others)})", fence(shown)))
    log = list(lines_of(crash.log_tail))[-LOG_LINES:] if crash.log_tail and crash.log_tail.strip() else []
    if log:
        parts.append(_folded("End of the log", fence([line[:400] for line in log])))
    left_out = wording.not_tried(report)
    signature = f"Signature: {code(report.signature)}" if report.signature else ""
    return [*parts, *([prose(f"Rules that could not be tried: {left_out}")] if left_out else []), signature]


def _threads(group: Sequence[Thread]) -> list[str]:
    head = group_title(group) + (f": {', '.join(group_names(group))}" if len(group) > 1 else "")
    drawing = [line for line in stack.draw(group[0], _WIDTH, Pen(color=False)) if line.lstrip()[:1] != "["]
    return [clean(head), *drawing[:_THREAD_LINES], *(["  ..."] if len(drawing) > _THREAD_LINES else [])]


def _drawing(thread: Thread, verdict: Diagnosis | None) -> list[str]:
    blamed = verdict.culprit.function if verdict is not None and verdict.culprit is not None else None
    return stack.draw(thread, _WIDTH, Pen(color=False), blamed)


def _evidence(verdict: Diagnosis) -> list[str]:
    return [
        f"- {prose(one.claim)}: {prose(one.seen)}" + (f" *({prose(one.where)})*" if one.where else "")
        for one in wording.evidence(verdict)
    ]


def _fix(fix: Fix) -> str:
    tried = {True: " (Tried: the crash went away.)", False: " (Tried: it still crashes.)", None: ""}[fix.verified]
    text = prose(fix.text + tried)
    if fix.command:
        # In a list, what belongs to an item is indented.
        block = fence(fix.command.splitlines(), "sh").replace("\n", "\n  ")
        text += f"\n\n  {block}\n"
    return text


def _experiments(report: Report) -> str:
    rows = [(row.died, row.change, row.told) for row in experiments.rows(report)]
    cells = ["| " + " | ".join(re.sub(r"(?<!\\)\|", r"\|", prose(cell)) for cell in row) + " |" for row in rows]
    return "\n".join(["| Died | What was changed | Predicted and seen |", "|---|---|---|", *cells])


def _possible(one: Possibility) -> str:
    command = "\n\n   " + fence(one.command.splitlines(), "sh").replace("\n", "\n   ") + "\n" if one.command else ""
    return prose(wording.possibility(one)) + command


def _source(own: user_line.UserLine) -> list[str]:
    """The user's line, marked, with its neighbours."""
    if not own.around:
        return [clean(own.code or ""), *([own.carets] if own.carets is not None else [])]
    shown = []
    for number, line in own.around:
        shown.append(f"{'>' if number == own.line else ' '} {number:>4}  {clean(line)}")
        if number == own.line and own.carets is not None:
            shown.append(" " * 8 + own.carets_below(line))
    return shown


def _table(rows: Sequence[tuple[str, str]]) -> str:
    if not rows:
        return ""
    lines = ["| | |", "|---|---|"]
    last = None
    for name, value in rows:
        # A bar would end the cell, even where it is in code.
        cell = re.sub(r"(?<!\\)\|", r"\|", prose(value))
        lines.append(f"| {prose(name) if name != last else ''} | {cell} |")
        last = name
    return "\n".join(lines)


def _folded(title: str, content: str) -> str:
    if not content:
        return ""
    return f"<details><summary>{prose(title)}</summary>\n\n{content}\n\n</details>"


def prose(text: str) -> str:
    """Escape text except backticked code, because ``@name`` would notify a user and ``#1`` link to an issue."""
    pieces = re.split(r"`([^`\n]+)`", text)
    return "".join(code(piece) if place % 2 else _escaped(piece) for place, piece in enumerate(pieces))


def _escaped(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        char = match.group()
        if char in "@#":
            return f"{char}<!-- -->"
        if char in "<>&":
            return {"<": "&lt;", ">": "&gt;", "&": "&amp;"}[char]
        return f"\\{char}"

    return _SPECIAL.sub(one, clean(re.sub(r"\s+", " ", text)))


def code(text: str) -> str:
    """A span of code that holds any text."""
    text = clean(" ".join(text.split())) or " "
    ticks = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{space}{text}{space}{ticks}"


def fence(lines: Sequence[str], language: str = "text") -> str:
    """Lines as a block of code that nothing in them can end."""
    longest = max((len(run) for line in lines for run in re.findall(r"`+", line)), default=0)
    ticks = "`" * max(3, longest + 1)
    return "\n".join([ticks + language, *(line.rstrip() for line in lines), ticks])
