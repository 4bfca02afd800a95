"""What is measured of a run, in numbers that a journal can hold.

=============  =========================================================================================
``size``       bytes that the stack of the thread that died could grow to
``used``       bytes of it in use at the death
``depth``      periods of the recursion that filled it
``per_level``  bytes of stack that one period took
``main_peak``  after a healthy end: the most that the main thread used of its stack, in bytes
``peak``       the same of the other thread that used most, of those that lived at the end
``largest``    bytes of the largest single frame of the thread that died
``rss``        the most memory that the process had at once, in bytes
``mapped``     the most address space that it had, in bytes
``cpu``        seconds of processor time, of the whole run
``checked``    a checker watched the run and ended as it should: 1 (see ``checkers``)
=============  =========================================================================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from necropsy.confirm.checkers import spelled
from necropsy.consequences import command_of
from necropsy.model import Culprit, Diagnosis

if TYPE_CHECKING:
    from necropsy.confirm.runner import TrialRun


def of_run(run: TrialRun) -> dict[str, float]:
    """The measures of one run; one that could not be taken is not there."""
    found: dict[str, float | None] = {}
    thread = run.report.crash.crashed_thread if run.report is not None else None
    if thread is not None and thread.stack is not None:
        found |= {"size": thread.stack.size, "used": thread.stack.used}
    if thread is not None and thread.largest:
        found["largest"] = thread.largest[0].stack_bytes
    if thread is not None and thread.folds:
        fold = max(thread.folds, key=lambda one: one.period * one.times)
        found |= {"depth": fold.times, "per_level": fold.bytes_per_period}
    own = command_of(run.document.processes) if run.document is not None else None
    if own is not None:
        found |= {"rss": own.peak_rss, "mapped": own.peak_address_space}
        for use in own.stacks or ():
            name = "main_peak" if use.tid == own.pid else "peak"
            found[name] = max(found.get(name) or 0, use.peak or 0)
    found["cpu"] = run.cpu_s
    found["checked"] = None if run.said is None else float(run.said.ran)
    return {name: float(value) for name, value in found.items() if value}


def verdict_of(run: TrialRun) -> tuple[str | None, str | None]:
    """Rule and culprit of the verdict on the run's death, or None; if a checker watched it, by the checker alone."""
    if run.said is not None:
        return run.said.rule, run.said.where
    verdict = run.report.verdict if run.report is not None else None
    if verdict is None:
        return None, None
    return verdict.rule, spelled(verdict.culprit)


def seen_of(run: TrialRun) -> Diagnosis | None:
    """The diagnosis of what a checker wrote: one that watched the run, or one that was built into the op."""
    if run.said is not None:
        return run.said.seen
    verdict = run.report.verdict if run.report is not None else None
    return verdict if verdict is not None and verdict.rule == "sanitizer-report" else None


def culprit_of(run: TrialRun) -> Culprit | None:
    """Who did it, as far as the verdict on the run's death knows, or the checker that watched it."""
    if run.said is not None:
        return run.said.culprit
    verdict = run.report.verdict if run.report is not None else None
    return verdict.culprit if verdict is not None else None
