"""How much of a limit a healthy run left: what the rules of `necropsy profile` on limits share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from necropsy.model import Evidence, Fix, Limit, Process
from necropsy.rule import Finding, several
from necropsy.rules.limits import WHAT, amount
from necropsy.rules.wording import sentence, size

_WARNING, _NOTE = 0.12, 0.25
"""Shares of a limit that are left."""
SPARE = 0.25
"""The share that a proposed limit leaves."""
_SOURCES = {
    "RLIMIT_AS": "RLIMIT_AS, ulimit -v",
    "RLIMIT_DATA": "RLIMIT_DATA, ulimit -d",
    "RLIMIT_NPROC": "RLIMIT_NPROC, ulimit -u",
    "RLIMIT_NOFILE": "RLIMIT_NOFILE, ulimit -n",
    "/dev/shm": "the size of the file system /dev/shm",  # noqa: S108 - a name
}
_HOLDERS = {
    "memory.max": "the processes of its control group",
    "pids.max": "the processes of its control group",
    "RLIMIT_NPROC": "all processes of its user",
    "/dev/shm": "all processes that use /dev/shm",  # noqa: S108 - a name
}
"""Who shares the limits that are not the process's alone."""
SHARED = frozenset(_HOLDERS)


def near(process: Process, names: tuple[str, ...], fix: Callable[[Limit, int], Fix]) -> Finding | None:
    """Those of these limits of which little was left; ``fix``: what raises one so that it is enough for a peak.

    A process that a signal ended has a report on its death.
    """
    if process.exit is not None and process.exit.kind == "signaled":
        return None
    limits = (one for one in process.limits or () if one.name in names)
    return several(found for one in limits if (found := _of_limit(process, one, fix)) is not None)


def _of_limit(process: Process, one: Limit, fix: Callable[[Limit, int], Fix]) -> Finding | None:
    peak = most(one)
    if peak is None or one.limit <= 0:
        return None
    left = max(one.limit - peak, 0)
    if left >= _NOTE * one.limit:
        return None
    figures = f"{amount(one, peak)} of {amount(one, one.limit)}"
    what = WHAT[one.name]
    holder = _HOLDERS.get(one.name, who(process))
    return Finding(
        evidence=(
            Evidence(
                claim=f"at most {peak / one.limit:.0%} of the limit on {what} in use", seen=figures, where=_source(one)
            ),
        ),
        summary=f"{sentence(holder)} used {figures}, the limit on {what} ({_source(one)}): {amount(one, left)} left.",
        confidence="certain",
        severity="warning" if left < _WARNING * one.limit else "note",
        fixes=(fix(one, int(peak / (1 - SPARE)) + 1),),
    )


def with_line_at_peak(found: Finding | None, process: Process) -> Finding | None:
    """The finding, with the line of Python that ran as memory reached its peak, and the largest array there."""
    peak = next((one for one in process.marks or () if one.kind == "peak" and one.python is not None), None)
    if found is None or peak is None or peak.python is None or peak.python.file is None:
        return found
    line = f"{peak.python.file}:{peak.python.line}"
    where = f"{line} in {peak.python.function}" if peak.python.function else line
    held = [one.described + (f", {size(one.bytes)}" if one.bytes else "") for one in peak.arrays]
    evidence = Evidence(
        claim="this line ran as its memory reached the peak",
        seen="; ".join([where, *held]),
        where=f"Python frames of process {process.pid}, {peak.at:.1f} s after its start",
    )
    summary = f"{found.summary} {line.rpartition('/')[2]} ran as {who(process)}'s memory reached its peak"
    summary += f", and held {held[0]}." if held else "."
    return replace(found, summary=summary, evidence=(*found.evidence, evidence))


def most(one: Limit) -> int | None:
    """The most that was seen in use of a limit; None if that was not measured."""
    return max((value for value in (one.peak, one.used) if value is not None), default=None)


def who(process: Process) -> str:
    """The process in a sentence."""
    return f"child process {process.pid}" if process.role == "child" else "the process"


def ulimit(one: Limit, option: str, wanted: int, text: str) -> Fix:
    """The line of a shell that raises a soft limit to ``wanted``, in the unit of its option, if it may be raised."""
    command = f"ulimit -S -{option} {wanted}"
    unit = 1024 if option in "dv" else 1
    if one.hard is not None and wanted * unit > one.hard:
        hard = f"The hard limit, {amount(one, one.hard)}, is lower: only root raises it, or /etc/security/limits.conf"
        return Fix(text=f"{text} {hard}, or `docker run --ulimit`.", command=f"ulimit -{option} {wanted}")
    return Fix(text=text, command=command)


def rounded(value: int, unit: int) -> int:
    """Up to a multiple of ``unit``."""
    return -(-value // unit) * unit


def _source(one: Limit) -> str:
    return _SOURCES.get(one.name) or one.where or one.name
