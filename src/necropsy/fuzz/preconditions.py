"""Finds the smallest condition that separates the calls that die of a finding from those that are accepted.

It is learned from the calls of the campaign, then tried on calls that were never made, on both sides of it: one that
dies although the condition holds, or is accepted although it does not, is learned from as well. Told is only what no
accepted call contradicts.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from necropsy.fuzz.cheap_signature import Death
from necropsy.fuzz.condition_checks import check
from necropsy.fuzz.conditions import Condition, Number, Term, candidates, values_of, with_value
from necropsy.fuzz.configurations import PLAIN, Configuration
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.engine import Call, Ended, Engine
from necropsy.fuzz.generator import Generator, Seen
from necropsy.fuzz.recipes import Recipe
from necropsy.model import FuzzPrecondition

MOST_CONDITIONS = 3
_LEAST = 5
"""Accepted calls without which nothing is learned; and deaths on the wrong side that a condition must have."""
_LEAST_DEAD = 3
_ROUNDS = 12
_HOLDING, _BREAKING = 30, 12
"""New calls of a round: for which all conditions hold, and for which not; of these as many that break one only."""
_MOST_RUNS, _MOST_DEATHS = 1000, 90
_ACCEPTED_AGAIN, _DIED_AGAIN = 60, 8
"""Of the campaign's calls, how many are made again."""
_PRICE = 15
"""A call that reaches the time limit counts as this many deaths."""
_MOST_ELEMENTS = 100_000
_MOST_HOLDING, _MOST_BREAKING = 80, 24
"""Of these, where each is unlike all known calls: an element is negative, a text has one letter."""
_AROUND, _PAIRS = 600, 300
"""Changes of one call, of one thing and of two, among which the new ones are chosen."""
_BASES = 3
_SINGLES = 60
_MOST_BISECTIONS = 24

_POWERS = (*(1 << power for power in range(64)), *(10**power for power in range(19)))
_MEANINGFUL = frozenset({0, *(sign * number for one in _POWERS for number in (one, one - 1) for sign in (1, -1))})

Values = Mapping[Term, Number | None]


@dataclass
class Calls:
    """Calls whose end is known, with what conditions say of them."""

    recipes: list[Recipe] = field(default_factory=list)
    values: list[dict[Term, Number | None]] = field(default_factory=list)

    def add(self, recipe: Recipe) -> None:
        """Another call."""
        self.recipes.append(recipe)
        self.values.append(values_of(recipe))


class Preconditions:
    """What separates the calls of one finding. ``signatures``: its deaths; ``others``: those of other findings."""

    def __init__(
        self,
        engine: Engine,
        op: OpDefinition,
        lethal: Recipe,
        signatures: frozenset[str],
        others: frozenset[str],
        *,
        limits: bool,
        judges: Sequence[Configuration] = (PLAIN,),
    ) -> None:
        """Know no call yet.

        ``lethal``: the finding's call; ``limits``: whether a number between the calls says anything; ``judges``: what a
        call is made in, one after the other, until one kills it.
        """
        self._judges = judges
        self.engine, self.op, self.lethal = engine, op, lethal
        self.signatures, self.others, self.limits = signatures, others, limits
        self.survivors, self.dead = Calls(), Calls()
        self._made: set[Call] = set()
        self._random = Random(f"precondition:{op.name}")  # noqa: S311 - it is to be repeatable
        self._pools: dict[Call, list[Recipe]] = {}
        self.conditions: tuple[Condition, ...] = ()
        """What was learned; none where nothing was."""
        self._runs = self._deaths = 0

    def learned(self, accepted: Sequence[Recipe], died: Sequence[Recipe], *, again: bool) -> FuzzPrecondition | None:
        """The condition; None where none of the grammar fits. ``again``: how the calls end must be looked at first."""
        if again:
            for recipe in (self.lethal, *died[:_DIED_AGAIN], *accepted[:_ACCEPTED_AGAIN]):
                self._make(recipe)
        else:
            for recipe in (self.lethal, *died):
                self._note(self.dead, recipe)
            for recipe in accepted:
                self._note(self.survivors, recipe)
        for _ in range(_ROUNDS):
            if len(self.survivors.values) < _LEAST or self._is_used_up():
                return None
            found = self._separating()
            if found is None:
                return None
            if self._is_confirmed(found):
                return self._told(tuple(map(self._tightened, found)))
        return None

    def _note(self, calls: Calls, recipe: Recipe) -> None:
        if recipe.call not in self._made:
            self._made.add(recipe.call)
            calls.add(recipe)

    def _is_used_up(self) -> bool:
        return self._runs >= _MOST_RUNS or self._deaths >= _MOST_DEATHS or self.engine.is_stopped()

    # ------------------------------------------------------------ learning

    def _separating(self) -> tuple[Condition, ...] | None:
        """The fewest conditions that hold for all that survived, and of which each death breaks one."""
        alive, dead = self.survivors.values, self.dead.values
        covered: list[tuple[Condition, frozenset[int]]] = []
        for one in candidates(self.op, alive, dead, limits=self.limits):
            if any(one.holds(values) is False for values in alive):
                continue
            if sum(one.holds(values) is True for values in alive) < _LEAST:
                continue
            broken = frozenset(at for at, values in enumerate(dead) if one.holds(values) is False)
            if broken and all(broken != other for _, other in covered):
                covered.append((one, broken))
        wanted = len({at for _, broken in covered for at in broken})
        if not covered or wanted < len(dead):
            return None
        covered.sort(key=lambda one: -len(one[1]))
        covered = covered[:_SINGLES]
        for many in range(1, MOST_CONDITIONS + 1):
            for chosen in itertools.combinations(covered[: _SINGLES if many < 3 else 20], many):
                if len(frozenset().union(*(broken for _, broken in chosen))) == len(dead):
                    return tuple(sorted((one for one, _ in chosen), key=_order))
        return None

    # ------------------------------------------------------------ confirming

    def _is_confirmed(self, found: Sequence[Condition]) -> bool:
        """Make new calls on both sides; false where one contradicts the conditions."""
        holding, breaking = self._fresh(found)
        contradicted = False
        for recipe in (*breaking, *holding):
            if self._is_used_up():
                return False
            survivors, dead = len(self.survivors.recipes), len(self.dead.recipes)
            self._make(recipe)
            is_holding = _hold(found, values_of(recipe))
            if len(self.survivors.recipes) > survivors and is_holding is False:
                contradicted = True
            if len(self.dead.recipes) > dead and is_holding is not False:
                contradicted = True
            if contradicted and len(self.survivors.recipes) > survivors:
                break
        broken = sum(_hold(found, values) is False for values in self.dead.values)
        return not contradicted and broken >= _LEAST_DEAD

    def _fresh(self, found: Sequence[Condition]) -> tuple[list[Recipe], list[Recipe]]:
        """New calls, around the finding and around known ones: those for which it holds, and those for which not."""
        random = self._random
        accepted, died = self.survivors.recipes, self.dead.recipes
        bases = [self.lethal, *random.sample(accepted, min(_BASES, len(accepted)))]
        bases += random.sample(died, min(_BASES, len(died)))
        holding: list[Recipe] = []
        breaking: dict[int | None, list[Recipe]] = {}
        known = set(self._made)
        alive = {one for values in self.survivors.values for one in _classes(values)}
        both = alive | {one for values in self.dead.values for one in _classes(values)}
        for base in bases:
            pool = self._around(base)
            many = len(holding) + _HOLDING // len(bases) + 1
            most = {at: len(breaking.get(at, ())) + _BREAKING // len(bases) + 1 for at in (None, *range(len(found)))}
            for recipe in random.sample(pool, len(pool)):
                if recipe.call in known or recipe.elements > _MOST_ELEMENTS:
                    continue
                values = values_of(recipe)
                broken = [at for at, one in enumerate(found) if one.holds(values) is False]
                usual = both if broken else alive
                unusual = _classes(values) - usual
                if broken:
                    at = broken[0] if len(broken) == 1 else None
                    side, limit = breaking.setdefault(at, []), _MOST_BREAKING if unusual else most[at]
                else:
                    side, limit = holding, (_MOST_HOLDING if unusual else many) if _hold(found, values) else 0
                usual |= unusual
                if len(side) < limit:
                    known.add(recipe.call)
                    side.append(recipe)
        return holding, [recipe for side in breaking.values() for recipe in side]

    def _around(self, base: Recipe) -> list[Recipe]:
        """The call with one thing changed, or two."""
        if base.call not in self._pools:
            proposals = Generator(self.op, 0, Seen(accepted=[base], notable=[base])).around(base)
            singles = [one.recipe for one in itertools.islice(proposals, _AROUND)]
            pairs = zip(self._random.choices(singles, k=_PAIRS), self._random.choices(singles, k=_PAIRS), strict=True)
            self._pools[base.call] = [*singles, *(_both(base, one, other) for one, other in pairs)]
        return self._pools[base.call]

    def _make(self, recipe: Recipe) -> str:
        """Make a call, and take note of its end: ``died`` (as the finding does), ``accepted`` or ``other``."""
        if recipe.call in self._made or self._is_used_up():
            return "other"
        self._made.add(recipe.call)
        end = self._end_of(recipe)
        if end.kind == "accepted":
            self.survivors.add(recipe)
            return "accepted"
        if end.death is None:
            self._deaths += _PRICE if end.kind == "slow" else 0
            return "other"
        self._deaths += 1
        if end.kind == "died" and not self._is_of_another(end.death):
            self.dead.add(recipe)
            return "died"
        return "other"

    def _end_of(self, recipe: Recipe) -> Ended:
        for configuration in self._judges:
            self._runs += 1
            self.engine.use(configuration)
            end = self.engine.run([recipe.call])[-1]
            if end.kind != "accepted":
                break
        return end

    def _is_of_another(self, death: Death) -> bool:
        return death.signature not in self.signatures and death.signature in self.others

    # ------------------------------------------------------------ limits

    def _tightened(self, one: Condition) -> Condition:
        """A learned number, moved by bisection to where calls begin to die."""
        if not one.is_learned or isinstance(one.right, Term) or not isinstance(one.right, int):
            return one
        killed = [value for values in self.dead.values if isinstance(value := values.get(one.left), int)]
        up = one.comparison == "<="
        beyond = [value for value in killed if (value > one.right if up else value < one.right)]
        if not beyond:
            return one
        alive, dead = one.right, min(beyond) if up else max(beyond)
        for _ in range(_MOST_BISECTIONS):
            middle = (alive + dead) // 2
            recipe = with_value(self.lethal, one.left, middle)
            if middle in {alive, dead} or recipe is None or self._is_used_up():
                break
            end = self._make(recipe)
            if end == "died":
                dead = middle
            elif end == "accepted":
                alive = middle
            else:
                break
        return replace(one, right=self._plainest(one.left, alive, dead))

    def _plainest(self, term: Term, alive: int, dead: int) -> int:
        """The limit that means the most and with which no call dies."""
        while (limit := plainest(alive, dead)) != alive:
            recipe = with_value(self.lethal, term, limit)
            if recipe is None or self._is_used_up():
                return alive
            if self._make(recipe) != "died":
                return limit
            dead = limit
        return alive

    def _told(self, found: tuple[Condition, ...]) -> FuzzPrecondition | None:
        alive, dead = self.survivors.values, self.dead.values
        if any(_hold(found, values) is False for values in alive):
            return None
        self.conditions = found
        return FuzzPrecondition(
            condition=" and ".join(map(str, found)),
            check=check(found, self.op),
            survived=sum(_hold(found, values) is True for values in alive),
            died=sum(_hold(found, values) is False for values in dead),
        )


def _hold(found: Sequence[Condition], values: Values) -> bool | None:
    """Whether all of them hold; None where that is not known."""
    each = [one.holds(values) for one in found]
    return False if False in each else None if None in each else True


def _classes(values: Values) -> set[tuple[Term, int]]:
    """Which numbers of a call are negative, small (one by one), larger or large."""
    return {
        (term, -1 if value < 0 else int(min(value, 5)) if value < 100 else 100)
        for term, value in values.items()
        if value is not None and value == value  # noqa: PLR0124 - not where there is no element
    }


def plainest(alive: int, dead: int) -> int:
    """The limit that means the most, from ``alive``, with which calls survive, up to ``dead``, with which they die.

    That is 0, a power of two or of ten, or one less than a power: the nearest to ``dead``. Where there is none, it is
    ``alive``.
    """
    low, high = min(alive, dead + 1), max(alive, dead - 1)
    between = [one for one in _MEANINGFUL if low <= one <= high]
    return min(between, key=lambda one: abs(one - dead), default=alive)


def _both(base: Recipe, one: Recipe, other: Recipe) -> Recipe:
    """``one`` with what is different in ``other``."""
    inputs = {name: each for name, each in other.inputs.items() if each != base.inputs[name]}
    attributes = {name: each for name, each in other.attributes.items() if each != base.attributes.get(name)}
    return replace(one, inputs={**one.inputs, **inputs}, attributes={**one.attributes, **attributes})


def _order(one: Condition) -> int:
    """Ranks are checked before dimensions, and these before elements."""
    return ("rank", "value", "size", "dim", "length", "min", "max", "zeros").index(one.left.part)
