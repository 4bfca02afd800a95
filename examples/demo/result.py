"""One example's run, held against the catalogue: what is wrong with it, and its lines in the table."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from demo.examples import Example, marked_line
from demo.workshop import ExampleRun
from necropsy.model import Culprit
from necropsy.reports import text

OR_NONE = " or none"
"""In the catalogue's ``culprit``: to name nobody is right too."""
COLUMNS = "{:<23} {:<8} {:<{width}} {:>7}"
_BEFORE = 23 + 1 + 8 + 1
"""Columns before what was found."""


class DemoResult(msgspec.Struct, frozen=True, kw_only=True):
    """One example: how it ended, what was found, and what of it is not as the catalogue says."""

    example: str
    about: str
    ended: str | None = None
    """A signal, ``exit N`` or ``survives``; None where it was not run."""
    rule: str | None = None
    confidence: str | None = None
    culprit: str | None = None
    op: str | None = None
    where: str | None = None
    """The line of Python: ``train.py:12``."""
    took_s: float | None = None
    """From the fatal signal to the finished report, in seconds."""
    skipped: str | None = None
    """Why it was not run."""
    faults: tuple[str, ...] = ()


class DemoResults(msgspec.Struct, frozen=True, kw_only=True):
    """All examples, and how many of them are right and were skipped."""

    right: int
    skipped: int
    examples: tuple[DemoResult, ...]


def counted(results: Sequence[DemoResult]) -> DemoResults:
    """The results, counted."""
    skipped = sum(one.skipped is not None for one in results)
    right = len(results) - skipped - sum(bool(one.faults) for one in results)
    return DemoResults(right=right, skipped=skipped, examples=tuple(results))


def faults(example: Example, run: ExampleRun, examples: Path) -> Iterator[str]:
    """Everything that is not as the catalogue says, one sentence each."""
    if run.outcome not in example.outcome:
        yield f"it ended with {run.outcome}, not with {' or '.join(example.outcome)}"
    if run.document is None:
        yield "no document was written"
        return
    verdict = run.verdict
    if run.outcome == "survives":
        if verdict is not None:
            yield f"it survived, and yet {verdict.rule} was found"
        if example.peak is not None:
            low, high = example.peak
            stack = run.main_stack
            if stack is None or not low <= stack[0] <= high:
                peak = f"{stack[0]:,}" if stack else "unknown"
                yield f"the peak of the main stack is {peak}, not within {low:,} to {high:,} bytes"
        return
    if verdict is None or verdict.rule not in example.rule:
        yield f"the verdict is {verdict.rule if verdict else 'missing'}, not {' or '.join(example.rule)}"
        return
    culprit = verdict.culprit or Culprit()
    for what, seen, true in (
        ("culprit", culprit.function, example.culprit),
        ("kernel", culprit.kernel, example.kernel),
        ("op", culprit.op, example.op),
    ):
        if true is None or (true.endswith(OR_NONE) and seen is None):
            continue
        if true.removesuffix(OR_NONE) not in (seen or ""):
            yield f"the {what} is {seen or 'not named'}, not {true}"
    line = culprit.python.line if culprit.python else None
    true_line = marked_line(examples / "scripts" / example.script)
    if example.line and not (line == true_line or (line is None and example.line == "or none")):
        yield f"the Python line is {line or 'not named'}, not {true_line}"


def lines(example: Example, run: ExampleRun, width: int) -> list[str]:
    """What happened and what was found: a line for the rule, and one for who did it."""
    took = f"{run.took_s:.2f} s" if run.took_s is not None else ""
    verdict = run.verdict
    if verdict is None:
        found = "nothing" if run.outcome != "survives" else "no crash"
        if run.main_stack and run.outcome == "survives":
            peak, size = run.main_stack
            found += f", {peak / 2**20:.1f} of {size / 2**20:.1f} MiB of stack used"
        return [COLUMNS.format(example.name, run.outcome, found[:width], took, width=width)]
    lines = [COLUMNS.format(example.name, run.outcome, f"{verdict.rule} ({verdict.confidence})", took, width=width)]
    culprit = verdict.culprit or Culprit()
    who = [_short(culprit.function)] if culprit.function else []
    who += [f"op {culprit.op}"] if culprit.op else []
    if culprit.python and culprit.python.file:
        who.append(f"{Path(culprit.python.file).name}:{culprit.python.line}")
    indent = " " * _BEFORE
    wrapped = textwrap.wrap(", ".join(who), width + 8, break_long_words=False, break_on_hyphens=False)
    return lines + [indent + line for line in wrapped]


def _short(function: str) -> str:
    """The name without its parameters and its template arguments."""
    name = function.replace("(anonymous namespace)", "{anonymous}").split("(")[0]
    while (bare := re.sub(r" ?<[^<>]*>", "", name)) != name:
        name = bare
    return name


def result_of(example: Example, run: ExampleRun, examples: Path) -> DemoResult:
    """What is kept of a run."""
    verdict = run.verdict
    culprit = (verdict.culprit if verdict is not None else None) or Culprit()
    line = culprit.python
    return DemoResult(
        example=example.name,
        about=example.about,
        ended=run.outcome,
        rule=verdict.rule if verdict is not None else None,
        confidence=verdict.confidence if verdict is not None else None,
        culprit=culprit.function,
        op=culprit.op,
        where=f"{Path(line.file).name}:{line.line}" if line is not None and line.file else None,
        took_s=run.took_s,
        faults=tuple(faults(example, run, examples)),
    )


def report_lines(run: ExampleRun) -> list[str]:
    """The full report, indented below the example's row."""
    if run.document is None:
        return []
    return [f"    {line}".rstrip() for line in text.render(run.document, width=76).splitlines()]
