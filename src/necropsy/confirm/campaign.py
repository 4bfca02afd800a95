"""A report's hypotheses put to the test: the unchanged program first, then one change after the other.

The campaign is pure but for its runner and its journal: the same outcomes give the same conclusions, so a campaign that
was stopped goes on where it was by reading its journal again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import msgspec

from necropsy.confirm import sampling
from necropsy.confirm.conclusions import conclude, proved_instead
from necropsy.model import (
    Change,
    Culprit,
    Diagnosis,
    Evidence,
    Experiment,
    Fix,
    Outcome,
    Proposal,
    Report,
)

UNCHANGED = "unchanged"
FEWEST = 10
"""Runs of the unchanged program after which a crash that never came again is given up."""


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


@dataclass(frozen=True)
class Result:
    """What an experiment found: its rows, whether each prediction came true and counts, and the fixes that it tried."""

    experiments: tuple[Experiment, ...]
    proofs: Mapping[str, bool] = field(default_factory=dict)
    """For each rule of which it says something: whether it holds."""
    fixes: tuple[Fix, ...] = ()
    culprit: Culprit | None = None
    """Who did it, where a check saw it being done."""
    evidence: tuple[Evidence, ...] = ()
    """What was measured or seen besides, for the diagnosis that it speaks of."""
    instead: Diagnosis | None = None
    """The diagnosis that it proves, where that is not the one that was tested."""


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

    def conduct(self, lab: Lab) -> Result:
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


@dataclass
class Tally:
    """The runs of one experiment so far."""

    outcomes: list[Outcome] = field(default_factory=list)
    why: str | None = None
    ended_early: bool = False

    @property
    def crashed(self) -> int:
        """How many of them died."""
        return sum(one in {"same", "another"} for one in self.outcomes)

    @property
    def outcome(self) -> Outcome:
        """What they had in common."""
        kinds = set(self.outcomes)
        return self.outcomes[0] if len(kinds) == 1 else "mixed"


class Lab:
    """What a study is given: runs, within the limits, and what the unchanged program did."""

    def __init__(self, bench: Bench, limits: Limits, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._bench, self._limits, self._tell, self._clock = bench, limits, tell, clock
        self._began = clock()
        self._made: dict[str, int] = {}
        self.baseline = Tally()
        self.last: Trial | None = None
        """The run that was made last."""
        self.plain_s: float | None = None
        """How long the shortest run of the unchanged program took, in seconds: others waited for the machine."""
        self.plain: dict[str, float] = {}
        """The most that was measured of the unchanged program: see ``measure``."""
        self.tried: dict[str, Outcome] = {}
        """What came of each change that was tried so far, by its name."""

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
        """One more run of the experiment ``name``; None where the budget is spent.

        ``quick``: in a fork, where that is safe; nothing but how it ended is known of it then.
        """
        if self._limits.runs is not None and sum(self._made.values()) >= self._limits.runs:
            return None
        if self._limits.budget_s is not None and self._clock() - self._began >= self._limits.budget_s:
            return None
        number = self._made.get(name, 0)
        self._tell(f"{name}, run {number + 1}")
        self._made[name] = number + 1
        forked = self._bench.quick(name, number, change) if quick else None
        self.last = forked if forked is not None else self._bench.trial(name, number, change)
        return self.last

    def remember(self) -> None:
        """Keep what was measured of the run that was made last, as one of the unchanged program."""
        if self.last is not None:
            self.plain_s = min(filter(None, (self.plain_s, self.last.wall_s)), default=None)
            for name, value in self.last.measures.items():
                self.plain[name] = max(self.plain.get(name, 0.0), value)

    def tally(self, name: str, change: Change, *, quick: bool = False) -> Tally:
        """Run until it is decided: the crash came again, or it stayed away for as long as chance could not keep it."""
        tally = Tally(ended_early=not self.is_known)
        while len(tally.outcomes) < self.enough:
            if not self.add(tally, name, change, quick=quick):
                break
            if tally.outcomes[-1] != "survives":
                if tally.outcomes[-1] == "another" and len(tally.outcomes) < sampling.EVERY_TIME:
                    continue  # another death twice is no accident
                break
        self.tried[name] = tally.outcome if tally.outcomes else "cannot-run"
        return tally

    def add(self, tally: Tally, name: str, change: Change, *, quick: bool = False) -> bool:
        """One more run, into ``tally``, where the limits allow it and it could be started."""
        trial = self.run(name, change, quick=quick)
        if trial is None:
            tally.ended_early = True
            return False
        tally.outcomes.append(trial.outcome)
        tally.why = trial.why
        return trial.outcome != "cannot-run"


class Campaign:
    """Tests the diagnoses of a report by ``plan`` on ``bench``; ``tell`` is told of each run before it is made."""

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
        results: list[tuple[frozenset[str], Result]] = []
        plan = self._plan if self._lab.baseline.crashed else ()
        ahead = [study for study in plan if isinstance(study, Ahead)]
        try:
            for study in ahead:
                study.prepare()
            results += [(study.shares | {study.rule}, study.conduct(self._lab)) for study in plan]
        finally:
            for study in ahead:
                study.close()
        first = told(self._lab.baseline)
        return conclude(report, first, results)

    def _baseline(self) -> None:
        tally = self._lab.baseline
        # However it died: damage to memory is noticed now here, now there.
        while not self._lab.is_known:
            if len(tally.outcomes) >= FEWEST and tally.crashed == 0:
                break
            if not self._lab.add(tally, UNCHANGED, Change()):
                break
            self._lab.remember()


@dataclass(frozen=True)
class Planned:
    """A rule's proposal, as the study that it asks for."""

    rule: str
    proposal: Proposal
    shares: frozenset[str] = frozenset()
    title: str = ""
    """That of the rule ``proposal.otherwise``."""

    @property
    def text(self) -> str:
        """What it changes, in words."""
        return self.proposal.text

    def conduct(self, lab: Lab) -> Result:
        """Run under the change until it is decided whether the prediction came true."""
        proposal = self.proposal
        tally = lab.tally(proposal.name, proposal.change)
        experiment, held = concluded(self, tally, lab)
        fixes: tuple[Fix, ...] = ()
        if proposal.fix is not None and experiment.conclusive:
            # Another death in its place is no fix either.
            verified = {"survives": True, "same": False, "another": False}.get(tally.outcome)
            fixes = (msgspec.structs.replace(proposal.fix, verified=verified),)
        counts = held is not None and (proposal.proves if held else proposal.refutes)
        last = lab.last if tally.crashed else None
        # The death that it dies anyway, now here, now there, is not the check's.
        is_new = last is not None and last.outcome == "another" and "another" not in lab.baseline.outcomes
        if last is not None and is_new and last.rule in proposal.finds:
            said = f"{last.rule}" + (f", {last.where}" if last.where else "")
            experiment = msgspec.structs.replace(experiment, means=f"the check found it: {said}", conclusive=True)
            return Result((experiment,), {self.rule: True}, fixes)
        proofs = {self.rule: bool(held)} if counts else {}
        other = proposal.otherwise
        if other is None or held is not False or tally.outcome != "survives":
            return Result((experiment,), proofs, fixes)
        found = proved_instead(other, self.title, f"with {proposal.text} it lives", experiment)
        return Result((experiment,), {**proofs, other: True}, fixes, instead=found)


# ---------------------------------------------------------------- what the runs say


def concluded(planned: Planned, tally: Tally, lab: Lab) -> tuple[Experiment, bool | None]:
    """The experiment as it is reported, and whether its prediction came true (None: that is not known)."""
    proposal = planned.proposal
    decided = bool(tally.outcomes) and tally.outcome not in {"cannot-run", "mixed"}
    if decided and tally.outcome == "survives":
        # That it stayed away proves something only where it was seen often enough before, and is missed long enough.
        decided = lab.is_known and len(tally.outcomes) >= lab.enough
    held = tally.outcome in proposal.predicts if decided else None
    if tally.outcomes and tally.outcome == "mixed" and "same" in tally.outcomes:
        # It still comes, if not every time: the change does not remove it.
        decided, held = True, "same" in proposal.predicts
    by = lab.last.rule if lab.last is not None else None
    return (
        Experiment(
            name=proposal.name,
            change=proposal.text,
            predicts=" or ".join(WORDS[one] for one in proposal.predicts),
            runs=len(tally.outcomes),
            crashed=tally.crashed,
            outcome=outcome_of(tally) + (f", by {by}" if by is not None and tally.outcome == "another" else ""),
            rule=planned.rule,
            means=_means(planned, tally, held),
            conclusive=decided,
        ),
        held,
    )


WORDS: dict[Outcome, str] = {
    "survives": "it survives",
    "same": "it dies in the same way",
    "another": "it dies in another way",
    "hangs": "it does not end",
    "cannot-run": "it cannot be run",
    "mixed": "it dies sometimes",
}


def outcome_of(tally: Tally) -> str:
    """What came of the runs, in words."""
    if not tally.outcomes:
        return "not run: the budget was spent"
    if tally.outcome == "cannot-run":
        return f"could not be run: {tally.why}" if tally.why else "could not be run"
    return WORDS[tally.outcome].removeprefix("it ")


def _means(planned: Planned, tally: Tally, held: bool | None) -> str:
    if held is None:
        return "nothing: the budget was spent" if tally.ended_early else "nothing"
    if held:
        return "as predicted" if planned.proposal.proves else "as predicted, which rivals predict too"
    return f"against {planned.rule}" if planned.proposal.refutes else "not as predicted, which proves nothing"


def told(baseline: Tally) -> Experiment:
    """The runs of the unchanged program, as a row."""
    low, high = sampling.rate_bounds(baseline.crashed, len(baseline.outcomes)) if baseline.outcomes else (0.0, 1.0)
    every = baseline.outcomes and baseline.crashed == len(baseline.outcomes)
    rate = "every time" if every else f"the chance of a crash lies between {low:.0%} and {high:.0%} (95 %)"
    return Experiment(
        name=UNCHANGED,
        change="nothing",
        predicts=WORDS["same"],
        runs=len(baseline.outcomes),
        crashed=baseline.crashed,
        outcome=outcome_of(baseline),
        means=rate if baseline.crashed else "the crash did not come again",
        conclusive=sampling.enough(baseline.crashed, len(baseline.outcomes)),
    )
