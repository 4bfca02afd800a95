"""Two profiles of the same program: what became worse, and whether that is more than was allowed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from necropsy.model import Comparison, Document, FailedCheck, Process, Regression, StackFunction, StackUse
from necropsy.rules.wording import size

_LEAST: dict[str, int] = {
    # glibc hands on stacks with up to 24 KiB touched, and what a signal or a lazy binding takes differs by pages.
    "stack": 32 << 10,
    "function": 4 << 10,
    "memory": 1 << 20,
    "address space": 1 << 20,
    "threads": 1,
    "descriptors": 1,
    "mappings": 16,
}
"""Differences below these are no regression: two runs of the same program differ by that much."""
_SHARE = 0.01
"""So is growth of less than this share."""
_NEW_STACK = 64 << 10
"""A stack that the older profile does not have is a regression from this peak on."""
_NUMBER = re.compile(r"[-_ ]\d+\b|[-_ ]\d+(?=_)|\d+$")
_FUNCTIONS = 3
"""Functions that are named for a stack."""


@dataclass(frozen=True)
class Conditions:
    """What `--fail-on` was given: names of rules, and how much any peak may grow (0.1 for 10 %)."""

    rules: tuple[str, ...] = ()
    growth: float | None = None


def compared(document: Document, old: Document) -> Document:
    """The document with what became worse since ``old``."""
    before, after = _peaks(old), _peaks(document)
    grown = [one for key, peak in after.items() if (one := _regression(peak, before.get(key))) is not None]
    grown.sort(key=lambda one: one.growth if one.growth is not None else float("inf"), reverse=True)
    regressions = list(_new_findings(document, old))
    for one in grown:
        regressions.append(one)
        key = (one.what, one.process, one.name)
        if key in before:
            regressions += _functions(one, after[key].stack, before[key].stack)
    comparison = Comparison(id=old.id, compared=len(after.keys() & before.keys()), regressions=tuple(regressions))
    return msgspec.structs.replace(document, comparison=comparison)


def checked(document: Document, conditions: Conditions) -> Document:
    """The document with the conditions that the run met."""
    failed: list[FailedCheck] = []
    for rule in dict.fromkeys(conditions.rules):
        failed += [FailedCheck(condition=rule, seen=one.summary) for one in document.findings if one.rule == rule]
    most = conditions.growth
    if most is not None and document.comparison is not None:
        failed += [
            FailedCheck(condition=f"growth={100 * most:g}%", seen=_grown(one))
            for one in document.comparison.regressions
            if one.what in {"stack", "memory"} and one.growth is not None and one.growth > most
        ]
    return msgspec.structs.replace(document, failed_checks=tuple(failed))


def _grown(one: Regression) -> str:
    what = f"the stack of {one.name}" if one.what == "stack" else "resident memory"
    of = f" of {one.process}" if one.process is not None else ""
    return f"{what}{of} grew by {one.growth or 0:.1%}, from {size(one.before or 0)} to {size(one.after)}"


_Key = tuple[str, str | None, str | None]


@dataclass(frozen=True)
class _Peak:
    what: str
    process: str | None
    name: str | None
    value: int
    stack: StackUse | None = None


def _peaks(document: Document) -> dict[_Key, _Peak]:
    """The highest of each kind; of a pool, that of the thread that went deepest."""
    found: dict[_Key, _Peak] = {}
    for place, process in enumerate(document.processes):
        for peak in _of_process(process, _program(process) if place else None):
            key = (peak.what, peak.process, peak.name)
            if key not in found or peak.value > found[key].value:
                found[key] = peak
    return found


def _of_process(process: Process, program: str | None) -> Iterator[_Peak]:
    for stack in process.stacks or ():
        if stack.peak is not None:
            yield _Peak("stack", program, _pool(stack), stack.peak, stack)
    peaks = process.peaks
    counts = {
        "memory": peaks.rss if peaks is not None else process.peak_rss,
        "address space": peaks.address_space if peaks is not None else None,
        "threads": peaks.threads if peaks is not None else None,
        "descriptors": peaks.descriptors if peaks is not None else None,
        "mappings": peaks.mappings if peaks is not None else None,
    }
    for what, value in counts.items():
        if value is not None:
            yield _Peak(what, program, None, value)


def _program(process: Process) -> str:
    words = process.command or ("?",)
    return words[0].rsplit("/", 1)[-1]


def _pool(stack: StackUse) -> str:
    """``ThreadPoolExecutor`` for ``ThreadPoolExecutor-0_3``, ``Thread (work)`` for ``Thread-1 (work)``."""
    name = stack.python_name or stack.name or "thread without a name"
    return _NUMBER.sub("", name) or name


def _regression(peak: _Peak, before: _Peak | None) -> Regression | None:
    if before is None:
        new = peak.what == "stack" and peak.value >= _NEW_STACK
        return _told(peak, None) if new else None
    more = peak.value - before.value
    if more < _LEAST[peak.what] or more < _SHARE * before.value:
        return None
    return _told(peak, before.value)


def _told(peak: _Peak, before: int | None) -> Regression:
    growth = (peak.value - before) / before if before else None
    return Regression(
        what=peak.what,  # type: ignore[arg-type] # one of the literals: the keys of _LEAST
        name=peak.name,
        process=peak.process,
        before=before,
        after=peak.value,
        growth=growth,
    )


def _functions(one: Regression, stack: StackUse | None, old: StackUse | None) -> Iterator[Regression]:
    """Which functions took the bytes that a stack has grown by, where that is known of both."""
    if stack is None or stack.functions is None or old is None or old.functions is None:
        return
    before: Counter[tuple[str | None, str | None]] = Counter()
    for row in old.functions:
        before[_name(row)] += row.bytes
    after: Counter[tuple[str | None, str | None]] = Counter()
    for row in stack.functions:
        after[_name(row)] += row.bytes
    grown = sorted(after, key=lambda name: after[name] - before[name], reverse=True)
    for name in grown[:_FUNCTIONS]:
        more = after[name] - before[name]
        if name[0] is not None and more >= max(_LEAST["function"], _SHARE * one.after):
            yield Regression(
                what="function",
                name=one.name,
                process=one.process,
                function=name[0],
                module=name[1],
                before=before[name] or None,
                after=after[name],
                growth=more / before[name] if before[name] else None,
            )


def _name(row: StackFunction) -> tuple[str | None, str | None]:
    return row.function, row.module


def _new_findings(document: Document, old: Document) -> Iterator[Regression]:
    """Rules that have more findings of a severity than before."""
    before = Counter((one.rule, one.severity) for one in old.findings)
    after = Counter((one.rule, one.severity) for one in document.findings)
    for (rule, severity), count in after.items():
        earlier = before[rule, severity]
        if count > earlier:
            yield Regression(what="finding", name=rule, severity=severity, before=earlier or None, after=count)
