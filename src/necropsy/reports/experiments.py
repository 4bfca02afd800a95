"""What was tried by experiment: each run under a change, what was predicted of it, and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from necropsy.model import Diagnosis, Experiment, Fix, Report

HEADINGS = ("Died", "What was changed, predicted and seen")


@dataclass(frozen=True)
class ExperimentRow:
    """One experiment in words. ``died``: ``2 of 3`` runs, or ``-`` where there was none."""

    died: str
    change: str
    predicted: str | None
    seen: str

    @property
    def told(self) -> str:
        """What was predicted, what was seen, and what that says."""
        return f"Predicted: {self.predicted}. Seen: {self.seen}." if self.predicted is not None else f"{self.seen}."


def rows(report: Report) -> list[ExperimentRow]:
    """All experiments that were made for a report: the verdict's, then those of the others that are not among them."""
    return [_row(one) for one in _all(report)]


def _all(report: Report) -> Iterator[Experiment]:
    known = set()
    controls = []
    for diagnosis in (*((report.verdict,) if report.verdict is not None else ()), *report.alternatives):
        for one in diagnosis.experiments:
            if (key := (one.name, one.change)) in known:
                continue
            known.add(key)
            if one.name == "unchanged-again":
                controls.append(one)
                continue
            yield one
    yield from controls


def _row(one: Experiment) -> ExperimentRow:
    made = one.runs and not one.outcome.startswith("could not be run")
    died = f"{one.crashed} of {one.runs}" if made else "-"
    seen = one.outcome.removeprefix("it ")
    predicted = None if one.name == "unchanged" or one.predicts == "-" or not made else one.predicts
    seen = _it(seen)
    told = f"{seen}: {one.means}" if one.means else seen
    return ExperimentRow(died, one.change, predicted, told if predicted is not None else told[:1].upper() + told[1:])


_VERBS = ("dies", "died", "survives", "lives", "needs", "does", "did", "still")


def _it(seen: str) -> str:
    """``it survives`` for ``survives``."""
    return f"it {seen}" if seen.startswith(_VERBS) else seen


def helped(fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """The advice without what was tried and did not help."""
    return tuple(fix for fix in fixes if fix.verified is not False)


def did_not_help(fixes: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """What was tried, and did not help."""
    return tuple(fix for fix in fixes if fix.verified is False)


def alternatives(report: Report) -> list[tuple[str, list[Diagnosis]]]:
    """The other diagnoses, by what the experiments say of them: a heading, and those below it."""
    groups: dict[str, list[Diagnosis]] = {
        "What else it could be": [],
        "Also confirmed, as a sign of the same cause": [],
        "Ruled out by experiment": [],
    }
    possible, confirmed, refuted = groups
    for one in report.alternatives:
        name = refuted if one.status == "refuted" else confirmed if one.status == "confirmed" else possible
        groups[name].append(one)
    return [(name, members) for name, members in groups.items() if members]


def rival(one: Diagnosis) -> str:
    """A rival in a sentence or two; one that was ruled out with what the experiments showed of it."""
    said = f"{one.confidence}: {one.rule}. {one.summary}"
    why = next((proof.seen for proof in one.evidence if proof.where == "experiments"), None)
    return f"{said} Seen: {why}." if one.status == "refuted" and why is not None else said
