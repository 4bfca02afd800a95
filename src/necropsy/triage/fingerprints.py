"""The fingerprint of one death, from its report alone."""

from __future__ import annotations

import hashlib

import msgspec

from necropsy.frame_filter import file_name
from necropsy.predicates import SIGNALS
from necropsy.triage.deaths import Fingerprint, FramePlace
from necropsy.triage.documents import Call, DeadThread, Death, DeathReport, ReportDocument
from necropsy.triage.messages import text_of, words
from necropsy.triage.places import build_ids, period, places

_FAMILIES = {
    "SIGSEGV": "memory",
    "SIGBUS": "memory",
    "SIGABRT": "abort",
    "SIGFPE": "arithmetic",
    "SIGILL": "trap",
    "SIGTRAP": "trap",
    "SIGSYS": "trap",
}
_STATUSES = {
    "0xC0000005": "memory",
    "0xC00000FD": "stack",
    "0xC0000094": "arithmetic",
    "0xC000001D": "trap",
    "0x80000003": "trap",
    "0xC0000409": "abort",
    "0xC0000374": "abort",
    "0xE06D7363": "abort",
}
_LOADING = frozenset({"missing-library", "undefined-symbol"})
_TELLING = frozenset({"abort", "exception", "loading", "unknown"})
"""Who dies of a fault says nothing before: words in the log are another process's, or older."""
_CALLERS = 4
"""How many Python functions count."""


def fingerprint(report: DeathReport, document: ReportDocument) -> Fingerprint:
    """Everything that grouping knows of a death. Equal deaths on other machines have equal keys."""
    del document  # what it says of the file and of the machine tells nothing of the bug
    death = report.crash
    thread = death.crashed_thread or _only(death)
    calls = (thread.frames if thread is not None else None) or ()
    end = _end(death)
    family = _family(death, end, report, native=bool(calls))
    modules = death.modules or ()
    repeated = _period(thread, death) if family == "stack" else ()
    frames = places(calls, modules, ended_itself=family in {"abort", "exception"})
    python = _python(thread)
    whole = Fingerprint(
        key="",
        family=family,
        end=end,
        text=text_of(death) if family in _TELLING else None,
        frames=frames,
        period=repeated,
        python=tuple(f"{file_name(one.source or '?')}:{one.function or '?'}" for one in python),
        python_line=_line(python),
        native=bool(calls),
        verdict=_said_of(report) if not (frames or repeated) else None,
        versions=_versions(death),
    )
    digest = hashlib.sha256(msgspec.json.encode(_encodable(whole))).hexdigest()[:24]
    return msgspec.structs.replace(whole, key=digest)


def _encodable(whole: Fingerprint) -> list[object]:
    """Names of files may hold lone surrogates, which JSON cannot."""
    text = repr(msgspec.structs.astuple(whole))
    return [text.encode("utf-8", "backslashreplace").decode()]


def _said_of(report: DeathReport) -> str | None:
    """``gpu-out-of-memory: a request for # GiB failed``: all that tells apart deaths of which only a log is known."""
    verdict = report.verdict
    return f"{verdict.rule}: {words(verdict.summary)}" if verdict is not None else None


def _only(death: Death) -> DeadThread | None:
    """The thread of a text that shows one and does not say that it crashed."""
    threads = death.threads or ()
    return threads[0] if len(threads) == 1 else None


def _end(death: Death) -> str:
    ended = death.exit
    status = ended.ntstatus if ended is not None else None
    if status is not None:
        value = status.value
        return f"{value}/{status.fast_fail.code}" if status.fast_fail is not None else value
    if death.fault is not None:
        return death.fault.signal
    if ended is None:
        return "unknown"
    if ended.kind == "signaled":
        return ended.signal or "unknown"
    if ended.kind == "exited" and ended.code is not None:
        return SIGNALS.get(ended.code - 128, f"exited {ended.code}")
    return ended.kind


def _family(death: Death, end: str, report: DeathReport, *, native: bool) -> str:
    rule = report.verdict.rule if report.verdict is not None else ""
    kinds = {message.kind for message in death.messages or ()}
    family = _FAMILIES.get(end) or _STATUSES.get(end.partition("/")[0])
    if family == "memory":
        if rule.startswith("stack-overflow"):
            return "stack"
        seen = death.fault is not None and (death.fault.address or death.fault.code)
        return "memory" if native and (seen or "null" in rule) else "memory-or-stack"
    if family is not None:
        return family
    if kinds & _LOADING:
        return "loading"
    if end.startswith("SIG"):
        return "killed"
    if "python-traceback" in kinds:
        return "exception"
    return "unknown"


def _period(thread: DeadThread | None, death: Death) -> tuple[FramePlace, ...]:
    if thread is None or not thread.folds:
        return ()
    fold = max(thread.folds, key=lambda one: (one.times * (one.bytes_per_period or 0), one.times * one.period))
    return period(fold.functions, fold.modules, build_ids(death.modules or ()))


def _python(thread: DeadThread | None) -> tuple[Call, ...]:
    frames = (thread.python if thread is not None else None) or ()
    own = tuple(one for one in frames if one.owner == "script")
    return (own or frames)[:_CALLERS]


def _line(python: tuple[Call, ...]) -> str | None:
    if not python or python[0].line is None:
        return None
    return f"{file_name(python[0].source or '?')}:{python[0].line}"


def _versions(death: Death) -> tuple[str, ...]:
    return tuple(
        f"{name} {version}" for name, version in sorted((death.libraries or {}).items()) if name == "tensorflow"
    )
