"""What the demo with ``--confirm`` shows: for each example the cause, what was tried, and what it took."""

from __future__ import annotations

import platform
import shutil
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from demo.examples import Example
from demo.proof import Campaigned, ExampleProver, ProofRow, row
from necropsy.errors import NecropsyError, OptionError
from necropsy.reports import text

_COLUMNS = "{:<23} {:<{width}} {:>5} {:>7} {:>7}"
_BEFORE = 24
"""Columns before the text on an example."""


class TableLine(msgspec.Struct, frozen=True, kw_only=True):
    """All of it, as JSON has it. ``seconds`` is what a clock showed, ``cpu_s`` what the processors did."""

    python: str
    machine: str
    jobs: int
    seconds: float
    cpu_s: float
    examples: tuple[ProofRow, ...]
    skipped: dict[str, str] = {}
    """Name -> why it was not run."""

    @property
    def is_right(self) -> bool:
        """Something was proved, and all of it is as the catalogue says."""
        return bool(self.examples) and not any(one.faults for one in self.examples)


def that_die(examples: Sequence[Example], *, named: bool) -> tuple[Example, ...]:
    """The examples in which there is a cause to prove; ``named``: somebody asked for just these.

    Raises:
        OptionError: none of them dies.

    """
    found = tuple(example for example in examples if example.rule)
    if not found or (named and len(found) < len(examples)):
        alive = ", ".join(example.name for example in examples if not example.rule)
        raise OptionError(f"nothing to prove: {alive} does not die")
    return found


def proved(
    prover: ExampleProver,
    examples: Sequence[Example],
    unbuilt: Mapping[str, NecropsyError],
    say: Callable[[Sequence[str]], None],
    progress: Callable[[str], None],
    *,
    full: bool = False,
) -> TableLine:
    """Run all campaigns, and ``say`` the lines of a table as they end; ``full``: each with its report."""
    width = max(32, min(shutil.get_terminal_size().columns, 120) - 46)
    head = _COLUMNS.format("example", "cause", "runs", "seconds", "CPU", width=width)
    say([head, "-" * len(head)])
    skipped = {one.name: str(unbuilt[one.build]) for one in examples if one.build and one.build in unbuilt}
    for name, why in skipped.items():
        say([f"{name:<23} skipped: {why}"])
    began, rows = time.monotonic(), []
    for example, found in prover.all([one for one in examples if one.name not in skipped], progress):
        progress("")
        if isinstance(found, NecropsyError):
            skipped[example.name] = str(found)
            say([f"{example.name:<23} skipped: {found}"])
            continue
        rows.append(row(example, found))
        say([*lines(rows[-1], width), *(_report(found) if full else [])])
    told = TableLine(
        python=platform.python_version(),
        machine=platform.machine(),
        jobs=prover.jobs,
        seconds=round(time.monotonic() - began, 1),
        cpu_s=round(sum(one.cpu_s for one in rows), 1),
        examples=tuple(rows),
        skipped=skipped,
    )
    say(["", *summary(told)])
    return told


def _cause(told: ProofRow) -> str:
    return f"{told.rule or 'no verdict'}: {told.status or 'not tested'}"


def _by_status(told: ProofRow) -> list[str]:
    found: dict[str, list[str]] = {}
    for rule, status in told.rivals.items():
        found.setdefault("not tested" if status == "observed" else status, []).append(rule)
    return [f"{status}: {', '.join(rules)}" for status, rules in found.items()]


def _report(found: Campaigned) -> list[str]:
    """The full report, indented below the example's row."""
    if found.document is None:
        return []
    return [f"    {line}".rstrip() for line in text.render(found.document, width=76).splitlines()]


def lines(told: ProofRow, width: int) -> list[str]:
    """One example: its cause, the fixes under which it lived, its rivals, and what is not as it should be."""
    figures = (told.runs, f"{told.seconds:.0f} s", f"{told.cpu_s:.0f} s")
    first = _COLUMNS.format(told.example, _cause(told), *figures, width=width)
    said = [f"lives: {fix.command or fix.text}" for fix in told.fixes]
    if not told.fixes:
        said.append(f"no fix: {told.no_fix or 'none was verified'}")
    said += _by_status(told)
    indent = " " * _BEFORE
    wrapped = [line for one in said for line in textwrap.wrap(one, width + 20, break_on_hyphens=False)]
    return [first, *(indent + line for line in wrapped), *(f"  NOT RIGHT: {fault}" for fault in told.faults)]


def summary(told: TableLine) -> list[str]:
    """The last lines: how many of the examples are as they should be, and what it took."""
    right = sum(not one.faults for one in told.examples)
    runs = sum(one.runs for one in told.examples)
    no_fix = sum(not one.fixes for one in told.examples)
    words = f"{right} of {len(told.examples) + len(told.skipped)} as they should be"
    words += f", {len(told.skipped)} skipped" if told.skipped else ""
    words += f", {no_fix} without a fix that could be tried" if no_fix else ""
    took = f"{runs} runs in {told.seconds:.0f} s, {told.jobs} at a time; {told.cpu_s:.0f} s of CPU time."
    return [f"{words}.", took]
