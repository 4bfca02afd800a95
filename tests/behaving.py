"""Programs made of dice: they behave as a test says, because what is concluded from it is what is tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from necropsy.model import Change, Crash, Culprit, Diagnosis, Evidence, Exit, Fix, Outcome, Report


@dataclass(frozen=True)
class Seen:
    outcome: Outcome
    why: str | None = None
    measures: Mapping[str, float] = field(default_factory=dict)
    rule: str | None = None
    where: str | None = None
    culprit: Culprit | None = None
    wall_s: float | None = 0.1
    seen: Diagnosis | None = None


@dataclass
class Program:
    """A program that behaves as ``does`` says under a change."""

    does: Callable[[Change], Outcome | Seen]
    runs: list[str] = field(default_factory=list)
    why_fresh: str | None = None

    def quick(self, name: str, number: int, change: Change) -> Seen | None:
        return None

    def trial(self, name: str, number: int, change: Change) -> Seen:
        self.runs.append(name)
        seen = self.does(change)
        return seen if isinstance(seen, Seen) else Seen(seen)


def diagnosis(rule: str, *fixes: Fix) -> Diagnosis:
    return Diagnosis(
        rule=rule,
        title="t",
        summary="s",
        severity="error",
        confidence="likely",
        evidence=(Evidence(claim="c", seen="s"),),
        fixes=fixes,
    )


def report(rule: str, *rivals: str, fixes: tuple[Fix, ...] = ()) -> Report:
    return Report(
        crash=Crash(exit=Exit(kind="signaled", signal="SIGSEGV")),
        verdict=diagnosis(rule, *fixes),
        alternatives=tuple(diagnosis(rival) for rival in rivals),
    )
