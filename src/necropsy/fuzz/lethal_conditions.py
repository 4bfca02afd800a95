"""Learns while a campaign goes on what most of its deaths have in common, so that fewer calls die of what is known.

A death costs as much time as fifty calls. What is told of a finding is learned elsewhere (``preconditions.py``), and
more carefully: here a condition may be wrong for some calls, since part of those that break it are made all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from necropsy.fuzz.conditions import Condition, Number, Term, candidates, values_of
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.recipes import Recipe

_FIRST = 20
"""Deaths after which it learns; then each time that there are half as many again."""
_LEAST = 8
"""Deaths that a condition must explain, which none before it does."""
_WORTH = 6
"""A condition must have saved one death for at most so many calls that did not die: these are made less often, too."""
_SEPARATES = 0.3
"""The share of the deaths that break it is this much larger, at least, than the share of the other calls that do."""
_MOST_CONDITIONS = 3
_MOST_DEAD, _MOST_ALIVE = 100, 300

Values = dict[Term, Number | None]


class LethalConditions:
    """Conditions such as ``rank(a) == 2``: most calls that break one die."""

    def __init__(self, op: OpDefinition, seed: int) -> None:
        """Know no call yet."""
        self.found: list[Condition] = []
        self._op = op
        self._random = Random(f"{seed}:lethal:{op.name}")  # noqa: S311 - it is to be repeatable
        self._dead: list[Values] = []
        self._alive: list[Values] = []
        self._deaths = self._survivals = 0
        self._next = _FIRST

    def note(self, recipe: Recipe, *, died: bool) -> None:
        """A call died, or was accepted or refused; of each a sample is kept, the same for the same calls."""
        if died:
            self._deaths += 1
            self._keep(self._dead, recipe, self._deaths, _MOST_DEAD)
            if self._deaths >= self._next:
                self._next = self._deaths * 3 // 2
                self._learn()
        else:
            self._survivals += 1
            self._keep(self._alive, recipe, self._survivals, _MOST_ALIVE)

    def _keep(self, kept: list[Values], recipe: Recipe, seen: int, most: int) -> None:
        if len(kept) < most:
            kept.append(values_of(recipe))
        elif (at := self._random.randrange(seen)) < most:
            kept[at] = values_of(recipe)

    def is_broken(self, recipe: Recipe) -> bool:
        """Whether the call is likely to die of what is known."""
        if not self.found:
            return False
        values = values_of(recipe)
        return any(one.holds(values) is False for one in self.found)

    def _learn(self) -> None:
        """The conditions that explain the most deaths, one after the other."""
        self.found = []
        dead, alive = self._dead, self._alive
        each_death, each_survival = self._deaths / len(dead), self._survivals / max(1, len(alive))
        while len(self.found) < _MOST_CONDITIONS:
            best, most = None, _SEPARATES
            for one in candidates(self._op, alive, dead, limits=False):
                killed, survived = _breaking(one, dead), _breaking(one, alive)
                separates = killed / max(1, len(dead)) - survived / max(1, len(alive))
                is_worth_it = _WORTH * killed * each_death > survived * each_survival
                if killed >= _LEAST and is_worth_it and separates > most:
                    best, most = one, separates
            if best is None:
                return
            self.found.append(best)
            dead = [values for values in dead if best.holds(values) is not False]
            alive = [values for values in alive if best.holds(values) is not False]


def _breaking(condition: Condition, calls: Sequence[Values]) -> int:
    return sum(condition.holds(values) is False for values in calls)
