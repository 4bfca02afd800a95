"""Tests a report's hypotheses: the unchanged program first, then one change after the other.

Apart from its runner and journal it is pure, so a stopped campaign resumes by reading its journal again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import msgspec

from necropsy.confirm import sampling
from necropsy.confirm.conclusions import ExperimentResult, conclude
from necropsy.confirm.tally import AGAIN, UNCHANGED, Tally, told, told_again
from necropsy.model import (
    Change,
    Culprit,
    Diagnosis,
    Outcome,
    Report,
)

FEWEST, MOST, PATIENCE_S = 10, 60, 20.0
"""Without another crash, ``FEWEST`` runs of the unchanged program run, then up to ``MOST`` within ``PATIENCE_S``: a
crash that comes once in twenty runs is more likely than not to be missing from ten.
"""


class Trial(Protocol):
    """What the campaign asks of one run."""

    @property
    def outcome(self) -> Outcome:
        """What came of it."""

    @property
    def why(self) -> str | None:
        """Why it could not be run."""

    @property
    def measures(self) -> Mapping[str, float]:
        """What was measured of it: see ``measure.of_run``."""

    @property
    def rule(self) -> str | None:
        """The verdict on its death."""

    @property
    def where(self) -> str | None:
        """Who did it, in words, as far as that verdict knows."""

    @property
    def culprit(self) -> Culprit | None:
        """Who did it, as far as that verdict knows."""

    @property
    def seen(self) -> Diagnosis | None:
        """The diagnosis of what a checker that watched it wrote."""

    @property
    def wall_s(self) -> float | None:
        """How long it took, with what necropsy did, in seconds."""


class Bench(Protocol):
    """Who runs the program under a change."""

    def trial(self, name: str, number: int, change: Change) -> Trial:
        """The run ``number`` (from 0) of the experiment ``name``: made now, or read from the journal."""

    def quick(self, name: str, number: int, change: Change) -> Trial | None:
        """The same in a fork, where that is safe; None where it takes a fresh process."""

    @property
    def why_fresh(self) -> str | None:
        """Why there are no forks; None where there are, or where nobody has asked for one."""


class Study(Protocol):
    """One experiment, or several that build on each other, for the hypothesis of ``rule``."""

    @property
    def rule(self) -> str:
        """The rule whose hypothesis is tested."""

    @property
    def text(self) -> str:
        """What it changes, in words."""

    @property
    def shares(self) -> frozenset[str]:
        """Further rules whose hypothesis it tests in the same way."""

    def conduct(self, lab: Lab) -> ExperimentResult:
        """Make the runs that it takes, and say what they mean."""


@runtime_checkable
class Ahead(Protocol):
    """A study with something to make ready while others make their runs."""

    def prepare(self) -> None:
        """Begin with it, and come back at once."""

    def close(self) -> None:
        """The campaign has ended."""


@dataclass(frozen=True)
class Limits:
    """How long a campaign may take: in seconds, and in runs of all experiments together. None: no such limit."""

    budget_s: float | None = None
    runs: int | None = None


class Lab:
    """What a study is given: runs, within the limits, and what the unchanged program did."""

    def __init__(self, bench: Bench, limits: Limits, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._bench, self._limits, self._tell, self._clock = bench, limits, tell, clock
        self._began = clock()
        self._made: dict[str, int] = {}
        self._tallied: list[tuple[Change, Tally, Trial]] = []
        self.baseline = Tally()
        self.last: Trial | None = None
        self.plain_s: float | None = None
        """Seconds of the unchanged program's shortest run; others waited for the machine."""
        self.plain_cpu_s: float | None = None
        """Seconds of processor time of the cheapest one."""
        self.plain: dict[str, float] = {}
        """Maximum of each measure of the unchanged program: see ``measure``."""
        self.tried: dict[str, Outcome] = {}
        """Outcome of each change tried so far, by name."""
        self.again = Tally()
        """Runs of the unchanged program between the others."""
        self.lived = False
        """It survived a run after the unchanged program last died."""

    @property
    def is_known(self) -> bool:
        """The unchanged program has died often enough to say how often it dies."""
        return sampling.enough(self.baseline.crashed, len(self.baseline.outcomes))

    @property
    def enough(self) -> int:
        """So many runs without a crash are no chance."""
        return sampling.needed(len(self.baseline.outcomes)) if self.is_known else sampling.CRASHES

    @property
    def left_s(self) -> float | None:
        """Seconds of the budget that are left; None where there is none."""
        budget = self._limits.budget_s
        return None if budget is None else max(0.0, budget - (self._clock() - self._began))

    @property
    def why_fresh(self) -> str | None:
        """Why every run took a fresh process, where forks were asked for."""
        return self._bench.why_fresh

    def run(self, name: str, change: Change, *, quick: bool = False) -> Trial | None:
        """One more run, or None without budget; ``quick``: in a safe fork, which only shows how it ended."""
        if self._limits.runs is not None and sum(self._made.values()) >= self._limits.runs:
            return None
        if self._limits.budget_s is not None and self._clock() - self._began >= self._limits.budget_s:
            return None
        number = self._made.get(name, 0)
        self._tell(f"{name}, run {number + 1}")
        self._made[name] = number + 1
        forked = self._bench.quick(name, number, change) if quick else None
        self.last = forked if forked is not None else self._bench.trial(name, number, change)
        self.lived = self.lived or self.last.outcome == "survives"
        return self.last

    def remember(self) -> None:
        """Keep what was measured of the run that was made last, as one of the unchanged program."""
        if self.last is not None:
            self.plain_s = min(filter(None, (self.plain_s, self.last.wall_s)), default=None)
            self.plain_cpu_s = min(filter(None, (self.plain_cpu_s, self.last.measures.get("cpu"))), default=None)
            for name, value in self.last.measures.items():
                self.plain[name] = max(self.plain.get(name, 0.0), value)

    def tally(self, name: str, change: Change, *, quick: bool = False) -> Tally:
        """Run each change once, until the crash came again or stayed away for too long to be chance."""
        for before, known, last in self._tallied:
            if before == change:
                self.last = last
                self.tried[name] = known.outcome
                return known
        tally = Tally(ended_early=not self.is_known)
        while len(tally.outcomes) < self.enough:
            if not self.add(tally, name, change, quick=quick):
                break
            if tally.outcomes[-1] != "survives":
                if tally.outcomes[-1] == "another" and len(tally.outcomes) < sampling.EVERY_TIME:
                    continue  # another death twice is no accident
                break
        self.tried[name] = tally.outcome if tally.outcomes else "cannot-run"
        if tally.outcomes and not tally.ended_early and self.last is not None:
            self._tallied.append((change, tally, self.last))
        return tally

    def still_dies(self) -> bool | None:
        """Whether the unchanged program still dies; None if the limits leave this open.

        A crash that disappears by itself, with the time of day or an empty queue, is not gone because of a change.
        """
        for _ in range(self.enough):
            if not self.add(self.again, AGAIN, Change()):
                return None
            if self.again.outcomes[-1] in {"same", "another"}:
                self.lived = False
                return True
        return False

    def add(self, tally: Tally, name: str, change: Change, *, quick: bool = False) -> bool:
        """One more run, into ``tally``, where the limits allow it and it could be started."""
        trial = self.run(name, change, quick=quick)
        if trial is None:
            tally.ended_early = True
            return False
        tally.outcomes.append(trial.outcome)
        tally.why, tally.seconds = trial.why, trial.wall_s
        return trial.outcome != "cannot-run"


class Campaign:
    """Tests the diagnoses of a report by ``plan`` on ``bench``; ``tell`` is called with a text before each run."""

    def __init__(
        self,
        bench: Bench,
        plan: Sequence[Study],
        limits: Limits,
        tell: Callable[[str], None] = lambda _text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._lab = Lab(bench, limits, tell, clock)

    def conducted(self, report: Report) -> Report:
        """The report with its experiments, what they say of each diagnosis, and which fixes are verified."""
        self._baseline()
        results: list[tuple[frozenset[str], ExperimentResult]] = []
        plan = self._plan if self._lab.baseline.crashed else ()
        ahead = [study for study in plan if isinstance(study, Ahead)]
        try:
            for one in ahead:
                one.prepare()
            for study in plan:
                result, holds = self._controlled(study.conduct(self._lab))
                results.append((study.shares | {study.rule}, result))
                if not holds:
                    break
        finally:
            for one in ahead:
                one.close()
        again = told_again(self._lab.again)
        return conclude(report, told(self._lab.baseline), results, () if again is None else (again,))

    def _controlled(self, result: ExperimentResult) -> tuple[ExperimentResult, bool]:
        """The study's result if the unchanged program still dies after it; and whether it does."""
        lab = self._lab
        rests = result.proofs or any(fix.verified for fix in result.fixes)
        rests = rests or any(row.conclusive and row.runs and not row.crashed for row in result.experiments)
        if not (rests and lab.lived and lab.is_known) or lab.still_dies() is not False:
            return result, True
        rows = tuple(
            msgspec.structs.replace(row, conclusive=False, means="nothing: the unchanged program survived too")
            if row.crashed < row.runs
            else row
            for row in result.experiments
        )
        return ExperimentResult(rows, fixes=tuple(fix for fix in result.fixes if fix.verified is False)), False

    def _baseline(self) -> None:
        tally = self._lab.baseline
        took = 0.0
        # However it died: damage to memory is noticed now here, now there.
        while not self._lab.is_known:
            if tally.crashed == 0 and (
                len(tally.outcomes) >= MOST or (len(tally.outcomes) >= FEWEST and took >= PATIENCE_S)
            ):
                break
            if not self._lab.add(tally, UNCHANGED, Change()):
                break
            self._lab.remember()
            took += (self._lab.last.wall_s if self._lab.last is not None else None) or PATIENCE_S
