"""The full report for a terminal of 80 columns: one sentence, one thing to do, and all that they rest on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from necropsy.model import Diagnosis, Document, Evidence, Fix, Report, Thread
from necropsy.reports import experiments, stack, user_line, wording
from necropsy.reports.terminal import (
    BOLD,
    DIM,
    RED,
    YELLOW,
    Pen,
    clean,
    columns,
    command_lines,
    cut,
    cut_path,
    without_commands,
    wrap,
)

WHOLE_REPORTS = 3
"""Deaths of a run reported in full; others get a line each."""
OTHER_THREADS, OTHER_LINES = 5, 14
"""Places and lines for each that are shown of a hung process's other threads."""


def render(
    subject: Document | Report, *, color: bool = False, width: int = 80, json_file: Path | str | None = None
) -> str:
    """A report, or a run with its reports and stacks; lines fit ``width``, except commands that cannot be wrapped."""
    pen = Pen(color=color)
    if isinstance(subject, Report):
        return without_commands("\n".join(_report(subject, None, width, pen)) + "\n")
    lines: list[str] = []
    known: dict[str, Report] = {}
    for place, report in enumerate(subject.reports):
        same = known.get(report.signature or "")
        hung = wording.stood(report.crash) and (report.verdict is None or report.verdict.rule == "hang")
        follows = wording.follows(report, subject)
        if same is not None or place >= WHOLE_REPORTS or (place and hung) or follows:
            lines += ["", *_in_a_line(report, None if follows else same, width)]
            continue
        if report.signature:
            known[report.signature] = report
        lines += _report(report, subject, width, pen)
    if json_file is not None and subject.reports:
        lines += ["", *wrap(f"Everything that was seen: {json_file}", width, first="  ", rest="  ")]
    if wording.tells_of_stacks(subject):
        from necropsy.reports import stack_usage

        lines += stack_usage.draw(subject, width, pen)
    return without_commands("\n".join(lines) + "\n") if lines else ""


def _report(report: Report, document: Document | None, width: int, pen: Pen) -> list[str]:
    crash, verdict = report.crash, report.verdict
    tint = (BOLD, RED) if verdict is None or verdict.severity == "error" else (BOLD, YELLOW)
    lines = ["", *_tinted(wrap(user_line.headline(report), width, first="necropsy: ", rest="  "), pen, tint)]
    lines += _source_line(report, width, pen)
    quoted = wording.quotation(report)
    if quoted is not None:
        for line in quoted.lines:
            lines += wrap(line, width, first="  > ", rest="  > ")
    advice = experiments.helped(verdict.fixes) if verdict is not None else ()
    if advice:
        lines += _fix(advice[0], width, "  Do now: ")
    for one in report.contradictions:
        lines += wrap(wording.contradiction(one), width, first="  Note: ")
    lines.append("")
    lines += _facts(report, document, width, pen)
    if verdict is not None and verdict.deadlock:
        from necropsy.reports import deadlock

        drawn = (cut(clean(f"  {line}"), width) for line in deadlock.lines(verdict))
        lines += ["", pen(deadlock.TITLE, BOLD), *drawn]
    if verdict is not None:
        lines += ["", pen("Evidence", BOLD), *_evidence(wording.evidence(verdict), width, pen)]
    lines += _experiments(report, width, pen)
    thread = wording.shown_thread(crash)
    blamed = verdict.culprit.function if verdict is not None and verdict.culprit is not None else None
    if thread is not None and (drawing := stack.draw(thread, width, pen, blamed)):
        lines += [
            "",
            pen(cut(clean(f"Stack of {wording.thread_name(thread)}, innermost call first"), width), BOLD),
            *drawing,
        ]
    if crash.crashed_thread is None and thread is not None:
        lines += _others([one for one in crash.threads or () if one is not thread], width, pen)
    failed = experiments.did_not_help(verdict.fixes) if verdict is not None else ()
    for heading, fixes in (("What else to do", advice[1:]), ("What was tried, and did not help", failed)):
        lines += ["", pen(heading, BOLD)] if fixes else []
        for fix in fixes:
            lines += _fix(fix, width, "  * ")
    lines += _possible(verdict, width, pen)
    lines += _environment(report, width, pen)
    for heading, diagnoses in experiments.alternatives(report):
        lines += ["", pen(heading, BOLD)]
        for other in diagnoses:
            lines += wrap(experiments.rival(other), width, first="  * ")
    lines += _missing(report, width, pen)
    return lines


def _environment(report: Report, width: int, pen: Pen) -> list[str]:
    if not report.environment_findings:
        return []
    from necropsy.reports import environment

    lines = ["", pen(environment.TITLE, BOLD)]
    for found in report.environment_findings:
        lines += wrap(environment.finding(found), width, first="  * ")
        for fix in found.fixes[:1]:
            lines += _fix(fix, width, "    ")
    return lines


def _source_line(report: Report, width: int, pen: Pen) -> list[str]:
    """The user's place and source line, as in a traceback."""
    line = user_line.of_report(report)
    if line is None or (line.code is None and line.values is None):
        return []
    fits = columns(line.code or "") <= width - 6  # carets below what was cut would point at something else
    return [
        "",
        cut(clean(f"  {cut_path(line.file, width - 30)}:{line.line}"), width),
        *([pen(cut(clean(f"      {line.code}"), width), BOLD)] if line.code is not None else []),
        *([cut(f"      {line.carets}", width)] if line.carets is not None and fits else []),
        *(wrap(clean(line.values), width, first="      ") if line.values else ()),
        "",
    ]


def _others(threads: Sequence[Thread], width: int, pen: Pen) -> list[str]:
    """If nothing crashed, the others may wait for any thread."""
    from necropsy.reports.deadlock import group_names, group_title, grouped

    lines: list[str] = []
    groups = grouped(threads)
    for group in groups[:OTHER_THREADS]:
        drawing = [line for row in stack.draw(group[0], width, Pen(color=False)) for line in row.split("\n")]
        drawing = [line for line in drawing if not line.startswith("  [")]
        more = [f"    ... {len(drawing) - OTHER_LINES} more lines"] if len(drawing) > OTHER_LINES else []
        title = cut(clean(group_title(group)), width)
        lines += ["", pen(title[:1].upper() + title[1:], BOLD)]
        if len(group) > 1:
            lines.append(pen(cut(clean(f"  {', '.join(group_names(group))}"), width), DIM))
        lines += [*drawing[:OTHER_LINES], *more]
    if left := sum(map(len, groups[OTHER_THREADS:])):
        lines += ["", f"  and {left} more threads"]
    return lines


def _in_a_line(report: Report, same: Report | None, width: int) -> list[str]:
    who = f"process {report.pid}" if report.pid is not None else "another process"
    if same is not None:
        said = "were in the same place" if wording.stood(report.crash) else "died in the same way"
        return wrap(f"necropsy: {who} {said}.", width, rest="  ")
    rule = f" ({report.verdict.rule}, {report.verdict.confidence})" if report.verdict else ""
    return wrap(f"necropsy: {who}: {user_line.headline(report)}{rule}", width, rest="  ")


def _tinted(lines: Sequence[str], pen: Pen, codes: Sequence[str]) -> list[str]:
    return [pen(line, *codes) for line in lines]


def _fix(fix: Fix, width: int, first: str) -> list[str]:
    tried = {True: " (Tried: the crash went away.)", False: " (Tried: it still crashes.)", None: ""}[fix.verified]
    lines = wrap(fix.text + tried, width, first=first)
    if fix.command:
        lines += command_lines(fix.command, width, " " * len(first))
    return lines


def _facts(report: Report, document: Document | None, width: int, pen: Pen) -> list[str]:
    lines = []
    last = None
    for name, text in wording.facts(report, document):
        first, *rest = wrap(text, width, first=f"{name if name != last else '':<9}")
        lines += [pen(first[:9], BOLD) + first[9:], *rest]
        last = name
    return lines


def _evidence(evidence: Sequence[Evidence], width: int, pen: Pen) -> list[str]:
    lines = []
    for one in evidence:
        where = f" [{one.where}]" if one.where else ""
        wrapped = wrap(f"{one.claim}: {one.seen}{where}", width, first="  * ")
        if where and wrapped[-1].endswith(clean(where.strip())):
            last = wrapped[-1]
            cutting = len(last) - len(clean(where.strip()))
            wrapped[-1] = last[:cutting] + pen(last[cutting:], DIM)
        lines += wrapped
    return lines


def _experiments(report: Report, width: int, pen: Pen) -> list[str]:
    rows = experiments.rows(report)
    if not rows:
        return []
    died, what = experiments.HEADINGS
    lines = ["", pen("Experiments", BOLD), f"  {died:<10}{what}"]
    for row in rows:
        lines += wrap(row.change, width, first=f"  {row.died:<10}", rest=" " * 12)
        lines += wrap(row.told, width, first=" " * 14, rest=" " * 14)
    return lines


def _possible(verdict: Diagnosis | None, width: int, pen: Pen) -> list[str]:
    if verdict is None or not verdict.possible:
        return []
    lines = ["", pen(wording.possible_title(verdict.possible), BOLD)]
    for place, one in enumerate(verdict.possible, 1):
        first = f"  {place}. "
        lines += wrap(wording.possibility(one), width, first=first)
        lines += command_lines(one.command, width, " " * len(first)) if one.command else []
    return lines


def _missing(report: Report, width: int, pen: Pen) -> list[str]:
    lines: list[str] = []
    parts = wording.missing(report)
    if parts:
        lines += ["", pen("What was not observed", BOLD)]
        for why, names in parts.items():
            lines += wrap(f"{', '.join(names)}: {why}", width, first="  * ")
    left_out = wording.not_tried(report)
    if left_out is not None:
        lines += ["", pen("Rules that could not be tried", BOLD), *wrap(left_out, width, first="  * ")]
    return lines
