"""A report for a terminal of 80 columns: one sentence, one thing to do, and then what they rest on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from necropsy.model import Confidence, Crash, Culprit, Diagnosis, Document, Evidence, Exit, Fix, Process, Report, Thread
from necropsy.reports import healthy, stack
from necropsy.reports.layout import BOLD, DIM, RED, YELLOW, Pen, clean, cut, cut_path, wrap

MEANING: dict[Confidence, str] = {
    "certain": "a decisive observation, and no rival rule fits",
    "likely": "it fits, and the rivals fit worse",
    "possible": "only consistent with what was seen",
}
WHOLE_REPORTS = 3
"""So many deaths of one run are told in full; the others in a line each."""


def render(
    subject: Document | Report, *, color: bool = False, width: int = 80, json_file: Path | str | None = None
) -> str:
    """The text of a report, or of a run with all its reports and the stacks that its threads used.

    Every line has at most ``width`` columns, but for a quoted command that cannot be broken without changing it.
    """
    pen = Pen(color=color)
    if isinstance(subject, Report):
        return "\n".join(_report(subject, None, width, pen)) + "\n"
    lines: list[str] = []
    known: dict[str, Report] = {}
    for place, report in enumerate(subject.reports):
        same = known.get(report.signature or "")
        if same is not None or place >= WHOLE_REPORTS:
            lines += ["", *_in_a_line(report, same, width)]
            continue
        if report.signature:
            known[report.signature] = report
        lines += _report(report, subject, width, pen)
    if json_file is not None and subject.reports:
        lines += ["", *wrap(f"Everything that was seen: {json_file}", width, first="  ", rest="  ")]
    lines += healthy.draw(subject, width, pen)
    return "\n".join(lines) + "\n" if lines else ""


def _report(report: Report, document: Document | None, width: int, pen: Pen) -> list[str]:
    crash, verdict = report.crash, report.verdict
    tint = (BOLD, RED) if verdict is None or verdict.severity == "error" else (BOLD, YELLOW)
    lines = ["", *_tinted(wrap(headline(report), width, first="necropsy: ", rest="  "), pen, tint)]
    if verdict is not None and verdict.fixes:
        lines += _fix(verdict.fixes[0], width, "  Do now: ")
    lines.append("")
    lines += _facts(report, document, width, pen)
    if verdict is not None:
        lines += ["", pen("Evidence", BOLD), *_evidence(verdict.evidence, width, pen)]
    thread = crash.crashed_thread
    blamed = verdict.culprit.function if verdict is not None and verdict.culprit is not None else None
    if thread is not None and (drawing := stack.draw(thread, width, pen, blamed)):
        lines += ["", pen(cut(clean(f"Stack of {_name(thread)}, innermost call first"), width), BOLD), *drawing]
    if verdict is not None and len(verdict.fixes) > 1:
        lines += ["", pen("What else to do", BOLD)]
        for fix in verdict.fixes[1:]:
            lines += _fix(fix, width, "  * ")
    lines += _alternatives(report.alternatives, width, pen)
    lines += _missing(report, width, pen)
    return lines


def headline(report: Report) -> str:
    """The verdict's summary; without a verdict, how it ended and that no cause is known."""
    if report.verdict is not None:
        return report.verdict.summary
    end = report.crash.exit
    if end is not None and end.kind == "timeout":
        return "The process was stopped at the time limit. This is where it stood."
    return f"The process {_ended(report.crash)}; the cause was not recognised."


def _in_a_line(report: Report, same: Report | None, width: int) -> list[str]:
    who = f"process {report.pid}" if report.pid is not None else "another process"
    if same is not None:
        return wrap(f"necropsy: {who} died in the same way.", width, rest="  ")
    rule = f" ({report.verdict.rule}, {report.verdict.confidence})" if report.verdict else ""
    return wrap(f"necropsy: {who}: {headline(report)}{rule}", width, rest="  ")


def _tinted(lines: Sequence[str], pen: Pen, codes: Sequence[str]) -> list[str]:
    return [pen(line, *codes) for line in lines]


def _fix(fix: Fix, width: int, first: str) -> list[str]:
    tried = {True: " (Tried: the crash went away.)", False: " (Tried: it still crashes.)", None: ""}[fix.verified]
    lines = wrap(fix.text + tried, width, first=first)
    if fix.command:
        lines += _command(fix.command, width, " " * len(first))
    return lines


def _command(command: str, width: int, indent: str) -> list[str]:
    r"""A command to copy: never broken inside of quotes, elsewhere continued by ``\`` as a shell reads it."""
    lines = []
    for part in command.splitlines():
        text = clean(part)
        if len(indent) + len(text) <= width or "'" in text or '"' in text:
            lines.append(indent + text)
            continue
        broken = wrap(text, width - 2, first=indent, rest=indent + "    ")
        lines += [f"{line} \\" for line in broken[:-1]] + broken[-1:]
    return lines


def _facts(report: Report, document: Document | None, width: int, pen: Pen) -> list[str]:
    crash, verdict = report.crash, report.verdict
    rows: list[tuple[str, str]] = []
    process = _process(report, document)
    if process:
        rows.append(("Process", process))
    if verdict is not None:
        rows.append(("Verdict", f"{verdict.rule}, {verdict.confidence}: {MEANING[verdict.confidence]}"))
    rows.append(("Death", _death(crash)))
    if verdict is not None and verdict.culprit is not None:
        rows += [("Where" if place == 0 else "", text) for place, text in enumerate(_culprit(verdict.culprit))]
    if report.took_s is not None:
        rows.append(("Took", f"{report.took_s:.2f} s from death to report"))
    lines = []
    for name, text in rows:
        first, *rest = wrap(text, width, first=f"{name:<9}")
        lines += [pen(first[:9], BOLD) + first[9:], *rest]
    return lines


def _process(report: Report, document: Document | None) -> str | None:
    """Which of several processes it was; nothing where it can only be the command."""
    own: Process | None = document.processes[0] if document is not None and document.processes else None
    if document is None or own is None or report.pid is None or report.pid == own.pid:
        return None
    one = next((one for one in document.processes if one.pid == report.pid), None)
    role = f" ({one.role})" if one is not None and one.role else ""
    command = f": {' '.join(one.command)}" if one is not None and one.command else ""
    return f"{report.pid}{role}, a child of the command{command}"


def _death(crash: Crash) -> str:
    fault, thread = crash.fault, crash.crashed_thread
    if fault is None:
        return _ended(crash)
    text = fault.signal + (f" ({fault.code})" if fault.code else "")
    if fault.address is not None:
        text += f", {fault.access or 'access'} at {fault.address}"
    if fault.sender is not None and fault.sent_by_itself is False:
        text += f", sent by process {fault.sender}"
    if thread is not None:
        text += f", in {_name(thread)}"
    if crash.instruction is not None and crash.instruction.text:
        text += f", at `{crash.instruction.text}`"
    return text


def _ended(crash: Crash) -> str:
    return ending(crash.exit) if crash.exit is not None else "ended in an unknown way"


def ending(end: Exit) -> str:
    """How a process ended, as the predicate of a sentence: ``exited with code 1``."""
    if end.kind == "exited":
        return f"exited with code {end.code}" if end.code is not None else "exited"
    if end.kind == "signaled":
        return f"was killed by {end.signal}" if end.signal else "was killed by a signal"
    return {
        "timeout": "was stopped at the time limit",
        "running": "was still running",
        "lost": "was lost from sight",
        "unknown": "ended in an unknown way",
    }[end.kind]


def _name(thread: Thread) -> str:
    main = thread.stack is not None and thread.stack.is_main
    name = f" {thread.name}" if thread.name else ""
    return f"the main thread ({thread.tid})" if main else f"thread{name} ({thread.tid})"


def _culprit(culprit: Culprit) -> list[str]:
    texts = []
    if culprit.function or culprit.module:
        text = culprit.function or "an unnamed function"
        if culprit.module:
            text += f" in {culprit.module}"
        if culprit.source:
            text += f", {cut_path(culprit.source, 50)}" + (f":{culprit.line}" if culprit.line is not None else "")
        texts.append(text)
    if culprit.python is not None:
        place = culprit.python
        text = cut_path(place.file or "?", 50) + (f":{place.line}" if place.line is not None else "")
        texts.append("Python: " + text + (f" in {place.function}" if place.function else ""))
    if culprit.op or culprit.kernel:
        named = [f"op {culprit.op}" if culprit.op else "", f"kernel {culprit.kernel}" if culprit.kernel else ""]
        texts.append("TensorFlow: " + ", ".join(filter(None, named)))
    return texts


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


def _alternatives(alternatives: Sequence[Diagnosis], width: int, pen: Pen) -> list[str]:
    if not alternatives:
        return []
    lines = ["", pen("What else it could be", BOLD)]
    for one in alternatives:
        lines += wrap(f"{one.confidence}: {one.rule}. {one.summary}", width, first="  * ")
    return lines


def _missing(report: Report, width: int, pen: Pen) -> list[str]:
    lines: list[str] = []
    parts: dict[str, list[str]] = {}
    for gap in report.gaps:
        parts.setdefault(gap.why, []).append(gap.part)
    if parts:
        lines += ["", pen("What was not observed", BOLD)]
        for why, names in parts.items():
            lines += wrap(f"{', '.join(dict.fromkeys(names))}: {why}", width, first="  * ")
    if report.not_tried:
        lines += ["", pen("Rules that could not be tried", BOLD)]
        reasons = [one.reason.split(";") for one in report.not_tried]
        lacked = dict.fromkeys(part.split(" not captured")[0].strip() for reason in reasons for part in reason)
        names = [one.rule for one in report.not_tried]
        said = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
        lines += wrap(f"without {', '.join(lacked)}: {said}", width, first="  * ")
    return lines
