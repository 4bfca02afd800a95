"""What makes a finding: a call that kills by itself, the deaths counted to it, and when two causes are one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from necropsy.fuzz.campaign import Suspect
from necropsy.fuzz.cheap_signature import Death
from necropsy.fuzz.conditions import Condition, values_of
from necropsy.fuzz.configurations import PLAIN, Configuration
from necropsy.fuzz.function_names import without_types
from necropsy.fuzz.recipes import Recipe
from necropsy.fuzz.remains import ACCESS, OF_MEMORY, Remains, are_of_one_damage, may_be_of_one_damage, may_be_shorter
from necropsy.model import Diagnosis, Evidence, FuzzFinding, Report


@dataclass(frozen=True)
class Alone:
    """A call that kills a process that made no other: ``repeated`` times, where once is not enough."""

    recipe: Recipe
    repeated: int
    death: Death
    configuration: Configuration = PLAIN


@dataclass
class Cause:
    """What a finding was made from: its call, and all deaths that were counted to it."""

    alone: Alone
    suspects: list[Suspect]
    report: Report
    remains: Remains
    test: Path | None
    """Its test, if that was not there before."""
    conditions: tuple[Condition, ...] = field(default=())
    """All of its calls break one of these, and no accepted call does."""

    @property
    def signatures(self) -> frozenset[str]:
        """The cheap signatures of its deaths."""
        return frozenset({self.alone.death.signature, *(one.death.signature for one in self.suspects)})

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """The calls that died of it, as far as they were kept."""
        return (self.alone.recipe, *(one for each in self.suspects for one in (each.recipe, *each.lethal)))

    def includes(self, other: Cause) -> bool:
        """Whether each call of the other one does what these calls do: it breaks the same condition."""
        values = map(values_of, other.recipes)
        return bool(self.conditions) and all(
            any(condition.holds(each) is False for condition in self.conditions) for each in values
        )


def is_same_cause(one: FuzzFinding, verdict: Diagnosis, signature: str | None, op: str) -> bool:
    """The same signature, or the same rule in the same function, whatever types it is compiled for.

    An access beyond a buffer has another rule where it hits memory that is not mapped, or that is read-only.
    """
    if one.call.target != op:
        return False
    if one.signature == signature:  # none where nothing died: one finding of each rule
        return signature is not None or one.rule == verdict.rule
    mine, other = verdict.culprit, one.culprit
    if mine is None or other is None or mine.function is None or other.function is None:
        return False
    if without_types(mine.function) != without_types(other.function):
        return False
    rules = {one.rule, verdict.rule}
    if mine.line == other.line and mine.line is not None and rules <= OF_MEMORY:
        return True
    return (len(rules) == 1 or rules <= ACCESS) and (mine.line == other.line or None in {mine.line, other.line})


def merge_victims(
    numbers: Iterable[int],
    found: list[FuzzFinding],
    causes: dict[int, Cause],
    reports: list[Report],
    shortened: Callable[[Cause, Cause], bool],
) -> None:
    """Make one finding of those that are deaths of one overrun: the one that says most of where it was.

    ``numbers``: the places of the findings on one op in ``found``. They are of one overrun if their reports allow it
    (``remains.py``), and if each call that does one breaks the condition of the other, or if the one runs off the stack
    and, ``shortened``, dies as the other.
    """

    def is_one(one: Cause, other: Cause) -> bool:
        return _is_one(one, other) or (may_be_shorter(other.remains, one.remains) and shortened(one, other))

    groups: list[list[int]] = []
    # A victim elsewhere joins one place in the op's own code, and makes no bridge between two.
    for at in sorted(numbers, key=lambda one: (causes[one].remains.is_aftermath, one)):
        own = next((group for group in groups if any(is_one(causes[each], causes[at]) for each in group)), None)
        if own is None:
            groups.append([at])
        else:
            own.append(at)
    gone = {at for group in groups for at in _merged(group, found, causes, reports)}
    for at in sorted(gone, reverse=True):
        del found[at]
        del causes[at]
    kept = {at - sum(one < at for one in gone): cause for at, cause in causes.items()}
    causes.clear()
    causes.update(kept)


def _is_one(one: Cause, other: Cause) -> bool:
    if are_of_one_damage(one.remains, other.remains):
        return True
    return may_be_of_one_damage(one.remains, other.remains) and (one.includes(other) or other.includes(one))


def _merged(group: list[int], found: list[FuzzFinding], causes: dict[int, Cause], reports: list[Report]) -> list[int]:
    """Add the others to the best of the group, and return their places."""
    best, *others = sorted(group, key=lambda one: (causes[one].remains.is_aftermath, len(found[one].needs), one))
    widest = max(group, key=lambda at: sum(causes[at].includes(causes[one]) for one in group))
    for at in others:
        cause, one = causes[at], found[at]
        causes[best].suspects += cause.suspects
        place = one.culprit.function if one.culprit is not None else None
        times = "once" if one.times == 1 else f"{one.times:,} times"
        also = Evidence(
            claim="calls that do the same damage also died in another way",
            seen=f"{one.rule}{f' in `{place}`' if place else ''}, {times}: {one.call.python[:500]}",
            where=f"a run {cause.alone.configuration}",
        )
        mine = found[best]
        found[best] = msgspec.structs.replace(mine, times=mine.times + one.times, evidence=(*mine.evidence, also))
        reports.remove(cause.report)
        if cause.test is not None:
            cause.test.unlink(missing_ok=True)
    if causes[widest].includes(causes[best]):
        found[best] = msgspec.structs.replace(found[best], precondition=found[widest].precondition)
        causes[best].conditions = causes[widest].conditions
    return others
