"""From a report's document to rows: which of its reports are deaths that count, and what is kept of each."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone

from necropsy.frame_filter import file_name
from necropsy.model import DeathSource
from necropsy.triage.deaths import DeathRow, Fingerprint
from necropsy.triage.documents import DeathReport, ReportDocument

Fingerprints = Callable[[DeathReport, ReportDocument], Fingerprint]
"""``fingerprints.fingerprint``."""

_KINDS = frozenset({"run", "profile", "diagnosis", "fuzz", "reduction"})
"""Of documents with deaths."""
_ASKED_FOR = frozenset({"SIGINT", "SIGPIPE"})
"""Ctrl-C, and a reader that closed its pipe: nothing went wrong."""
_PARENTS = frozenset({"SIGTERM", "SIGKILL", "SIGHUP"})
"""What a parent ends its workers with."""
_CTRL_C = "0xc000013a"


def deaths(
    document: ReportDocument, path: str, fingerprint: Fingerprints, *, in_capsule: bool = False
) -> tuple[tuple[DeathRow, Fingerprint], ...]:
    """The deaths in ``document``, which was read from ``path``.

    ``in_capsule``: it was in an archive that `necropsy run` keeps. A death that another death of the same
    run caused is not counted, and neither is an end that somebody asked for.
    """
    if document.kind not in _KINDS:
        return ()
    reports = document.reports[:1] if document.kind == "reduction" else document.reports  # the second is the same bug
    return tuple(
        (_row(number, report, document, path, made := fingerprint(report, document), in_capsule), made)
        for number, report in enumerate(reports)
        if _counts(report, document)
    )


def _counts(report: DeathReport, document: ReportDocument) -> bool:
    crash, end = report.crash, report.crash.exit
    if report.consequence_of is not None:
        return False
    if end is not None and end.ntstatus is not None and end.ntstatus.value.lower() == _CTRL_C:
        return False
    signal = crash.fault.signal if crash.fault is not None else end.signal if end is not None else None
    if report.verdict is not None and report.verdict.rule == "hang":
        return True
    if signal in _ASKED_FOR or (crash.fault is None and end is not None and _ended_well(end.kind, end.code)):
        return False
    return not (signal in _PARENTS and _was_ended_by_its_parent(report, document))


def _ended_well(kind: str, code: int | None) -> bool:
    return kind == "running" or (kind == "exited" and code == 0)


def _was_ended_by_its_parent(report: DeathReport, document: ReportDocument) -> bool:
    """As ``document.is_news`` tells it of a run's own report."""
    if document.subject.kind != "process" or report.crash.stop_request is not None:
        return False
    if report.verdict is not None and report.verdict.rule == "out-of-memory-killed":
        return False
    command = next((one.pid for one in document.processes if one.role == "command"), None)
    if command is None or command == report.pid:
        return False
    sender = report.crash.fault.sender if report.crash.fault is not None else None
    return sender is None or any(one.pid == sender for one in document.processes)


def _row(  # noqa: PLR0917 - all of it is needed for a row
    number: int, report: DeathReport, document: ReportDocument, path: str, made: Fingerprint, in_capsule: bool
) -> DeathRow:
    crash, verdict = report.crash, report.verdict
    culprit = verdict.culprit if verdict is not None else None
    python = culprit.python if culprit is not None else None
    versions = dict(crash.libraries or {})
    if culprit is not None and culprit.package is not None and culprit.version is not None:
        versions[culprit.package] = culprit.version
    line = None
    if culprit is not None and culprit.source is not None:
        line = file_name(culprit.source) + (f":{culprit.line}" if culprit.line is not None else "")
    return DeathRow(
        path=path,
        number=number,
        document=document.id or None,
        pid=report.pid if report.pid is not None else crash.pid,
        died_at=in_utc(crash.at),
        source=source_of(report, document, in_capsule=in_capsule),
        host=document.host,
        rule=verdict.rule if verdict is not None else None,
        confidence=verdict.confidence if verdict is not None else None,
        end=made.end,
        signature=report.signature,
        summary=verdict.summary if verdict is not None else None,
        function=culprit.function if culprit is not None else None,
        module=culprit.module if culprit is not None else None,
        source_line=line,
        python_file=python.file if python is not None else None,
        python_line=python.line if python is not None else None,
        python_function=python.function if python is not None else None,
        op=culprit.op if culprit is not None else None,
        versions=versions,
        key=made.key,
    )


def source_of(report: DeathReport, document: ReportDocument, *, in_capsule: bool = False) -> DeathSource:
    """How the death was seen."""
    kind = document.subject.kind
    if kind == "core":
        return "core"
    if kind == "minidump":
        return "minidump"
    if kind in {"log", "exit-status"}:
        if any(one.kind == "sanitizer" for one in report.crash.messages or ()):
            return "sanitizer"
        thread = report.crash.crashed_thread
        return "debugger" if thread is not None and thread.frames else "log"
    return "capsule" if in_capsule else "live"


def in_utc(moment: str | None) -> str | None:
    """``2026-11-24T10:00:00Z``; None where it cannot be read, as in a log that a program writes in its own way."""
    if moment is None:
        return None
    try:
        read = datetime.fromisoformat(moment.strip().replace("Z", "+00:00"))
    except ValueError:
        return None
    if read.tzinfo is None:
        read = read.replace(tzinfo=timezone.utc)
    try:
        return read.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OverflowError:
        return None
