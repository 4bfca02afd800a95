"""What every report format says in the same words: the headline, the death, who did it, what was not observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.model import (
    Confidence,
    Contradiction,
    Coroutine,
    Crash,
    Culprit,
    Diagnosis,
    Document,
    Evidence,
    Exit,
    Fault,
    NtStatus,
    Possibility,
    Process,
    Report,
    Task,
    Thread,
)
from necropsy.reports.stack import fit_name
from necropsy.reports.terminal import cut_path, file_name, lines_of

MEANING: dict[Confidence, str] = {
    "certain": "proved by what was observed",
    "likely": "the best explanation; others fit less well",
    "possible": "consistent with what was observed, but not proved",
}


LED_HERE = "the line of Python that led here"
KNOWN = "reported and fixed elsewhere"
"""Claim of the evidence for a crash that its package has fixed."""
_SENT = frozenset({"SI_USER", "SI_TKILL", "SI_QUEUE"})


def headline(report: Report) -> str:
    """The verdict's summary; without a verdict, how it ended and that no cause is known."""
    if report.verdict is not None:
        return report.verdict.summary
    if report.consequence_of is not None:
        return f"This process ended because process {report.consequence_of} had died: see above."
    end = report.crash.exit
    if end is not None and end.kind == "timeout":
        return "The process was stopped at the time limit. This is what it was doing."
    if lives(report.crash):
        return "The process runs. This is what it is doing."
    return f"The process {_ended(report.crash)}; the cause was not recognised."


@dataclass(frozen=True)
class Quotation:
    """Several lines of the program's own, below a line that says where they are from."""

    title: str
    lines: tuple[str, ...]


def quotation(report: Report) -> Quotation | None:
    """The last words in full, where the summary has them in one line only."""
    words = report.verdict.last_words if report.verdict is not None else None
    if words is None:
        return None
    lines = tuple(line for line in lines_of(words.text) if line.strip())
    if len(lines) < 2 and words.text.strip() in headline(report):
        return None
    return Quotation(f"Its last words ({words.where})", lines)


def facts(report: Report, document: Document | None) -> list[tuple[str, str]]:
    """Rows of a table: which process, the verdict and how sure it is, the death, where. A name may come twice."""
    verdict = report.verdict
    rows: list[tuple[str, str]] = []
    process = process_of(report, document)
    if process:
        rows.append(("Process", process))
    if verdict is not None:
        rows.append(("Verdict", f"{verdict.rule}, {verdict.confidence}: {MEANING[verdict.confidence]}"))
        if tried := status(verdict):
            rows.append(("Proof", tried))
    rows.append(("State" if stood(report.crash) else "Death", death(report.crash)))
    if verdict is not None and verdict.culprit is not None:
        rows += [("Where", text) for text in culprit(verdict.culprit)]
    thread = shown_thread(report.crash)
    rows += [("asyncio", text) for text in spelled(thread)] if thread is not None else []
    if report.took_s is not None:
        since = "" if stood(report.crash) else " from death to report"
        rows.append(("Took", f"{report.took_s:.2f} s{since}"))
    return rows


def process_of(report: Report, document: Document | None) -> str | None:
    """Which of several processes it was; nothing where it can only be the command."""
    if not _is_child(report, document):
        return None
    one = _process(report, document)
    role = f" ({one.role})" if one is not None and one.role else ""
    command = f": {' '.join(one.command)}" if one is not None and one.command else ""
    return f"{report.pid}{role}, a child of the command{command}"


def short_process(report: Report, document: Document | None) -> str | None:
    """The same in two words: ``worker process 4712``."""
    if not _is_child(report, document):
        return None
    one = _process(report, document)
    return f"{one.role if one is not None and one.role else 'child'} process {report.pid}"


def _is_child(report: Report, document: Document | None) -> bool:
    own = document.processes[0] if document is not None and document.processes else None
    return own is not None and report.pid is not None and report.pid != own.pid


def _process(report: Report, document: Document | None) -> Process | None:
    processes = document.processes if document is not None else ()
    return next((one for one in processes if one.pid == report.pid), None)


def follows(report: Report, document: Document | None) -> bool:
    """Another death explains it, which is told before: a line is enough."""
    return document is not None and any(
        report.consequence_of is not None and one.pid == report.consequence_of for one in document.reports
    )


def tells_of_stacks(document: Document) -> bool:
    """Whether the text ends with how the command ended and what its stacks held.

    It does for a run whose stacks were measured, or in which nothing died. Otherwise the reports on deaths say enough.
    """
    if document.kind != "run" or not document.processes:
        return False
    return document.processes[0].stacks is not None or not document.reports


def lives(crash: Crash) -> bool:
    """It was read while it ran, and was not stopped for good."""
    return crash.exit is not None and crash.exit.kind == "running"


def stood(crash: Crash) -> bool:
    """It was read while it lived: it did not die of itself."""
    return crash.fault is None and crash.exit is not None and crash.exit.kind in {"running", "timeout"}


def shown_thread(crash: Crash) -> Thread | None:
    """The thread whose stack is shown: the one that crashed, or the main thread of a process that hung."""
    if crash.crashed_thread is not None or (crash.fault is not None and crash.stop_request is None):
        return crash.crashed_thread
    threads = crash.threads or ()
    return next(
        (one for one in threads if one.tid is not None and one.tid == crash.pid), threads[0] if threads else None
    )


def thread_title(thread: Thread) -> str:
    """Its name, and what it waits for."""
    text = thread_name(thread)
    if thread.waits is not None:
        doing = "was" if thread.waits.ended else "waits"
        text += f", {doing} in {thread.waits.call}" + (f" for {thread.waits.on}" if thread.waits.on else "")
    return text + (", holds the GIL" if thread.holds_gil else "")


def death(crash: Crash) -> str:
    """What killed it, as the system said it: signal or status, address, thread, instruction."""
    fault, thread = crash.fault, crash.crashed_thread
    status = crash.exit.ntstatus if crash.exit is not None else None
    if status is not None and (fault is not None or thread is not None):
        text = of_status(status)
    elif fault is None:
        return _ended(crash) if crash.exit is not None else "how it ended was not told"
    else:
        text = fault.signal + (f" ({fault.code})" if fault.code else "")
    if fault is not None and fault.address is not None:
        text += f", {fault.access or 'access'} at {fault.address}"
    if fault is not None and fault.sender is not None and fault.sent_by_itself is False:
        text += f", sent by {_sender(fault)}"
    if thread is not None:
        text += f", in {thread_name(thread)}"
    # Of a signal that somebody sent, abort() among them, the instruction is only the one that sends it.
    if crash.instruction is not None and crash.instruction.text and (fault is None or fault.code not in _SENT):
        text += f", at `{crash.instruction.text}`"
    end = crash.in_handler
    if end is not None:
        code = f"ended the program with exit code {end.code}" if end.code is not None else "did not come to an end"
        text += f"; the program's handler {code}"
    return text


def _sender(fault: Fault) -> str:
    if not fault.sender:
        return "a process that cannot be seen from here"
    text = " ".join(" ".join(fault.sender_command or ()).split())
    shown = text if len(text) <= _COMMAND_SHOWN else text[:_COMMAND_SHOWN] + " ..."
    return f"process {fault.sender}" + (f" ({shown})" if shown else "")


_COMMAND_SHOWN = 80


def of_status(status: NtStatus) -> str:
    """A status of Windows: ``0xC0000005 STATUS_ACCESS_VIOLATION``; with a subcode that, because the status misleads."""
    if status.fast_fail is not None:
        named = f", {status.fast_fail.name}" if status.fast_fail.name else ""
        return f"{status.value} subcode {status.fast_fail.code}{named}"
    return status.value + (f" {status.name}" if status.name else "")


def _ended(crash: Crash) -> str:
    return ending(crash.exit) if crash.exit is not None else "ended in an unknown way"


def ending(end: Exit) -> str:
    """How a process ended, as the predicate of a sentence: ``exited with code 1``."""
    if end.ntstatus is not None:
        return f"ended with {of_status(end.ntstatus)} ({end.ntstatus.signed})"
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


def end_in_a_word(crash: Crash) -> str:
    """How it ended, for a table: ``SIGSEGV``, ``0xC0000005``, ``exit 1``, ``timeout``."""
    if crash.exit is not None and crash.exit.ntstatus is not None:
        return crash.exit.ntstatus.value
    if crash.fault is not None:
        return crash.fault.signal
    end = crash.exit
    if end is None:
        return "unknown"
    return end.signal or (f"exit {end.code}" if end.code is not None else end.kind)


def thread_name(thread: Thread) -> str:
    """``the main thread (4711)``, ``thread tf_Compute (4712)``."""
    main = thread.stack is not None and thread.stack.is_main
    name = f" {thread.known_as}" if thread.known_as else ""
    number = f" ({thread.tid})" if thread.tid is not None else ""
    if not main and not name and thread.tid is not None:
        return f"thread {thread.tid}"
    return f"the main thread{number}" if main else f"thread{name}{number}" if name or number else "one thread"


def culprit(one: Culprit) -> list[str]:
    """Who did it, in a line for each side that knows it: native code, Python, the framework."""
    texts = []
    place = one.python
    if (text := native(one)) is not None:
        texts.append(text)
    if place is not None:
        text = cut_path(place.file or "?", 50) + (f":{place.line}" if place.line is not None else "")
        texts.append("Python: " + text + (f" in {place.function}" if place.function else ""))
    if one.op or one.kernel:
        named = [f"op {one.op}" if one.op else "", f"kernel {one.kernel}" if one.kernel else ""]
        texts.append("TensorFlow: " + ", ".join(filter(None, named)))
    return texts


def native(one: Culprit, columns: int | None = None) -> str | None:
    """The native function, its owner and source, or None; with ``columns`` for the name, the source has no folder."""
    place = one.python
    is_python = place is not None and (one.source, one.line) == (place.file, place.line)
    if is_python or not (one.function or one.module):
        return None
    text = "the nearest frame that is not the interpreter's: " if one.nearest else ""
    name = one.function or "an unnamed function"
    text += fit_name(name, columns) if columns is not None else name
    if one.module:
        text += f" in {whose_module(one)}"
    if one.source:
        source = cut_path(one.source, 50) if columns is None else file_name(one.source)
        text += f", {source}" + (f":{one.line}" if one.line is not None else "")
    return text


def whose_module(one: Culprit) -> str:
    """The culprit's module in words: ``your own native module op.so``, ``_foo.so of the package foo 1.2``."""
    module = one.module or "an unknown module"
    named = f"{one.package} {one.version}" if one.version else one.package
    if one.owner == "native-code":
        return f"your own native module {module}"
    if one.owner == "package":
        return f"{module} of the package {named}" if named else f"{module} of another package"
    if one.owner == "framework":
        return f"{module} of {named or 'the framework'}"
    if one.owner == "interpreter":
        return f"{module}, the interpreter"
    return f"{module}, a library of the system" if one.owner == "system" else module


def evidence(verdict: Diagnosis) -> tuple[Evidence, ...]:
    """What the verdict rests on; the line of Python is left out where *Where* has it."""
    place = verdict.culprit.python if verdict.culprit is not None else None
    return tuple(
        one
        for one in verdict.evidence
        if place is None or one.claim != LED_HERE or not (one.where or "").startswith("the Python code of ")
    )


def status(one: Diagnosis) -> str | None:
    """What the experiments say of a verdict; None where there were none."""
    if not one.experiments:
        return None
    return {
        "confirmed": "confirmed by experiment",
        "refuted": "refuted by experiment: it is not the cause",
        "inconclusive": _undecided(one),
        "observed": "observed; no experiment could decide",
    }[one.status]


def _undecided(one: Diagnosis) -> str:
    first, tried = one.experiments[0], one.experiments[1:]
    if first.name == "unchanged" and first.runs and not first.crashed:
        return f"not decided: the crash did not come again in {first.runs} runs"
    if any(row.name == "unchanged-again" and not row.crashed for row in tried):
        return "not decided: the crash went away by itself"
    made = [row for row in tried if row.runs and not row.outcome.startswith("could not be run")]
    if made and all(row.crashed for row in made):
        return "not decided: it died under each change that was tried"
    return "not decided by the experiments that could be made"


def contradiction(one: Contradiction) -> str:
    """Two inputs that cannot both be true, and which to believe."""
    believed = f" Believe {one.right}: " if one.right else " "
    why = one.why if one.right else one.why[:1].upper() + one.why[1:]
    return f"{one.said} and {one.against} contradict each other.{believed}{why.rstrip('.')}."


def possible_title(possible: Sequence[Possibility]) -> str:
    """The heading of what is left open: the order is only said to be of frequency where somebody counted."""
    return "Possible causes" + (", most often first" if any(one.share for one in possible) else "")


def possibility(one: Possibility) -> str:
    """A cause that is left open: how often it was the one, and what to look at."""
    share = f" ({one.share})" if one.share else ""
    rule = f" [{one.rule}]" if one.rule else ""
    decide = f" How to check: {one.decide.rstrip('.')}{'' if one.decide.endswith('?') else '.'}" if one.decide else ""
    return f"{one.cause.rstrip('.')}{share}{rule}.{decide}"


def missing(report: Report) -> dict[str, list[str]]:
    """Gaps: each reason with its parts, each part once; a live process has no fault to miss."""
    parts: dict[str, list[str]] = {}
    for gap in report.gaps:
        if gap.part == "fault" and stood(report.crash):
            continue
        if gap.part not in parts.setdefault(gap.why, []):
            parts[gap.why].append(gap.part)
    return parts


def not_tried(report: Report) -> str | None:
    """The rules that could not be asked, in a sentence's worth; None where all were, or where nothing died."""
    if not report.not_tried or stood(report.crash):
        return None
    reasons = [one.reason.split(";") for one in report.not_tried]
    lacked = dict.fromkeys(part.split(" not captured")[0].strip() for reason in reasons for part in reason)
    names = [one.rule for one in report.not_tried]
    said = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"without {', '.join(lacked)}: {said}"


_MOST_AWAITS = 4


def spelled(thread: Thread) -> list[str]:
    """``Task-3 ran child (app.py:8), which awaited leaf (app.py:4)``, then one line for each task that waits for it."""
    return [_spelled(task, "waits for it in" if place else "ran") for place, task in enumerate(thread.tasks)]


def _spelled(task: Task, does: str) -> str:
    """Outermost first; the two ends of a long chain."""
    chain = [_place(one) for one in reversed(task.awaits)]
    if len(chain) > _MOST_AWAITS:
        chain = [chain[0], f"{len(chain) - _MOST_AWAITS + 1} more", *chain[-_MOST_AWAITS + 2 :]]
    name = task.name or "A task"
    return f"{name} {does} " + ", which awaited ".join(chain) if chain else f"{name} {does.removesuffix(' in')}"


def _place(one: Coroutine) -> str:
    line = f":{one.line}" if one.line is not None else ""
    return f"{one.function or '?'} ({file_name(one.source or '?')}{line})"
