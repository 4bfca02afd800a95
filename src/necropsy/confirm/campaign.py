"""A report's hypotheses put to the test: the unchanged program first, then one change after the other.

The campaign is pure but for its runner and its journal: the same outcomes give the same conclusions, so a campaign that
was stopped goes on where it was by reading its journal again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from necropsy.confirm import sampling
from necropsy.model import Change, Diagnosis, Experiment, Fix, Outcome, Proposal, Report, Status

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


class Bench(Protocol):
    """Who runs the program under a change."""

    def trial(self, name: str, number: int, change: Change) -> Trial:
        """The run ``number`` (from 0) of the experiment ``name``: made now, or read from the journal."""


@dataclass(frozen=True)
class Planned:
    """A proposal, the rule whose hypothesis it tests, and whether that rule gave the verdict."""

    rule: str
    proposal: Proposal
    is_verdict: bool = True


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


class Campaign:
    """Tests the diagnoses of ``report`` by ``plan`` on ``bench``; ``tell`` is told of each run before it is made."""

    def __init__(
        self,
        bench: Bench,
        plan: Sequence[Planned],
        limits: Limits,
        tell: Callable[[str], None] = lambda _text: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._bench, self._plan, self._limits, self._tell, self._clock = bench, plan, limits, tell, clock
        self._began = clock()
        self._made = 0

    def conducted(self, report: Report) -> Report:
        """The report with its experiments, what they say of each diagnosis, and which fixes are verified."""
        baseline = self._baseline()
        results: list[tuple[str, Proposal | None, Experiment]] = [(UNCHANGED, None, _told(baseline))]
        held: dict[str, list[bool | None]] = {}
        fixes: list[Fix] = []
        for planned in self._plan:
            if baseline.crashed == 0:
                break
            tally = self._experiment(planned.proposal, len(baseline.outcomes), enough=self._is_known(baseline))
            experiment, held_true = concluded(planned, tally, baseline)
            results.append((planned.rule, planned.proposal, experiment))
            held.setdefault(planned.rule, []).append(held_true)
            if planned.proposal.fix is not None and experiment.conclusive:
                verified = {"survives": True, "same": False}.get(tally.outcome)
                fixes.append(msgspec.structs.replace(planned.proposal.fix, verified=verified))
        verdict = report.verdict
        if verdict is not None:
            verdict = _judged(verdict, results, held.get(verdict.rule, []), fixes)
        alternatives = tuple(_judged(one, results[1:], held.get(one.rule, []), ()) for one in report.alternatives)
        return msgspec.structs.replace(report, verdict=verdict, alternatives=alternatives)

    # ------------------------------------------------------------ runs

    def _baseline(self) -> Tally:
        tally = Tally()
        while tally.outcomes.count("same") < sampling.CRASHES:
            if len(tally.outcomes) >= FEWEST and tally.crashed == 0:
                break
            if not self._one(UNCHANGED, Change(), tally):
                break
        return tally

    @staticmethod
    def _is_known(baseline: Tally) -> bool:
        return baseline.outcomes.count("same") >= sampling.CRASHES

    def _experiment(self, proposal: Proposal, unchanged: int, *, enough: bool) -> Tally:
        """Run until it is decided: the crash came again, or it stayed away for as long as chance could not keep it."""
        tally = Tally(ended_early=not enough)
        wanted = sampling.needed(unchanged) if enough else sampling.CRASHES
        while len(tally.outcomes) < wanted:
            if not self._one(proposal.name, proposal.change, tally):
                break
            if tally.outcomes[-1] != "survives":
                if tally.outcomes[-1] == "another" and len(tally.outcomes) < sampling.EVERY_TIME:
                    continue  # another death twice is no accident
                break
        return tally

    def _one(self, name: str, change: Change, tally: Tally) -> bool:
        """One more run, where the limits allow it and it could be started."""
        if self._limits.runs is not None and self._made >= self._limits.runs:
            tally.ended_early = True
            return False
        if self._limits.budget_s is not None and self._clock() - self._began >= self._limits.budget_s:
            tally.ended_early = True
            return False
        self._tell(f"{name}, run {len(tally.outcomes) + 1}")
        trial = self._bench.trial(name, len(tally.outcomes), change)
        self._made += 1
        tally.outcomes.append(trial.outcome)
        if trial.outcome == "cannot-run":
            tally.why = trial.why
            return False
        return True


# ---------------------------------------------------------------- what the runs say


def concluded(planned: Planned, tally: Tally, baseline: Tally) -> tuple[Experiment, bool | None]:
    """The experiment as it is reported, and whether its prediction came true (None: that is not known)."""
    proposal = planned.proposal
    decided = bool(tally.outcomes) and tally.outcome not in {"cannot-run", "mixed"}
    if tally.outcome == "survives" if tally.outcomes else False:
        # That it stayed away proves something only where it was seen often enough before, and is missed long enough.
        known = baseline.outcomes.count("same") >= sampling.CRASHES
        decided = known and len(tally.outcomes) >= sampling.needed(len(baseline.outcomes))
    held = tally.outcome in proposal.predicts if decided else None
    if tally.outcomes and tally.outcome == "mixed" and "same" in tally.outcomes:
        # It still comes, if not every time: the change does not remove it.
        decided, held = True, "same" in proposal.predicts
    return (
        Experiment(
            name=proposal.name,
            change=proposal.text,
            predicts=" or ".join(_WORDS[one] for one in proposal.predicts),
            runs=len(tally.outcomes),
            crashed=tally.crashed,
            outcome=_outcome(tally),
            rule=planned.rule,
            means=_means(planned, tally, held),
            conclusive=decided,
        ),
        held,
    )


_WORDS: dict[Outcome, str] = {
    "survives": "it survives",
    "same": "it dies in the same way",
    "another": "it dies in another way",
    "hangs": "it does not end",
    "cannot-run": "it cannot be run",
    "mixed": "it dies sometimes",
}


def _outcome(tally: Tally) -> str:
    if not tally.outcomes:
        return "not run: the budget was spent"
    if tally.outcome == "cannot-run":
        return f"could not be run: {tally.why}" if tally.why else "could not be run"
    return _WORDS[tally.outcome].removeprefix("it ")


def _means(planned: Planned, tally: Tally, held: bool | None) -> str:
    if held is None:
        return "nothing: the budget was spent" if tally.ended_early else "nothing"
    if held:
        return "as predicted" if planned.proposal.proves else "as predicted, which rivals predict too"
    return f"against {planned.rule}" if planned.proposal.refutes else "not as predicted, which proves nothing"


def _told(baseline: Tally) -> Experiment:
    low, high = sampling.rate_bounds(baseline.crashed, len(baseline.outcomes)) if baseline.outcomes else (0.0, 1.0)
    every = baseline.outcomes and baseline.crashed == len(baseline.outcomes)
    rate = "every time" if every else f"the chance of a crash lies between {low:.0%} and {high:.0%} (95 %)"
    return Experiment(
        name=UNCHANGED,
        change="nothing",
        predicts=_WORDS["same"],
        runs=len(baseline.outcomes),
        crashed=baseline.crashed,
        outcome=_outcome(baseline),
        means=rate if baseline.crashed else "the crash did not come again",
        conclusive=baseline.outcomes.count("same") >= sampling.CRASHES,
    )


def _judged(
    diagnosis: Diagnosis,
    results: Sequence[tuple[str, Proposal | None, Experiment]],
    held: Sequence[bool | None],
    fixes: Sequence[Fix],
) -> Diagnosis:
    mine = [(proposal, experiment) for rule, proposal, experiment in results if rule in {diagnosis.rule, UNCHANGED}]
    if not held:
        return msgspec.structs.replace(diagnosis, experiments=tuple(experiment for _, experiment in mine))
    proofs = [
        true
        for (proposal, _), true in zip([one for one in mine if one[0]], held, strict=True)
        if _counts(proposal, true)
    ]
    status: Status = "inconclusive"
    if False in proofs:
        status = "refuted"
    elif True in proofs:
        status = "confirmed"
    return msgspec.structs.replace(
        diagnosis,
        status=status,
        experiments=tuple(experiment for _, experiment in mine),
        fixes=_verified(diagnosis.fixes, fixes),
    )


def _counts(proposal: Proposal | None, true: bool | None) -> bool:
    return proposal is not None and true is not None and (proposal.proves if true else proposal.refutes)


def _verified(fixes: Sequence[Fix], tried: Sequence[Fix]) -> tuple[Fix, ...]:
    """The advice, each with what its trial said; what was tried and works stands first."""
    by_text = {fix.text: fix for fix in tried}
    told = [by_text.pop(fix.text, fix) for fix in fixes] + list(by_text.values())
    return tuple(sorted(told, key=lambda fix: {True: 0, None: 1, False: 2}[fix.verified]))
