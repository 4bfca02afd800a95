"""What ``necropsy demo --confirm`` prints and writes: for each example the cause, what was tried, and what it took."""

from __future__ import annotations

import platform
import shutil
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from necropsy.demo.examples import Example
from necropsy.demo.proof import Prover, Row, row
from necropsy.errors import NecropsyError, OptionError

_COLUMNS = "{:<23} {:<{width}} {:>5} {:>7} {:>7}"
_BEFORE = 24
"""Columns before the text on an example."""


_WORDS = {"observed": "a rival that nothing tests", "inconclusive": "not decided"}


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """The file that ``--json`` writes. ``seconds`` is what a clock showed, ``cpu_s`` what the processors did."""

    python: str
    machine: str
    jobs: int
    seconds: float
    cpu_s: float
    examples: tuple[Row, ...]


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
    prover: Prover,
    examples: Sequence[Example],
    unbuilt: Mapping[str, NecropsyError],
    json_file: Path | None,
    progress: Callable[[str], None],
) -> int:
    """Run all campaigns and print a table. 0 if everything is as the catalogue says, else 1.

    Raises:
        NecropsyError: ``json_file`` cannot be written.

    """
    width = max(32, min(shutil.get_terminal_size().columns, 120) - 46)
    head = _COLUMNS.format("example", "cause", "runs", "seconds", "CPU", width=width)
    print(f"{head}\n{'-' * len(head)}", flush=True)
    left_out = [example for example in examples if example.build in unbuilt]
    for example in left_out:
        print(f"{example.name:<23} skipped: {unbuilt[example.build or '']}", flush=True)
    began, rows = time.monotonic(), []
    for example, found in prover.all([one for one in examples if one not in left_out], progress):
        progress("")
        if isinstance(found, NecropsyError):
            left_out.append(example)
            print(f"{example.name:<23} skipped: {found}", flush=True)
            continue
        rows.append(row(example, found))
        print("\n".join(lines(rows[-1], width)), flush=True)
    told = Told(
        python=platform.python_version(),
        machine=platform.machine(),
        jobs=prover.jobs,
        seconds=round(time.monotonic() - began, 1),
        cpu_s=round(sum(one.cpu_s for one in rows), 1),
        examples=tuple(rows),
    )
    print(f"\n{summary(told, len(examples), len(left_out))}")
    if json_file is not None:
        try:
            json_file.write_bytes(msgspec.json.format(msgspec.json.encode(told), indent=1) + b"\n")
        except OSError as error:
            raise NecropsyError(f"cannot write {json_file}: {error.strerror or error}") from error
    return 0 if rows and not any(one.faults for one in rows) else 1


def lines(told: Row, width: int) -> list[str]:
    """One example: its cause, the fixes under which it lived, its rivals, and what is not as it should be."""
    cause = f"{told.rule or 'no verdict'}: {told.status or 'not tested'}"
    figures = (told.runs, f"{told.seconds:.0f} s", f"{told.cpu_s:.0f} s")
    first = _COLUMNS.format(told.example, cause, *figures, width=width)
    said = [f"lives: {fix.command or fix.text}" for fix in told.fixes]
    if not told.fixes:
        said.append(f"no fix: {told.no_fix or 'none was verified'}")
    by_status: dict[str, list[str]] = {}
    for rule, status in told.rivals.items():
        by_status.setdefault(status, []).append(rule)
    said += [
        f"{'not tested' if status == 'observed' else status}: {', '.join(by_status[status])}" for status in by_status
    ]
    indent = " " * _BEFORE
    wrapped = [line for text in said for line in textwrap.wrap(text, width + 20, break_on_hyphens=False)]
    return [first, *(indent + line for line in wrapped), *(f"  NOT RIGHT: {fault}" for fault in told.faults)]


def summary(told: Told, asked: int, left_out: int) -> str:
    """The last words: how many of the examples are as they should be, and what it took."""
    right = sum(not one.faults for one in told.examples)
    runs = sum(one.runs for one in told.examples)
    no_fix = sum(not one.fixes for one in told.examples)
    words = f"{right} of {asked} as they should be" + (f", {left_out} skipped" if left_out else "")
    words += f", {no_fix} without a fix that could be tried" if no_fix else ""
    return f"{words}.\n{runs} runs in {told.seconds:.0f} s, {told.jobs} at a time; {told.cpu_s:.0f} s of CPU time."
