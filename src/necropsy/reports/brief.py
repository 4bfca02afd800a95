"""The short report for a terminal: what happened, where, why, what to do, and where to find the rest.

It has at most ``MOST`` lines, with the advice among the first twelve. Stacks, all evidence, other causes and gaps are
in the full report, which ``text`` renders.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from necropsy.model import Diagnosis, Document, Fix, Report
from necropsy.reports import experiments, user_line, wording
from necropsy.reports.terminal import (
    BOLD,
    RED,
    YELLOW,
    Pen,
    clean,
    columns,
    command_lines,
    cut,
    cut_path,
    file_name,
    parted,
    shortened,
    without_commands,
    wrap,
)
from necropsy.reports.user_line import UserLine

MOST = 20
"""Lines of a report, including other deaths and the closing hint."""
AGAIN = "the same command with --full"
"""Shows the full report if none is kept."""
_LABEL = 11
_HEADLINE, _BEFORE_ADVICE, _ADVICE, _OTHERS, _CLOSING = 3, 9, 5, 3, 4
"""Lines of the headline, of all that is before the advice, of one piece of advice, for other deaths, at the end."""
_REASONS = 3


def render(
    subject: Document | Report,
    *,
    color: bool = False,
    width: int = 80,
    again: str | None = None,
) -> str:
    """The short text of a report, or of a run with all its reports and its threads' stacks.

    ``again``: the command for the full report; None if the caller adds ``closing``. Lines are at most ``width``
    columns, except commands that cannot be wrapped.
    """
    pen = Pen(color=color)
    document = subject if isinstance(subject, Document) else None
    reports = subject.reports if isinstance(subject, Document) else (subject,)
    lines: list[str] = []
    if reports:
        shown = _first_lines(reports[0], document, width, pen)
        others = _others(reports, document, width, MOST - _CLOSING - len(shown) - 1)
        room = MOST - _CLOSING - len(others)
        for row in _rows(reports[0], width, pen):
            if len(shown) + len(row) <= room:
                shown += row
        lines += ["", *shown, *others]
        lines += closing(reports[0], again, width) if again is not None else []
    if document is not None and wording.tells_of_stacks(document):
        from necropsy.reports import stack_usage

        lines += stack_usage.draw(document, width, pen)
    return without_commands("\n".join(lines) + "\n") if lines else ""


def closing(report: Report, again: str, width: int, *, seen: int = 0, json_file: Path | str | None = None) -> list[str]:
    """The last lines: how much is not shown, the command that shows it, how often the crash was ``seen`` before."""
    counted = _counts(report)
    lines = ["", *([cut(f"  Not shown: {', '.join(counted)}", width)] if counted else ())]
    if json_file is not None:
        lines += wrap(f"Everything that was seen: {json_file}", width, first="  ")
    shown, marks = f"  Full report: {clean(again)}", _marks(report, seen)
    if columns(shown + marks) <= width:
        return [*lines, shown + marks]
    return [*lines, shown, *wrap(marks.strip(), width, first="    ")]


def _marks(report: Report, seen: int) -> str:
    """How to recognise the crash: the rule, and how often it was seen."""
    rule = [report.verdict.rule] if report.verdict is not None else []
    times = [before(seen)[2:-1]] if seen else []
    return f" ({', '.join([*rule, *times])})" if rule or times else ""


def before(seen: int) -> str:
    """`` (seen 4 times before)``; nothing for 0."""
    return f" (seen {seen} time{'s' if seen > 1 else ''} before)" if seen else ""


def children(document: Document) -> str | None:
    """One line for a successful run with crashed children, naming a common cause; None for any other run."""
    own = document.processes[0] if document.processes else None
    reports = document.reports
    if own is None or own.exit is None or (own.exit.kind, own.exit.code) != ("exited", 0) or not reports:
        return None
    if any(report.pid in {None, own.pid} or wording.stood(report.crash) for report in reports):
        return None
    kinds = {report.signature or user_line.headline(report) for report in reports}
    if len(kinds) > 1:
        return f"necropsy: {len(reports)} child processes crashed ({len(kinds)} kinds)"
    many = f"{len(reports)} child processes" if len(reports) > 1 else "a child process"
    return f"necropsy: {many} crashed: {clean(user_line.headline(reports[0])).rstrip('.')}"


def _first_lines(report: Report, document: Document | None, width: int, pen: Pen) -> list[str]:
    """Always shown: the headline, where, why, and the first advice."""
    verdict = report.verdict
    tint = (BOLD, RED) if verdict is None or verdict.severity == "error" else (BOLD, YELLOW)
    said = user_line.headline(report)
    more: str | None = None
    if len(wrap(said, width, first="necropsy: ", rest="  ")) > _HEADLINE - 1:
        said, more = parted(said)
    headline = shortened(wrap(said, width, first="necropsy: ", rest="  "), _HEADLINE, width)
    lines = [pen(line, *tint) for line in headline]
    where = _where(report, document, width, pen)
    lines += ["", *where] if where else []
    if verdict is None:
        known = f"No rule recognised it. What is known: {wording.death(report.crash)}."
        lines += ["", *_row("Why", known, width, pen)]
    else:
        sentences = [*([more] if more is not None else []), *_reasons(report, verdict, said)]
        lines += ["", *_why(sentences, verdict.confidence, width, pen, max(1, _BEFORE_ADVICE - len(lines)))]
    advice = experiments.helped(verdict.fixes) if verdict is not None else ()
    if advice:
        lines += _fix("Do now", _without_preface(advice[0]), width, pen)
    return lines


def _where(report: Report, document: Document | None, width: int, pen: Pen) -> list[str]:
    """The user's line with its source, the native code it led to, and the program's own message."""
    line, verdict = user_line.of_report(report), report.verdict
    process = wording.short_process(report, document)
    lines: list[str] = []
    if line is not None:
        function = f" in {line.function}" if line.function and line.function != "<module>" else ""
        place = f"  {cut_path(line.file, width - 30)}:{line.line}{function}{f'  ({process})' if process else ''}"
        lines += [cut(clean(place), width), *_source(line, width, pen)]
    elif process:
        lines.append(cut(clean(f"  {process}"), width))
    culprit = verdict.culprit if verdict is not None else None
    # The interpreter's own functions say nothing to most readers; the full report names them.
    if culprit is not None and culprit.owner == "interpreter" and line is not None:
        culprit = None
    native = wording.native(culprit, width // 2) if culprit is not None else None
    if native is not None:
        lines.append(cut(clean(f"  {'calls ' if line is not None else ''}{native}"), width))
    quoted = wording.quotation(report)
    if quoted is not None:
        lines += [cut(f"      | {one}", width) for one in quoted.lines[-2:]]
    return lines


def _source(line: UserLine, width: int, pen: Pen) -> list[str]:
    """The source line as in a traceback, and the variables' values."""
    shown = [pen(cut(clean(f"      {line.code}"), width), BOLD)] if line.code is not None else []
    return shown + ([cut(clean(f"      {line.values}"), width)] if line.values is not None else [])


_SAID_ALREADY = (
    *("the process died by", "the process ended by", "abort() was called"),
    *("a traceback was printed", "the last lines"),
)


def _reasons(report: Report, verdict: Diagnosis, said: str) -> list[str]:
    """Evidence as sentences, the decisive first, without repeating the headline and the lines below it."""
    quoted = wording.quotation(report)
    shown = _words(" ".join([said, *(quoted.lines if quoted is not None else ())]))
    known = [one for one in verdict.evidence if one.claim == wording.KNOWN]
    told = [
        one
        for one in wording.evidence(verdict)
        if one.claim not in {wording.LED_HERE, wording.KNOWN} and not one.claim.startswith(_SAID_ALREADY)
    ]
    told.sort(key=lambda one: one.claim in _MACHINE)
    news = [one for one in told if len(_words(one.seen) - shown) > _NEW * len(_words(one.seen))]
    chosen = [*known, *news] or told[:1] or list(verdict.evidence[:1])
    return [f"{_capital(one.claim)}: {one.seen.rstrip('.:')}." for one in chosen]


def _capital(text: str) -> str:
    """Not if it begins with a function's name."""
    return text[:1].upper() + text[1:] if text.split(" ", 1)[0].isalpha() else text


_MACHINE = frozenset(
    {
        "the instruction that faulted",
        "the code that ends the program after a failed check",
        "the code that reports a failed check",
        "the code that reports a failed assertion",
    }
)
"""Claims about instructions and the frames above abort(), which tell most readers less."""
_NEW = 0.3
"""Share of new words that a sentence needs to be shown."""


_STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T][\d:.,]+(?:: [DIWEF]\b)?")
"""A log's prefix of a message."""


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", _STAMP.sub("", text).lower()))


def _why(sentences: Sequence[str], sure: str, width: int, pen: Pen, room: int) -> list[str]:
    """As many sentences as fit into ``room`` lines, at least one, and ``sure`` at the end."""
    lines = wrap(sentences[0], width, first=_first("Why"))
    for count in range(2, min(len(sentences), _REASONS) + 1):
        longer = wrap(" ".join(sentences[:count]), width, first=_first("Why"))
        if len(longer) > room:
            break
        lines = longer
    if len(lines) > max(room, 2):
        lines = shortened(lines, max(room, 2), width - len(sure) - 2)
    gap = width - columns(lines[-1]) - len(sure)
    if gap < 2:
        lines, gap = [*lines, ""], width - len(sure)
    first, *others = lines
    lines = [pen(first[:_LABEL], BOLD) + first[_LABEL:], *others]
    lines[-1] += " " * gap + pen(sure, BOLD)
    return lines


def _rows(report: Report, width: int, pen: Pen) -> list[list[str]]:
    """Rows after the first advice, most useful first, limited by the room."""
    verdict = report.verdict
    rows = [_row("Note", wording.contradiction(one), width, pen) for one in report.contradictions]
    if verdict is not None and (tried := wording.status(verdict)):
        rows.append(_row("Proof", f"{_capital(tried)}.", width, pen))
        rows += [_experiment(row, width) for row in experiments.rows(report)]
    if (now := _for_now(verdict)) is not None:
        rows.append(_fix("For now", now, width, pen))
    if (threads := _threads(report)) is not None:
        rows.append(_row("Threads", threads, width, pen))
    rows += [_row("Found", f"{one.summary} [{one.rule}]", width, pen) for one in report.environment_findings[:1]]
    return rows


def _threads(report: Report) -> str | None:
    """Other threads of a live process: the shown thread may wait for any of them."""
    shown = wording.shown_thread(report.crash)
    if shown is None or not wording.stood(report.crash):
        return None
    from necropsy.reports.deadlock import group_title, grouped

    groups = grouped(one for one in report.crash.threads or () if one is not shown)
    said = []
    for group in groups[:_OTHERS]:
        own = (one for one in group[0].python or () if one.owner == "script" and one.source and one.line)
        places = [f", at {file_name(one.source or '')}:{one.line}" for one in own]
        said.append(group_title(group) + "".join(places[:1]))
    if left := sum(map(len, groups[_OTHERS:])):
        said.append(f"{left} more")
    return f"{'; '.join(said)}." if said else None


def _experiment(row: experiments.ExperimentRow, width: int) -> list[str]:
    return [cut(clean(f"{' ' * _LABEL}{row.died:>6} died  {row.change}"), width)]


_WORKAROUND = "As a workaround, "


def _for_now(verdict: Diagnosis | None) -> Fix | None:
    """The workaround in a sentence; if the first advice is to install a fix, the next one."""
    if verdict is None:
        return None
    advice = experiments.helped(verdict.fixes)[1:]
    found = next((one for one in advice if one.text.startswith(_WORKAROUND)), None)
    if found is None:
        is_known = any(one.claim == wording.KNOWN for one in verdict.evidence)
        return advice[0] if is_known and advice else None
    short = _without_preface(found)
    return Fix(text=parted(short.text)[0], command=short.command, verified=short.verified)


def _without_preface(fix: Fix) -> Fix:
    text = fix.text.removeprefix(_WORKAROUND)
    return Fix(text=text[:1].upper() + text[1:], command=fix.command, verified=fix.verified)


def _others(reports: Sequence[Report], document: Document | None, width: int, most: int) -> list[str]:
    """Other deaths in ``most`` lines, at least one; equal ones share a line."""
    first, *more = reports
    same = [one for one in more if one.signature is not None and one.signature == first.signature]
    groups: dict[object, list[Report]] = {None: same} if same else {}
    for one in more:
        if one not in same:
            groups.setdefault(one.signature or user_line.headline(one), []).append(one)
    lines: list[str] = []
    told = list(groups.values())
    shown = min(max(1, most - 1), _OTHERS + 1)
    kept = told if len(told) <= shown else told[: shown - 1]
    for group in kept:
        if group is same:
            did = "were in the same place" if wording.stood(first.crash) else "died in the same way"
            pids = ", ".join(str(one.pid) for one in same[:4]) + (", ..." if len(same) > 4 else "")
            lines.append(cut(f"  {_processes(len(same))} {did}: {pids}", width))
            continue
        if len(group) == 1 and group[0].consequence_of == first.pid and (failed := _failed(group[0])) is not None:
            lines += shortened(wrap(failed, width, first="  ", rest="    "), 2, width)
            continue
        who = wording.short_process(group[0], document) or f"process {group[0].pid}"
        who = f"{len(group)} processes" if len(group) > 1 else who
        lines.append(cut(clean(f"  {_capital(who)}: {user_line.headline(group[0])}"), width))
    if left := sum(map(len, told[len(kept) :])):
        lines.append(f"  {_processes(left)}{'' if wording.stood(first.crash) else ' died'}.")
    return ["", *lines] if lines else []


def _failed(report: Report) -> str | None:
    """What another process raised because of this death: ``train.py:40 then raised RuntimeError: ...``."""
    said = (one.fields for one in reversed(report.crash.messages or ()) if one.kind == "python-traceback")
    raised = next((one for one in said if "exception" in one and "ignored" not in one), None)
    if raised is None:
        return None
    file, number = raised.get("user_file"), raised.get("user_line")
    place = f"{file_name(file)}:{number}" if file and number else f"process {report.pid}"
    exception, words = raised["exception"].rpartition(".")[2], " ".join(raised.get("text", "").split())
    return f"{place} then raised {exception}" + (f": {words}" if words else "")


def _processes(count: int) -> str:
    return "1 more process" if count == 1 else f"{count} more processes"


def _counts(report: Report) -> list[str]:
    verdict = report.verdict
    advice = experiments.helped(verdict.fixes)[1:] if verdict is not None else ()
    remedies = len(advice) - (_for_now(verdict) is not None)
    causes = len(verdict.possible) if verdict is not None else 0
    causes += sum(one.status != "refuted" for one in report.alternatives)
    unseen = sum(map(len, wording.missing(report).values()))
    found = len(report.environment_findings) - 1
    counted = (
        (remedies, "other remedy", "other remedies"),
        (causes, "other possible cause", "other possible causes"),
        (unseen, "thing not observed", "things not observed"),
        (found, "other finding in this environment", "other findings in this environment"),
    )
    return [f"{count} {one if count == 1 else many}" for count, one, many in counted if count > 0]


def _first(label: str) -> str:
    return f"  {label:<{_LABEL - 2}}"[:_LABEL]


def _row(label: str, text: str, width: int, pen: Pen, most: int = _ADVICE) -> list[str]:
    first, *others = shortened(wrap(text, width, first=_first(label)), most, width)
    return [pen(first[:_LABEL], BOLD) + first[_LABEL:], *others]


def _fix(label: str, fix: Fix, width: int, pen: Pen) -> list[str]:
    tried = {True: " (Tried: the crash went away.)", False: " (Tried: it still crashes.)", None: ""}[fix.verified]
    commands = command_lines(fix.command, width, " " * (_LABEL + 4)) if fix.command else []
    return [*_row(label, fix.text + tried, width, pen, max(2, _ADVICE - len(commands))), *commands]
