"""``necropsy demo``: run the examples, show what happened and what was found, and hold it against the truth.

The truth is in ``examples/catalogue.toml``, which was written from the examples' mechanism before the tool was
asked.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from necropsy.demo import results, table
from necropsy.demo.examples import Example, catalogue, chosen, folder, marked_line
from necropsy.demo.proof import ExampleProver
from necropsy.demo.results import DemoResult
from necropsy.demo.workshop import ExampleRun, Workshop
from necropsy.model import Culprit
from necropsy.reports import text

OR_NONE = " or none"
"""In the catalogue's ``culprit``: to name nobody is right too."""


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


_COLUMNS = "{:<23} {:<8} {:<{width}} {:>7}"
_BEFORE = 23 + 1 + 8 + 1
"""Columns before what was found."""


def _row(example: Example, run: ExampleRun, width: int) -> list[str]:
    """What happened and what was found: a line for the rule, and one for who did it."""
    took = f"{run.took_s:.2f} s" if run.took_s is not None else ""
    verdict = run.verdict
    if verdict is None:
        found = "nothing" if run.outcome != "survives" else "no crash"
        if run.main_stack and run.outcome == "survives":
            peak, size = run.main_stack
            found += f", {peak / 2**20:.1f} of {size / 2**20:.1f} MiB of stack used"
        return [_COLUMNS.format(example.name, run.outcome, found[:width], took, width=width)]
    lines = [_COLUMNS.format(example.name, run.outcome, f"{verdict.rule} ({verdict.confidence})", took, width=width)]
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


def _progress() -> Callable[[str], None]:
    """Says where it stands on a terminal's last line; elsewhere it says nothing."""
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda said: print(f"\r\x1b[K{said}", end="", file=sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True)
class WantedExamples:
    """What the command was asked for: ``names`` of examples, all where it is empty."""

    names: Sequence[str] = ()
    python: str = sys.executable
    """The interpreter that has TensorFlow."""
    confirm: bool = False
    jobs: int = 1
    """With ``confirm``: so many at a time."""
    only_list: bool = False
    form: str = "text"
    """``text`` is printed line by line, any other format is returned at the end."""
    to_file: bool = False
    """Text is returned too."""
    full: bool = False
    """In text, with the full report of each example."""


@dataclass(frozen=True, kw_only=True)
class DemoOutcome:
    """``said`` is the result in the wanted format, None where it was printed; ``rendered`` gives it in any other."""

    is_right: bool
    """Everything is as the catalogue says."""
    said: str | None
    rendered: Callable[[str], str]


def main(wanted: WantedExamples) -> DemoOutcome:
    """The command.

    Raises:
        ExamplesMissingError: an installation without the examples.
        TensorFlowMissingError: ``wanted.python`` has none.
        InputError: no example has that name.

    """
    examples = folder()
    known = catalogue(examples)
    picked = chosen(known.example, wanted.names)
    if wanted.confirm:
        picked = table.that_die(picked, named=bool(wanted.names))
    kept: list[str] = []

    def tell(lines: Sequence[str]) -> None:
        if wanted.to_file:
            kept.extend(lines)
        elif wanted.form == "text":
            print("\n".join(lines), flush=True)

    def outcome(rendered: Callable[[str], str], *, is_right: bool = True) -> DemoOutcome:
        said = rendered(wanted.form) if wanted.form != "text" else "\n".join([*kept, ""]) if wanted.to_file else None
        return DemoOutcome(is_right=is_right, said=said, rendered=rendered)

    if wanted.only_list:
        tell([f"{example.name:<23} {example.about}" for example in picked])
        listed = [DemoResult(example=one.name, about=one.about) for one in picked]
        return outcome(lambda form: results.rendered(listed, form))
    progress = _progress()
    # Each example runs in a folder of its own, where a relative path would lead nowhere; a link stays a link (venv).
    python = str(Path(wanted.python).absolute()) if os.sep in wanted.python else wanted.python
    workshop = Workshop(examples, python)
    needed = {example.build: known.build[example.build] for example in picked if example.build}
    progress("asking TensorFlow for its compile flags")
    unbuilt = workshop.build(needed, progress)

    if wanted.confirm:
        prover = ExampleProver(workshop, known.build, wanted.jobs)
        told = table.proved(prover, picked, unbuilt, tell, progress, full=wanted.full)
        return outcome(lambda form: table.rendered(told, form), is_right=told.is_right)

    width = max(39, min(shutil.get_terminal_size().columns, 120) - 41)
    head = _COLUMNS.format("example", "ended", "found, and where", "report", width=width)
    found: list[DemoResult] = []
    for number, example in enumerate(picked, 1):
        progress(f"running {number} of {len(picked)}: {example.name}, {example.about}")
        if example.build in unbuilt:
            lines = [f"{example.name:<23} skipped  {unbuilt[example.build]}"]
            found.append(DemoResult(example=example.name, about=example.about, skipped=str(unbuilt[example.build])))
        else:
            run = workshop.run(example, known.build)
            found.append(_result(example, run, examples))
            lines = [*_row(example, run, width), *(f"  NOT RIGHT: {fault}" for fault in found[-1].faults)]
            lines += _report(run) if wanted.full else []
        progress("")
        tell(([head, "-" * len(head)] if number == 1 else []) + lines)
    wrong, left_out = sum(bool(one.faults) for one in found), sum(one.skipped is not None for one in found)
    right = len(picked) - wrong - left_out
    tell(["", f"{right} of {len(picked)} as they should be" + (f", {left_out} skipped." if left_out else ".")])
    tell([f"report: seconds from the fatal signal to the finished report. All reports are in {workshop.runs}"])
    return outcome(lambda form: results.rendered(found, form), is_right=not wrong)


def _result(example: Example, run: ExampleRun, examples: Path) -> DemoResult:
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


def _report(run: ExampleRun) -> list[str]:
    """The full report, indented below the example's row."""
    if run.document is None:
        return []
    return [f"    {line}".rstrip() for line in text.render(run.document, width=76).splitlines()]
