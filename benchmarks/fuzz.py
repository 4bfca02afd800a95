"""What the diagnosis of a death takes that fuzzing found: the run of its test, in a fork and in a process of its own.

    python benchmarks/fuzz.py [--runs 5] [--out benchmarks/RESULTS.md]          (make bench)

The ops are some of the bad ones of tests/audit/corpus; g++ builds them below ``--build``. The fork is that of a process
that has TensorFlow already, as at the end of a campaign: how long it took to be ready is a row of its own.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import results

from necropsy.confirm.compiler import Builder
from necropsy.fuzz import diagnosed_runs, test_writer
from necropsy.fuzz.causes import Alone
from necropsy.fuzz.cheap_signature import Death
from necropsy.fuzz.configurations import PLAIN, Configuration
from necropsy.fuzz.forked_runs import ForkedRuns
from necropsy.fuzz.recipes import Recipe, Tensor
from necropsy.model import Report

TITLE = "# Diagnosis of a death that fuzzing found"
CORPUS = Path(__file__).parent.parent / "tests" / "audit" / "corpus" / "bad"
GOAL_S = 2.0
GUARDED = Configuration(guard="end", small_blocks=100)


@dataclass
class Row:
    """A call that kills, of an op in a file of the corpus."""

    file: str
    op: str
    inputs: dict[str, Tensor]
    configuration: Configuration = PLAIN

    def test(self, library: Path, folder: Path) -> Path:
        """Write its test."""
        place = folder / f"{test_writer.test_name(self.op)}.py"
        text = test_writer.text_of(
            self.op,
            Recipe(f"ops.{self.op}", dict(self.inputs), {}),
            repeated=1,
            headline="dies",
            source=test_writer.Source(library=library),
            place=place,
            configuration=self.configuration,
        )
        test_writer.write(place, text)
        return place

    def report(self, test: Path, forked: ForkedRuns | None) -> Report:
        """The report on one run of the test."""
        alone = Alone(Recipe(f"ops.{self.op}", {}, {}), 1, Death("", None), self.configuration)
        function = test_writer.function_name(self.op, self.configuration)
        found = diagnosed_runs.report_of(sys.executable, test, function, alone, build=None, forked=forked)
        if found is None or found.verdict is None:
            raise SystemExit(f"{self.op} survives")
        return found


ROWS = (
    Row("check_on_shapes", "AddExact", {"a": Tensor("float32", (1,)), "b": Tensor("float32", (2,))}),
    Row(
        "gather_functor",
        "GatherRowsLite",
        {"params": Tensor("float32", (4, 2)), "rows": Tensor("int32", (1,), items=(300_000_000,))},
    ),
    Row("nested_parentheses", "EvalSums", {"text": Tensor("string", (1,), items=(("(", 1_000_000),))}),
    Row("difference_of_neighbours", "Neighbours", {"x": Tensor("float32", (16,))}, GUARDED),
)


def timed(runs: int, report: Callable[[], Report]) -> tuple[list[float], set[str | None]]:
    """Seconds of each run, and the different verdicts.

    Signatures are not compared: which of several functions that call each other meets the end of the stack is a matter
    of chance.
    """
    took: list[float] = []
    told: set[str | None] = set()
    for _ in range(runs):
        began = time.monotonic()
        found = report()
        took.append(time.monotonic() - began)
        told.add(found.verdict.rule if found.verdict is not None else None)
    return took, told


def shown(took: list[float]) -> str:
    return f"{statistics.median(took):.2f} s ({min(took):.2f} to {max(took):.2f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--build", type=Path, default=Path(tempfile.gettempdir()) / "fuzzed_corpus")
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    flags = ("-O2", "-g1", "-DEIGEN_MPL2_ONLY")
    libraries = {
        one.file: Builder(CORPUS / f"{one.file}.cc", Path(f"{one.file}.so"), sys.executable, wanted.build).build(flags)
        for one in ROWS
    }
    lines, differ, loads = [], 0, []
    forked = ForkedRuns(sys.executable, ("numpy", "tensorflow"))
    try:
        with tempfile.TemporaryDirectory() as name:
            began = time.monotonic()
            ROWS[0].report(ROWS[0].test(libraries[ROWS[0].file], Path(name)), forked)
            first = time.monotonic() - began
            for row in ROWS:
                test = row.test(libraries[row.file], Path(name))
                row.report(test, forked)  # its process has started then
                quick, verdicts = timed(wanted.runs, partial(row.report, test, forked))
                loads.append(os.getloadavg()[0])
                plain, others = timed(wanted.runs, partial(row.report, test, None))
                loads.append(os.getloadavg()[0])
                differ += verdicts != others
                rules = ", ".join(sorted(str(rule) for rule in verdicts | others))
                guard = ", guarded" if row.configuration.guard is not None else ""
                lines.append(f"| {row.op}{guard} | {rules} | {shown(quick)} | {shown(plain)} |")
    finally:
        forked.close()
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    how = (
        f"`python benchmarks/fuzz.py --runs {wanted.runs}`, {when}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, CPython {platform.python_version()}; medians, and the least and the most. While it ran, "
        f"{min(loads):.0f} to {max(loads):.0f} processes wanted to run (the load average). The goal is {GOAL_S:g} s."
    )
    after = (
        f"The first run in a fork, with the start of the process that imports TensorFlow, took {first:.2f} s; in a campaign "
        f"it starts at the first death. The verdicts of both ways differed for {differ} of {len(ROWS)} ops."
    )
    head = ("| Op | Verdict | In a fork | In a process of its own |", "|---|---|---|---|")
    section = "\n".join([TITLE, "", how, "", *head, *lines, "", after])
    print(section)
    if wanted.out:
        results.put(wanted.out, section + "\n")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
