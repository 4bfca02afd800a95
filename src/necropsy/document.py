"""From the end of a run to its document: every death diagnosed, secrets masked, the command's own report first."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Container, Sequence
from datetime import datetime, timezone

import msgspec

from necropsy import __version__, redact
from necropsy.consequences import RunDeaths, by_cause, command_of, is_native, signal_of
from necropsy.diagnose import diagnose
from necropsy.model import Crash, Diagnosis, Document, Fix, Gap, Possibility, Process, Report, RunRecord, Subject, Tool
from necropsy.rule import Rule

SILENT_RULES = frozenset({"python-exception", "exit-status-only"})
"""Verdicts on a plain non-zero exit that say no more than the program said itself."""
SILENT_SIGNALS = frozenset({"SIGINT", "SIGPIPE"})
"""Requested ends, on which a shell prints nothing either: Ctrl-C, and a reader that closed its pipe."""
SILENT_STATUSES = frozenset({"0xC000013A"})
"""The same on Windows: STATUS_CONTROL_C_EXIT."""
PARENTS_SIGNALS = frozenset({"SIGTERM", "SIGKILL", "SIGHUP"})
"""What a parent stops its children with: no news, unless it was somebody else."""


def of_run(ended: RunRecord, command: Sequence[str], rules: Sequence[Rule[Crash]]) -> Document:
    """The document of a run: one report for each death, by cause; else the command's own first, then by time."""
    own = command_of(ended.processes)
    crashes = _in_order(ended.crashes, own)
    if not any(own is not None and crash.pid == own.pid for crash in crashes) and _failed(own):
        crashes = (_plain(ended, own), *crashes)
    return redact.document(
        Document(
            kind="run",
            id=new_id(),
            tool=Tool(name="necropsy", version=__version__),
            complete=True,
            subject=Subject(kind="process", command=tuple(command)),
            host=host(),
            processes=_with_python(ended.processes, crashes),
            reports=by_cause(tuple(of_watched(_report(crash, rules)) for crash in crashes), ended.processes),
            gaps=ended.gaps,
        )
    )


def of_crash(crash: Crash, subject: Subject, rules: Sequence[Rule[Crash]], process: Process | None = None) -> Document:
    """The document of one crash that was read from elsewhere: from a core, or from a process that runs."""
    return redact.document(
        Document(
            kind="diagnosis",
            id=new_id(),
            tool=Tool(name="necropsy", version=__version__),
            complete=True,
            subject=subject,
            host=host() if subject.kind == "process" else None,
            processes=_with_python((process,) if process is not None else (), (crash,)),
            reports=(_report(crash, rules) if subject.kind == "process" else diagnose(redact.crash(crash), rules),),
        )
    )


def _with_python(processes: Sequence[Process], crashes: Sequence[Crash]) -> tuple[Process, ...]:
    found = {one.pid: one.environment.python for one in crashes if one.environment is not None}
    return tuple(
        msgspec.structs.replace(one, python=found[one.pid]) if one.python is None and found.get(one.pid) else one
        for one in processes
    )


def new_id(now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)) -> str:
    """An id that sorts by time: ``20261121T004512Z-9f86d081``. Two of one second are the same once in 2**32."""
    return f"{now():%Y%m%dT%H%M%SZ}-{os.urandom(4).hex()}"


def host() -> str | None:
    """The name of this machine, or of the container; None where it has none."""
    if sys.platform == "win32":
        return os.environ.get("COMPUTERNAME") or None
    return os.uname().nodename or None


def news(document: Document, *, timed_out: bool = False) -> Document:
    """The document with only the reports that are news to the user; see ``is_news``.

    ``timed_out``: necropsy stopped the command. If a launcher waits for the program, only the program's report is news.
    """
    own = command_of(document.processes)
    members = frozenset(process.pid for process in document.processes)
    asked = next((one for one in document.reports if _is_own(one, own) and one.crash.stop_request is not None), None)
    launchers = _launchers(document) if timed_out or asked is not None else frozenset()
    tells = asked is not None and asked.pid not in launchers and is_news(asked, own, members)

    def is_ours(report: Report) -> bool:
        if report.pid in launchers and _was_looked_at(report):
            return True
        if tells and not _is_own(report, own) and report.crash.stop_request is not None:
            return True  # the command was asked to end as well, and its report is enough
        if not timed_out or not _is_own(report, own):
            return False
        if report.verdict is not None and report.verdict.rule == "hang":
            return False  # where it stood is news
        end = report.crash.exit
        stopped = end is not None and end.kind == "timeout" and report.verdict is None
        return stopped or signal_of(report.crash) in PARENTS_SIGNALS

    causes = frozenset(one.consequence_of for one in document.reports) - {None}
    run = RunDeaths(document.processes)
    told = {
        id(one)
        for one in document.reports
        if (one.pid in causes or is_news(one, own, members)) and run.is_unwanted(one) and not is_ours(one)
    }
    pids = {one.pid for one in document.reports if id(one) in told}
    # Where the cause is told, what followed from it is told in a line.
    reports = tuple(
        one
        for one in document.reports
        if id(one) in told or (one.consequence_of is not None and one.consequence_of in pids)
    )
    return msgspec.structs.replace(document, reports=reports)


def _stood(report: Report) -> bool:
    end = report.crash.exit
    return report.crash.fault is None and end is not None and end.kind in {"timeout", "running"}


def _was_looked_at(report: Report) -> bool:
    """Its threads were read while it was alive: at the time limit, or on a request to end."""
    return _stood(report) or report.crash.stop_request is not None


_WAITS_FOR_A_CHILD = frozenset({"wait4", "waitid", "waitpid"})


def _launchers(document: Document) -> frozenset[int]:
    """Processes that only wait for a child that was inspected too: a shell, make, ``subprocess.run``."""
    standing = {
        report.pid: report.crash for report in document.reports if report.pid is not None and _was_looked_at(report)
    }
    parents = {process.pid: process.parent for process in document.processes}
    waited_for: set[int] = set()
    for pid in standing:
        parent = parents.get(pid)
        while parent is not None and parent not in waited_for:
            waited_for.add(parent)
            parent = parents.get(parent)
    return frozenset(pid for pid, crash in standing.items() if pid in waited_for and _only_waits(crash))


def _only_waits(crash: Crash) -> bool:
    """Its main thread waits for a child or reads its output, or the process runs no Python."""
    main = next((thread for thread in crash.threads or () if thread.tid == crash.pid), None)
    if main is None:
        return False
    if main.waits is not None and main.waits.call in _WAITS_FOR_A_CHILD:
        return True
    python = [frame for thread in crash.threads or () for frame in thread.python or ()]
    if not python:
        return not any(gap.part == "python" for gap in crash.gaps)
    return any((frame.source or "").endswith("/subprocess.py") for frame in (main.python or ())[:3])


def _is_own(report: Report, own: Process | None) -> bool:
    return own is None or report.crash.pid is None or report.crash.pid == own.pid


def is_news(report: Report, own: Process | None, members: Container[int]) -> bool:
    """Is it a native death, or a plain exit whose log names a native cause? ``members``: the run's processes."""
    end = report.crash.exit
    if end is not None and end.ntstatus is not None and end.ntstatus.value in SILENT_STATUSES:
        return False
    if _is_interrupt(report):
        return False
    if not is_native(report):
        return report.verdict is not None and report.verdict.rule not in SILENT_RULES
    return _is_own(report, own) or not _is_of_the_parent(report, members)


def _is_interrupt(report: Report) -> bool:
    """Ctrl-C and similar, unless timeout(1) sent it or a deadlock was found."""
    crash, asked = report.crash, report.crash.stop_request
    ended_by = asked.signal if asked is not None and signal_of(crash) != "SIGKILL" else signal_of(crash)
    if ended_by not in SILENT_SIGNALS or (report.verdict is not None and report.verdict.rule == "hang"):
        return False
    sender = asked if asked is not None else crash.fault
    from necropsy.formats import exit_status

    return sender is None or exit_status.time_limit_of(sender.sender_command or ()) is None


def _is_of_the_parent(report: Report, members: Container[int]) -> bool:
    """Its parent stopped it in the usual way, and nothing points to another sender."""
    if signal_of(report.crash) not in PARENTS_SIGNALS or report.crash.stop_request is not None:
        return False
    sender = report.crash.fault.sender if report.crash.fault is not None else None
    told = report.verdict is not None and report.verdict.rule == "out-of-memory-killed"
    return not told and (sender is None or sender in members)


def _in_order(crashes: Sequence[Crash], own: Process | None) -> tuple[Crash, ...]:
    def key(crash: Crash) -> tuple[bool, str]:
        return (own is None or crash.pid != own.pid, crash.at or "9")

    return tuple(sorted(crashes, key=key))


def _failed(own: Process | None) -> bool:
    if own is None or own.exit is None:
        return False
    return own.exit.kind not in {"exited", "running", "unknown"} or (own.exit.code or 0) != 0


def _plain(ended: RunRecord, own: Process | None) -> Crash:
    """A command that did not die natively: its exit, and what its log says."""
    from necropsy.formats import log

    tail = ended.log_tail
    gaps = [gap for gap in ended.gaps if gap.part == "log_tail"]
    if tail is None and not gaps:
        gaps = [Gap(part="log_tail", why="what the program wrote to stderr was not seen")]
    known = ended.ends.get(own.pid) if own is not None else None
    if tail is None and (known is None or known.messages is None):
        gaps.append(Gap(part="messages", why=gaps[0].why))
    messages = log.scan(tail) if tail is not None else None
    if known is not None and known.messages is not None:
        # What was read from memory may be on stderr, too, and may have been written elsewhere.
        found = {one.kind for one in messages or ()}
        messages = (*(messages or ()), *(one for one in known.messages if one.kind not in found))
    return Crash(
        pid=own.pid if own else None,
        exit=own.exit if own else None,
        limits=own.limits if own else None,
        log_tail=tail,
        messages=messages,
        last_words=known.last_words if known is not None else None,
        threads=known.threads if known is not None else None,
        environment=known.environment if known is not None else None,
        gaps=tuple(gaps),
    )


def _report(crash: Crash, rules: Sequence[Rule[Crash]]) -> Report:
    report = diagnose(redact.crash(crash), rules)
    return msgspec.structs.replace(report, took_s=_since(crash.at))


def _since(at: str | None) -> float | None:
    if at is None:
        return None
    try:
        then = datetime.fromisoformat(at.replace("Z", "+00:00"))
    except ValueError:
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=timezone.utc)
    return max(0.0, (datetime.now(timezone.utc) - then).total_seconds())


_AGAIN = re.compile(r"necropsy run python(?: \.\.\.| \w+\.py)")
"""Only the plain command; with a time limit or on one test alone it is another experiment."""
_WATCHED = Fix(
    text=(
        "necropsy watched this run, and nothing else was seen of this process: read the last lines that it wrote, "
        "and find the call of exit() or sys.exit() with this code."
    )
)


def of_watched(report: Report) -> Report:
    """The report without the advice to run the program under necropsy."""
    verdict = _of_watched(report.verdict) if report.verdict is not None else None
    return msgspec.structs.replace(report, verdict=verdict, alternatives=tuple(map(_of_watched, report.alternatives)))


def _of_watched(diagnosis: Diagnosis) -> Diagnosis:
    fixes = tuple(fix for fix in diagnosis.fixes if not _AGAIN.fullmatch(fix.command or ""))
    return msgspec.structs.replace(
        diagnosis,
        fixes=fixes or ((_WATCHED,) if diagnosis.fixes else ()),
        possible=tuple(map(_without_command, diagnosis.possible)),
    )


def _without_command(one: Possibility) -> Possibility:
    return msgspec.structs.replace(one, command=None) if _AGAIN.fullmatch(one.command or "") else one
