"""What supervision costs: CPU and wall time of many kinds of programs, plain and supervised, in one run.

    python benchmarks/cost.py [--only ROW]... [--runs 3] [--quick] [--out benchmarks/RESULTS.md]          (make bench)

Each workload runs in four ways by turns: plain; under a bare tracer of some lines of C, which does the least that a
ptrace supervisor can do; under necropsy; and under necropsy whose loop is written in Python (``NECROPSY_LOOP=python``).
CPU is that of all processes, necropsy's own among them. The best of the runs counts: whatever else the machine does
only adds. Start-up is measured with /bin/true in the same ways and taken off.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import cost_table
import results
from cost_rows import ROWS, Built, Missing, Row
from cost_table import Cell, Costs
from meter import Measured, Stream, adopt, measure

VARIANTS = ("plain", "tracer", "necropsy", "fallback")
_STARTS = 5
"""Runs of /bin/true: they are short."""
_SHOWN = 2000
"""Characters of what a workload said that failed."""


@dataclass(frozen=True)
class Bench:
    """How everything is measured: ``variants`` in the order in which they take turns, seconds for the limit."""

    built: Built
    necropsy: Sequence[str]
    variants: Sequence[str]
    runs: int
    limit_s: float
    quick: bool
    environment: Mapping[str, str]
    starts: dict[tuple[str, Stream], dict[str, Cell]] = field(default_factory=dict)

    def warm(self) -> None:
        """Let necropsy's modules be compiled, as an installation does it; SystemExit where necropsy does not trace."""
        traced = ("grep", "-q", "^TracerPid:\\s*[1-9]", "/proc/self/status")
        command = [*self.necropsy, "run", "--", *traced]
        if measure(command, self.built.folder, self.environment, stderr="file", limit_s=self.limit_s).code:
            raise SystemExit(f"not traced, so there is nothing to measure: {shlex.join(command)}")

    def row(self, row: Row) -> Costs:
        """All variants of one row; CPU and wall seconds less those of the start-up."""
        title = row.titled(quick=self.quick)
        count = row.sized(quick=self.quick)
        try:
            command = row.command(self.built, count)
        except Missing as missing:
            return Costs(title, count, {}, str(missing))
        starts = self._starts(row.log, row.stderr)
        cells = self._by_turns(row.name, command, row, self.runs, row.variables(count))
        return Costs(title, count, {name: cell.less(starts[name]) for name, cell in cells.items()})

    def start_up(self) -> Costs:
        """What /bin/true takes: nothing is taken off."""
        return Costs("start-up: /bin/true", 1, self._starts("auto", "file"))

    def _starts(self, log: str, stderr: Stream) -> dict[str, Cell]:
        if (log, stderr) not in self.starts:
            nothing = Row("start-up", "", 1, lambda *_: [], log, stderr)
            runs = 1 if self.quick else max(_STARTS, self.runs)
            self.starts[log, stderr] = self._by_turns(f"start-up, {log}, {stderr}", ["/bin/true"], nothing, runs, {})
        return self.starts[log, stderr]

    def _by_turns(
        self, name: str, command: Sequence[str], row: Row, runs: int, variables: Mapping[str, str]
    ) -> dict[str, Cell]:
        found: dict[str, list[Measured]] = {variant: [] for variant in self.variants}
        for number in range(runs):
            for variant in self.variants:
                if any(one.late or one.code for one in found[variant]):
                    continue  # it would fail again, and take its time
                print(f"{name}: {variant}, run {number + 1} of {runs}", file=sys.stderr)
                found[variant].append(self._once(variant, command, row, variables))
        return {variant: self._cell(measured) for variant, measured in found.items()}

    def _once(self, variant: str, command: Sequence[str], row: Row, variables: Mapping[str, str]) -> Measured:
        before: Mapping[str, Sequence[str]] = {
            "plain": (),
            "tracer": (self.built.from_c("bare_tracer"),),
            "necropsy": (*self.necropsy, "run", "--log", row.log, "--"),
            "fallback": (*self.necropsy, "run", "--log", row.log, "--"),
        }
        environment = {**self.environment, **variables}
        if variant == "fallback":
            environment["NECROPSY_LOOP"] = "python"
        command = [*before[variant], *command]
        found = measure(command, self.built.folder, environment, stderr=row.stderr, limit_s=self.limit_s)
        if found.code and not found.late and row.stderr == "file":
            print((self.built.folder / "stderr").read_text(errors="replace")[-_SHOWN:], file=sys.stderr)
        return found

    def _cell(self, measured: Sequence[Measured]) -> Cell:
        for one in measured:
            if one.late:
                return Cell(failure=f"not finished after {self.limit_s:.0f} s")
            if one.code:
                return Cell(failure=f"exit code {one.code}")
        return Cell(min(one.cpu_s for one in measured), min(one.wall_s for one in measured))


def environment(folder: Path) -> dict[str, str]:
    """The user's own, but compiled modules are kept as in every installation, and reports go with the folder."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**own, "NECROPSY_OUTPUT": str(folder / "reports")}


def chosen(names: Sequence[str]) -> list[Row]:
    """The rows of these names, or of groups of them: ``threads`` means ``threads-4000`` too."""
    known = {row.name for row in ROWS}
    for name in names:
        if name not in known and not any(one.startswith(f"{name}-") for one in known):
            raise SystemExit(f"no row {name!r}; there are: {', '.join(row.name for row in ROWS)}")
    return [row for row in ROWS if not names or any(row.name == one or row.name.startswith(f"{one}-") for one in names)]


def arguments_of(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="this row, or all ROW-...")
    parser.add_argument("--runs", type=int, default=3, help="runs of each variant; the best counts")
    parser.add_argument("--quick", action="store_true", help="a hundredth of everything: to see that it works")
    parser.add_argument("--limit", type=float, default=120.0, metavar="SECONDS", help="for one run (default: 120)")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="the ways to run (default: %(default)s)")
    parser.add_argument(
        "--necropsy",
        default=shlex.join([sys.executable, "-m", "necropsy"]),
        metavar="COMMAND",
        help="the necropsy that is measured",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures; rows that it has already stay")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the tables into this page")
    parser.add_argument(
        "--summary", type=Path, metavar="FILE", help="write a shorter table between the marks in this page"
    )
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    arguments = arguments_of(words)
    variants = [one for one in VARIANTS if one in arguments.variants.split(",")]
    kept: dict[str, Any] = {}
    if arguments.json and arguments.json.exists():
        kept = json.loads(arguments.json.read_text())
    costs = {name: Costs.from_json(one) for name, one in kept.items()}
    adopt()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what runs is ended, as at Ctrl-C
    with tempfile.TemporaryDirectory(prefix="necropsy-cost-") as name:
        folder = Path(name)
        measured = Bench(
            Built(folder),
            shlex.split(arguments.necropsy),
            variants,
            arguments.runs,
            arguments.limit,
            arguments.quick,
            environment(folder),
        )
        measured.warm()
        costs["start-up"] = measured.start_up()
        for row in chosen(arguments.only):
            costs[row.name] = measured.row(row)
            if arguments.json:
                arguments.json.write_text(json.dumps({key: asdict(one) for key, one in costs.items()}, indent=1))
    order = ["start-up", *(row.name for row in ROWS)]
    costs = {key: costs[key] for key in order if key in costs}
    text = cost_table.page(costs, arguments.runs)
    if arguments.summary:
        results.put_between(arguments.summary, "costs", cost_table.summary(costs))
    if arguments.out:
        results.put(arguments.out, text)
    print(text)


if __name__ == "__main__":
    main()
