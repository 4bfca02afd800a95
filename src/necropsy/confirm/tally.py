"""The runs of one experiment together, and how they are told: as a row of the report's table."""

from __future__ import annotations

from dataclasses import dataclass, field

from necropsy.confirm import sampling
from necropsy.model import Experiment, Outcome

UNCHANGED, AGAIN = "unchanged", "unchanged-again"


@dataclass
class Tally:
    """The runs of one experiment so far."""

    outcomes: list[Outcome] = field(default_factory=list)
    why: str | None = None
    ended_early: bool = False
    seconds: float | None = None
    """Duration of the last run."""

    @property
    def crashed(self) -> int:
        """How many of them died."""
        return sum(one in {"same", "another"} for one in self.outcomes)

    @property
    def outcome(self) -> Outcome:
        """What they had in common."""
        kinds = set(self.outcomes)
        return self.outcomes[0] if len(kinds) == 1 else "mixed"


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
    if tally.outcome == "hangs" and tally.seconds:
        return f"still ran after {tally.seconds:.0f} s, and was stopped (--timeout gives it longer)"
    if tally.outcome == "mixed" and tally.crashed == len(tally.outcomes):
        return "dies, not always in the same way"
    return WORDS[tally.outcome].removeprefix("it ")


def told(baseline: Tally) -> Experiment:
    """The runs of the unchanged program, as a row."""
    low, high = sampling.rate_bounds(baseline.crashed, len(baseline.outcomes)) if baseline.outcomes else (0.0, 1.0)
    every = baseline.outcomes and baseline.crashed == len(baseline.outcomes)
    rate = "every time" if every else f"the chance of a crash is between {low:.0%} and {high:.0%} (95 %)"
    gone = f"the crash did not come again: if chance brings it, then in fewer than {high:.0%} of the runs (95 %)"
    return Experiment(
        name=UNCHANGED,
        change="nothing",
        predicts=WORDS["same"],
        runs=len(baseline.outcomes),
        crashed=baseline.crashed,
        outcome=outcome_of(baseline),
        means=rate if baseline.crashed else gone,
        conclusive=sampling.enough(baseline.crashed, len(baseline.outcomes)),
    )


def told_again(again: Tally) -> Experiment | None:
    """The runs of the unchanged program between the others, as a row; None where there were none."""
    if not again.outcomes:
        return None
    dies = again.outcomes[-1] in {"same", "another"}
    if not dies and again.ended_early:
        return None
    gone = "the crash has gone by itself, with the time or with what the runs leave behind: nothing more was tried"
    return Experiment(
        name=AGAIN,
        change="nothing, again, after what it lived through",
        predicts="it still dies",
        runs=len(again.outcomes),
        crashed=again.crashed,
        outcome="still dies" if dies else outcome_of(again),
        means="it was the change that made the difference" if dies else gone,
        conclusive=True,
    )
