"""From the end of a profiled run to its document: as that of any run, and how close each process came to a limit."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from necropsy.data.stack_sizes import too_small_for
from necropsy.document import of_run
from necropsy.model import (
    Crash,
    Diagnosis,
    Document,
    Gap,
    Process,
    RunRecord,
    Severity,
    StackElsewhere,
    StackUse,
)
from necropsy.rule import Rule, to_diagnosis
from necropsy.rules import profile_rules
from necropsy.rules.headroom import SHARED, most

_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "note": 2}


def of_profile(ended: RunRecord, command: Sequence[str], rules: Sequence[Rule[Crash]]) -> Document:
    """The document of a profiled run. ``rules``: those on a death."""
    return judged(of_run(ended, command, rules))


def judged(document: Document) -> Document:
    """The same as a profile: with the stacks that are too small elsewhere, and how close each limit was."""
    processes = tuple(map(_compared, document.processes))
    found: list[Diagnosis] = []
    failed: list[Gap] = []
    for process, once in zip(processes, _each_limit_once(processes), strict=True):
        here, gaps = _judged(process, once)
        found += here
        failed += gaps
    found.sort(key=lambda one: _ORDER[one.severity])
    return msgspec.structs.replace(
        document, kind="profile", processes=processes, findings=tuple(found), gaps=(*document.gaps, *failed)
    )


def _each_limit_once(processes: Sequence[Process]) -> list[Process]:
    """A limit that processes share is judged once: of the first process that saw the most in use of it."""
    of: dict[tuple[str, str | None, int], tuple[int, int]] = {}
    for process in processes:
        for one in process.limits or ():
            key, seen = (one.name, one.where, one.limit), most(one) or 0
            if one.name in SHARED and (key not in of or seen > of[key][0]):
                of[key] = (seen, process.pid)
    return [
        process
        if process.limits is None
        else msgspec.structs.replace(
            process,
            limits=tuple(
                one
                for one in process.limits
                if one.name not in SHARED or of[one.name, one.where, one.limit][1] == process.pid
            ),
        )
        for process in processes
    ]


def _judged(process: Process, once: Process) -> tuple[list[Diagnosis], list[Gap]]:
    """What the rules say of one process. Findings about different threads or limits do not compete.

    ``once``: the same with those limits only that the rules on limits are to judge here.
    """
    found: list[Diagnosis] = []
    failed: list[Gap] = []
    for rule in profile_rules():
        if any(getattr(process, need) is None for need in rule.needs):
            continue
        try:
            first = rule.match(once if "limits" in rule.needs else process)
        except Exception as error:  # noqa: BLE001 - whatever a rule raises, the others still speak
            failed.append(Gap(part=f"rule {rule.name}", why=f"{type(error).__name__}: {error}"))
            continue
        found += [to_diagnosis(rule, one) for one in ((first, *first.also) if first is not None else ())]
    return found, failed


def _compared(process: Process) -> Process:
    if process.stacks is None:
        return process
    stacks = tuple(_fitted(one, main=one.tid == process.pid or one.name == "main") for one in process.stacks)
    return msgspec.structs.replace(process, stacks=tuple(sorted(stacks, key=closeness, reverse=True)))


def _fitted(stack: StackUse, *, main: bool) -> StackUse:
    if stack.peak is None:
        return stack
    elsewhere = too_small_for(stack.peak, main=main)
    return msgspec.structs.replace(
        stack, would_not_fit=tuple(StackElsewhere(where=one.where, bytes=one.bytes) for one in elsewhere)
    )


def closeness(stack: StackUse) -> tuple[float, int]:
    """How close a thread came to the end of its stack, for sorting: its share, then its bytes."""
    peak = stack.peak or 0
    return (peak / stack.size if stack.size else 0.0, peak)
