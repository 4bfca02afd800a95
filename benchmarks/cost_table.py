"""The figures of cost.py as Markdown."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HEADING = "# What supervision costs"
COLUMNS = {
    "plain": "plain",
    "tracer": "bare C tracer",
    "necropsy": "necropsy",
    "fallback": "necropsy, Python loop",
}
_NOISE_S = 0.01
"""Less than this, after the start-up is taken off, gives no ratio."""


@dataclass(frozen=True)
class Cell:
    """Seconds of CPU and on the wall, or why there are none."""

    cpu_s: float = 0.0
    wall_s: float = 0.0
    failure: str = ""

    def less(self, other: Cell) -> Cell:
        """What is left when the start-up is taken off."""
        if self.failure or other.failure:
            return Cell(failure=self.failure or f"start-up: {other.failure}")
        return Cell(max(0.0, self.cpu_s - other.cpu_s), max(0.0, self.wall_s - other.wall_s))

    def __str__(self) -> str:
        return self.failure or f"{self.cpu_s:.2f} ({self.wall_s:.2f})"


@dataclass(frozen=True)
class Costs:
    """One row: what each variant took, or why it could not run (``missing``); ``count`` is the number in the title."""

    title: str
    count: int
    cells: Mapping[str, Cell]
    missing: str = ""

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Costs:
        cells = {name: Cell(**cell) for name, cell in written["cells"].items()}
        return cls(written["title"], written["count"], cells, written["missing"])

    def ratio(self, of: str, to: str) -> str:
        """How many times the CPU of another variant one takes."""
        over, under = self.cells.get(of), self.cells.get(to)
        if over is None or under is None or over.failure or under.failure or under.cpu_s < _NOISE_S:
            return "-"
        return f"{over.cpu_s / under.cpu_s:.2f}"

    def added(self) -> str:
        """A plain run, one under necropsy, and the CPU time that each of ``count`` takes more; "" where not measured."""
        plain, ours = self.cells.get("plain"), self.cells.get("necropsy")
        if plain is None or ours is None or plain.failure:
            return ""
        if ours.failure:
            return f"| {self.title} | {plain.cpu_s:.2f} s | {ours.failure} | - |"
        each = _short(max(0.0, ours.cpu_s - plain.cpu_s) / self.count)
        return f"| {self.title} | {plain.cpu_s:.2f} s | {ours.cpu_s:.2f} s | {each} |"

    def line(self) -> str:
        cells = [self.missing or str(self.cells.get(name, "not measured")) for name in COLUMNS]
        ratios = (self.ratio("necropsy", "tracer"), self.ratio("necropsy", "plain"))
        return f"| {' | '.join((self.title, *cells, *ratios))} |"


def summary(costs: Mapping[str, Costs]) -> str:
    """For readers who want to know what their own program will take: what each thread, process or signal adds."""
    head = ["| what the program does | CPU, plain | CPU, under necropsy | more for each |", "|---|---|---|---|"]
    return "\n".join([*head, *filter(None, (one.added() for one in costs.values()))])


def _short(seconds: float) -> str:
    if seconds >= 0.1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e6:.0f} µs" if seconds >= 1e-6 else "< 1 µs"


def page(costs: Mapping[str, Costs], runs: int) -> str:
    """The section: a heading, how it was measured, one table."""
    when = time.strftime("%Y-%m-%d", time.gmtime())
    head = ("workload", *COLUMNS.values(), "necropsy ÷ tracer", "necropsy ÷ plain")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(one.line() for one in costs.values())]
    return (
        f"{HEADING}\n\n"
        f"`python benchmarks/cost.py --runs {runs}`, {when}, {platform.system()} {platform.release()} "
        f"{platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}. CPU seconds of all "
        "processes, and in brackets wall seconds; the best of the runs, less the start-up of the same column. The last "
        "two columns compare CPU.\n\n" + "\n".join(lines) + "\n"
    )
