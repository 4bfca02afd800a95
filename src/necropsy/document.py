"""From the end of a run to its document: every death diagnosed, secrets masked, the command's own report first."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime, timezone
from typing import BinaryIO, Protocol

import msgspec

from necropsy import __version__, advice, redact
from necropsy.consequences import RunDeaths, by_cause, command_of, is_native, signal_of
from necropsy.diagnose import diagnose
from necropsy.formats import timeout_command
from necropsy.model import Crash, Document, Gap, Process, Report, Subject, Tool
from necropsy.rule import Rule

SILENT_RULES = frozenset({"python-exception", "exit-status-only"})
"""Verdicts on a plain non-zero exit that say no more than the program said itself."""
SILENT_SIGNALS = frozenset({"SIGINT", "SIGPIPE"})
"""Ends that somebody asked for, and of which a shell says nothing either: Ctrl-C, and a reader that went away."""
SILENT_STATUSES = frozenset({"0xC000013A"})
"""The same on Windows: STATUS_CONTROL_C_EXIT."""
PARENTS_SIGNALS = frozenset({"SIGTERM", "SIGKILL", "SIGHUP"})
"""What a parent stops its children with: no news, unless it was somebody else."""


class Ended(Protocol):
    """What the supervisor knows when the command has ended."""

    @property
    def processes(self) -> tuple[Process, ...]:
        """Every process of the run, the command's own first."""

    @property
    def crashes(self) -> tuple[Crash, ...]:
        """Every native death that was seen."""

    @property
    def log_tail(self) -> str | None:
        """The end of what was written to stderr."""

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What could not be observed of the run."""

    @property
    def cores(self) -> Mapping[tuple[int, str | None], BinaryIO]:
        """Cores of the dead, compressed by gzip, by process and time of death."""

    @property
    def timed_out(self) -> bool:
        """The time limit passed."""

    @property
    def ends(self) -> Mapping[int, Crash]:
        """By process: what those said last that ended by an exit code which is not 0, where stderr was not read."""


def of_run(ended: Ended, command: Sequence[str], rules: Sequence[Rule[Crash]]) -> Document:
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
            processes=_with_python(ended.processes, crashes),
            reports=by_cause(tuple(advice.of_watched(_report(crash, rules)) for crash in crashes), ended.processes),
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
            processes=_with_python((process,) if process is not None else (), (crash,)),
            reports=(_report(crash, rules) if subject.kind == "process" else diagnose(redact.crash(crash), rules),),
        )
    )


def _with_python(processes: Sequence[Process], crashes: Sequence[Crash]) -> tuple[Process, ...]:
    """The processes, each of the dead with the version of the interpreter that was found in it."""
    found = {one.pid: one.environment.python for one in crashes if one.environment is not None}
    return tuple(
        msgspec.structs.replace(one, python=found[one.pid]) if one.python is None and found.get(one.pid) else one
        for one in processes
    )


def new_id(now: Callable[[], datetime] = lambda: datetime.now(timezone.utc)) -> str:
    """An id that sorts by time: ``20261121T004512Z-9f86d081``. Two of one second are the same once in 2**32."""
    return f"{now():%Y%m%dT%H%M%SZ}-{os.urandom(4).hex()}"


def news(document: Document, *, timed_out: bool = False) -> Document:
    """The document with only those reports that the user has not heard of yet; see ``is_news``.

    ``timed_out``: the command was stopped by us, which is told in other words; of a launcher and the program that it
    waits for, only the program's report is news.
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
    """It was read while it lived, and did not crash."""
    end = report.crash.exit
    return report.crash.fault is None and end is not None and end.kind in {"timeout", "running"}


def _was_looked_at(report: Report) -> bool:
    """Its threads were read while it lived: at the time limit, or when somebody asked it to end."""
    return _stood(report) or report.crash.stop_request is not None


_WAITS_FOR_A_CHILD = frozenset({"wait4", "waitid", "waitpid"})


def _launchers(document: Document) -> frozenset[int]:
    """The processes that only wait for a child which was looked at as well: a shell, make, ``subprocess.run``."""
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
    """Its main thread waits for a child, or reads what one writes; or no Python runs in it at all."""
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
    """Something to tell the user: a native death, or a plain exit whose log names a native cause.

    ``members``: the processes of the run.
    """
    end = report.crash.exit
    if end is not None and end.ntstatus is not None and end.ntstatus.value in SILENT_STATUSES:
        return False
    if _is_interrupt(report):
        return False
    if not is_native(report):
        return report.verdict is not None and report.verdict.rule not in SILENT_RULES
    return _is_own(report, own) or not _is_of_the_parent(report, members)


def _is_interrupt(report: Report) -> bool:
    """Ctrl-C and its like, unless timeout(1) sent it, or a deadlock was found."""
    crash, asked = report.crash, report.crash.stop_request
    ended_by = asked.signal if asked is not None and signal_of(crash) != "SIGKILL" else signal_of(crash)
    if ended_by not in SILENT_SIGNALS or (report.verdict is not None and report.verdict.rule == "hang"):
        return False
    sender = asked if asked is not None else crash.fault
    return sender is None or timeout_command.limit_of(sender.sender_command or ()) is None


def _is_of_the_parent(report: Report, members: Container[int]) -> bool:
    """A child was stopped as parents do it, and nothing says that it was somebody else."""
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


def _plain(ended: Ended, own: Process | None) -> Crash:
    """The end of a command that was not seen to die natively: its exit, and what its log says."""
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
