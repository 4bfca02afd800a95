"""The same program with other numbers or words in its command: from which size on it dies, and with which values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from necropsy.confirm.campaign import Lab
from necropsy.confirm.conclusions import ExperimentResult
from necropsy.confirm.stack_size import FULL
from necropsy.confirm.tally import Tally, outcome_of
from necropsy.errors import OptionError
from necropsy.model import Change, Evidence, Experiment

PRECISION = 0.001
"""Relative precision of a size's threshold; at least 1."""
_NAME = r"[A-Za-z_]\w*"


@dataclass(frozen=True)
class Scale:
    """``--scale NAME=LO..HI``: the whole number for ``{NAME}`` in the command from which on the program dies."""

    name: str
    low: int
    high: int
    rule: str = ""
    shares: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """What it changes, in words."""
        return f"{{{self.name}}} between {self.low:,} and {self.high:,}, by halves"

    def conduct(self, lab: Lab) -> ExperimentResult:
        """Halve the range until the threshold is found; every point is run until it is decided."""
        runs = crashed = 0
        low, high = self.low, self.high
        ends = {}
        measures: Mapping[str, float] = {}
        for value in (self.high, self.low):
            tally = self._at(lab, value)
            runs, crashed = runs + len(tally.outcomes), crashed + tally.crashed
            ends[value] = tally
            if value == self.high and lab.last is not None:
                measures = lab.last.measures
        if not ends[self.high].crashed or ends[self.low].crashed or not ends[self.low].outcomes:
            return ExperimentResult((self._row(runs, crashed, self._no_threshold(ends), conclusive=None),))
        # Both ends were seen die and live in fresh processes; what lies between asks only for yes or no.
        while high - low > max(1, PRECISION * high):
            middle = (low + high) // 2
            tally = self._at(lab, middle, quick=True)
            if not tally.outcomes or tally.outcome == "cannot-run":
                break
            runs, crashed = runs + len(tally.outcomes), crashed + tally.crashed
            if tally.crashed:
                high = middle
            else:
                low = middle
        decided = high - low <= max(1, PRECISION * high)
        means = _filled(measures, high) if decided else None
        if lab.why_fresh is not None:
            means = "; ".join(filter(None, [means, f"each in a fresh process, because {lab.why_fresh}"]))
        outcome = f"it dies from {high:,} on" if high - low == 1 else f"it lives with {low:,} and dies with {high:,}"
        return ExperimentResult((self._row(runs, crashed, outcome, conclusive=decided, means=means),))

    def _at(self, lab: Lab, value: int, *, quick: bool = False) -> Tally:
        return lab.tally(f"{self.name}-{value}", Change(arguments={self.name: str(value)}), quick=quick)

    def _no_threshold(self, ends: dict[int, Tally]) -> str:
        if not ends[self.high].crashed:
            return f"it does not die with {self.high:,}"
        return f"it dies with {self.low:,} already" if ends[self.low].outcomes else "not run: the budget was spent"

    def _row(
        self, runs: int, crashed: int, outcome: str, *, conclusive: bool | None, means: str | None = None
    ) -> Experiment:
        return Experiment(
            name=f"scale-{self.name}",
            change=self.text,
            predicts="it dies from one size on",
            runs=runs,
            crashed=crashed,
            outcome=outcome,
            rule=self.rule or None,
            means=means,
            conclusive=conclusive,
        )


@dataclass(frozen=True)
class ParameterSweep:
    """``--vary NAME=a,b,c``: each of these words for ``{NAME}`` in the command, or for the variable of ``ENV:NAME``."""

    name: str
    values: tuple[str, ...]
    is_variable: bool = False
    rule: str = ""
    shares: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """What it changes, in words."""
        what = f"the variable {self.name}" if self.is_variable else f"{{{self.name}}}"
        return f"{what} as {', '.join(self.values)}, one after the other"

    def conduct(self, lab: Lab) -> ExperimentResult:
        """Run with each value until it is decided."""
        rows = []
        for value in self.values:
            change = (
                Change(environment={self.name: value}) if self.is_variable else Change(arguments={self.name: value})
            )
            tally = lab.tally(f"{self.name}={value}", change)
            survives = bool(tally.outcomes) and tally.outcome == "survives"
            rows.append(
                Experiment(
                    name=f"{self.name}={value}",
                    change=f"{self.name}={value}",
                    predicts="-",
                    runs=len(tally.outcomes),
                    crashed=tally.crashed,
                    outcome=outcome_of(tally),
                    rule=self.rule or None,
                    conclusive=bool(tally.crashed) or (survives and lab.is_known and len(tally.outcomes) >= lab.enough),
                )
            )
        dies = [row.name.partition("=")[2] for row in rows if row.crashed]
        lives = [row.name.partition("=")[2] for row in rows if row.conclusive and not row.crashed]
        said = f"dies with {', '.join(dies)}" if dies else ""
        said += ("; " if said and lives else "") + (f"lives with {', '.join(lives)}" if lives else "")
        claim, where = f"with which values of {self.name} it dies", f"runs with {self.name} as each of them"
        evidence = (Evidence(claim=claim, seen=said, where=where),) if said else ()
        return ExperimentResult(tuple(rows), evidence=evidence)


_AGREES = 0.1


def _filled(measures: Mapping[str, float], number: int) -> str | None:
    """If a recursion fills the stack with ``number``: the number of levels, and the bytes of each.

    One step of the number may not be one level: a compiler may merge two, and an image has the square of its side.
    """
    per_level, size, used = (measures.get(name) for name in ("per_level", "size", "used"))
    if not per_level or not size or used is None or used < FULL * size:
        return None
    share = per_level * number / size
    if abs(share - 1) <= _AGREES:
        return f"{number:,} x {per_level:,.0f} bytes of stack are {share:.0%} of the {size:,.0f} that it has"
    levels = f"{size / per_level:,.0f} levels of {per_level:,.0f} bytes"
    return f"at that value, its {size:,.0f} bytes of stack are full, with {levels}"


def scale(text: str) -> Scale:
    """Parse ``DEPTH=1..1000000``; raises ``OptionError`` for another form or an empty range."""
    match = re.fullmatch(rf"({_NAME})=(\d+)\.\.(\d+)", text)
    if match is None or int(match[2]) >= int(match[3]):
        raise OptionError(f"--scale {text}: expected NAME=LO..HI, with two whole numbers, such as DEPTH=1..1000000")
    return Scale(match[1], int(match[2]), int(match[3]))


def vary(text: str) -> ParameterSweep:
    """Parse ``MODE=graph,eager`` or ``ENV:OMP_NUM_THREADS=1,2``; raises ``OptionError`` for another form."""
    match = re.fullmatch(rf"(ENV:)?({_NAME})=(.+)", text)
    if match is None:
        raise OptionError(f"--vary {text}: expected NAME=a,b,c or ENV:NAME=a,b,c")
    return ParameterSweep(match[2], tuple(match[3].split(",")), is_variable=match[1] is not None)
