"""Proposes the calls of a campaign on one op, in stages: simple ones, mixtures, one thing changed, then several.

What is proposed depends on the seed and on how the calls before ended, and on nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from necropsy.fuzz import boundaries
from necropsy.fuzz.boundaries import LARGE_SIZES, MOST_ELEMENTS, SIMPLE_SHAPES, SIZES
from necropsy.fuzz.definitions import Argument, OpDefinition
from necropsy.fuzz.recipes import DTYPES, INTEGERS, Input, Recipe, Tensor

MIXTURES = 150
_BASES = 3
"""Accepted calls around which single things are changed."""
_MOST_KEPT = 200
_QUOTED = re.compile(r"['\"`]([^'\"`\s]{1,40})['\"`]")
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,18}(?![\w.])")


@dataclass(frozen=True)
class Proposal:
    """A call, and what is changed in it: lethal changes are proposed less often."""

    recipe: Recipe
    changes: tuple[str, ...] = ()


@dataclass
class Seen:
    """What the calls so far have shown."""

    accepted: list[Recipe] = field(default_factory=list)
    """One for each different result, the first ones first."""
    notable: list[Recipe] = field(default_factory=list)
    """Calls with a new message or a new result."""
    words: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    """Quoted words and numbers of the op's messages."""

    def note(self, recipe: Recipe, *, accepted: bool, text: str | None) -> None:
        """A call gave a new result, or a new message."""
        if accepted:
            self.accepted.append(recipe)
        self.notable = [*self.notable[-_MOST_KEPT:], recipe]
        for word in _QUOTED.findall(text or ""):
            if word not in self.words and len(self.words) < 30:
                self.words.append(word)
        for number in map(int, _NUMBER.findall(text or "")):
            if number not in self.numbers and len(self.numbers) < 30:
                self.numbers.append(number)


class Generator:
    """The calls of one op."""

    def __init__(self, op: OpDefinition, seed: int, seen: Seen) -> None:
        self.op, self.seen = op, seen
        self.random = Random(f"{seed}:{op.name}")  # noqa: S311 - it is to be repeatable
        self.given = [
            one
            for one in op.given
            if not (one.has_default and one.type in {"func", "tensor", "list(func)", "list(tensor)"})
        ]

    def proposals(self) -> Iterator[Proposal]:
        """Calls without end; those of an op without inputs and attributes repeat."""
        yield from self._simple()
        yield from self._mixtures()
        bases = self._bases()
        for base in bases:
            yield from self._sizes_together(base)
        several = [self._single_changes(base) for base in bases]
        while several:
            for one in list(several):
                proposal = next(one, None)
                if proposal is None:
                    several.remove(one)
                else:
                    yield proposal
        while True:
            yield self._several_changes()

    def _bases(self) -> list[Recipe]:
        """The calls that changes begin with: accepted ones of different shapes, or the most that was reached."""
        found: dict[str, Recipe] = {}
        for one in self.seen.accepted:
            shapes = str([each.shape for each in one.tensors()])
            found.setdefault(shapes, one)
        chosen = list(found.values())[:_BASES] or self.seen.notable[-_BASES:]
        return chosen or [next(self._simple()).recipe]

    # ------------------------------------------------------------ stages

    def _simple(self) -> Iterator[Proposal]:
        """All inputs of one simple shape."""
        combinations = self.op.combinations
        for number, shape in enumerate(SIMPLE_SHAPES):
            for types in (combinations[0], combinations[number % len(combinations)]):
                yield Proposal(self._recipe(types, [shape] * (len(self.op.inputs) * 4), plain=True))

    def _mixtures(self) -> Iterator[Proposal]:
        """Shapes of few different sizes, so that some of them fit each other."""
        for number in range(MIXTURES):
            sizes = [self.random.choice((1, 2, 3, 4, 5, 8)) for _ in range(3)]
            drawn = [
                tuple(self.random.choice(sizes) for _ in range(self.random.choice((0, 1, 1, 2, 2, 3, 4))))
                for _ in range(len(self.op.inputs) * 4)
            ]
            types = self.random.choice(self.op.combinations)
            yield Proposal(self._recipe(types, drawn, plain=number % 2 == 0))

    def _sizes_together(self, base: Recipe) -> Iterator[Proposal]:
        """Each size replaced in all shapes at once: what must be equal stays equal."""
        sizes = dict.fromkeys(size for one in base.tensors() for size in one.shape)
        for size in sizes:
            for other in (*SIZES, *LARGE_SIZES):
                recipe = base.with_shapes({size: other})
                if other != size and recipe.elements <= MOST_ELEMENTS:
                    yield Proposal(recipe, (f"{size}:{other}",))

    def _single_changes(self, base: Recipe) -> Iterator[Proposal]:
        """One input or attribute is different; first values, then shapes, in turns of the inputs."""
        turns = [self._changes(base, name) for name in (*base.inputs, *(one.name for one in self.given))]
        while turns:
            for one in list(turns):
                proposal = next(one, None)
                if proposal is None:
                    turns.remove(one)
                else:
                    yield proposal

    def around(self, base: Recipe) -> Iterator[Proposal]:
        """The call with one thing changed, and with sizes changed together."""
        yield from self._sizes_together(base)
        yield from self._single_changes(base)

    def _several_changes(self) -> Proposal:
        """Two or three things of a notable call changed."""
        pool = self.seen.notable if self.random.random() < 0.5 else self.seen.accepted
        recipe = self.random.choice(pool or self.seen.notable or [next(self._simple()).recipe])
        changes: list[str] = []
        names = [*recipe.inputs, *(one.name for one in self.given)]
        for _ in range(self.random.choice((1, 2, 2, 3))):
            if not names:
                break
            if recipe.inputs and self.random.random() < 0.15:
                sizes = sorted({size for one in recipe.tensors() for size in one.shape})
                if sizes:
                    size, other = self.random.choice(sizes), self.random.choice((*SIZES, *LARGE_SIZES))
                    recipe = self._within(recipe.with_shapes({size: other}), recipe)
                    continue
            found = list(self._changes(recipe, self.random.choice(names)))
            if found:
                chosen = self.random.choice(found)
                recipe, changes = chosen.recipe, [*changes, *chosen.changes]
        return Proposal(recipe, tuple(changes))

    # ------------------------------------------------------------ changes of one input or attribute

    def _changes(self, base: Recipe, name: str) -> Iterator[Proposal]:
        if name not in base.inputs:
            yield from self._attribute_changes(base, name)
            return
        one = base.inputs[name]
        if isinstance(one, tuple):
            yield from self._list_changes(base, name, one)
            return
        numbers = self._numbers(base, name)
        for other in boundaries.fills(one, numbers, self.seen.words):
            yield self._proposal(base, name, other)
        others = [each.shape for at, each in base.inputs.items() if at != name and isinstance(each, Tensor)]
        for shape in boundaries.shapes(one.shape, others):
            yield self._proposal(base, name, replace(one, shape=shape))
        argument = next(each for each in self.op.inputs if each.name == name)
        if argument.type_attribute is not None:
            yield from self._type_changes(base, argument)

    def _list_changes(self, base: Recipe, name: str, several: tuple[Tensor, ...]) -> Iterator[Proposal]:
        for many in (0, 1, 2, 3, 5, 16):
            if several and many != len(several):
                yield self._proposal(base, name, tuple(several[at % len(several)] for at in range(many)))
        for at, one in enumerate(several[:2] + several[2:][-1:]):
            numbers = self._numbers(base, name)
            other: Tensor
            for other in boundaries.fills(one, numbers, self.seen.words):
                yield self._proposal(base, name, (*several[:at], other, *several[at + 1 :]))
            for shape in boundaries.shapes(one.shape, ()):
                yield self._proposal(base, name, (*several[:at], replace(one, shape=shape), *several[at + 1 :]))

    def _type_changes(self, base: Recipe, argument: Argument) -> Iterator[Proposal]:
        for types in self.op.combinations:
            inputs: dict[str, Input] = {}
            for each in self.op.inputs:
                before = base.inputs[each.name]
                dtype = types.get(each.type_attribute or "")
                if each.type_attribute != argument.type_attribute or dtype is None:
                    inputs[each.name] = before
                elif isinstance(before, Tensor):
                    inputs[each.name] = boundaries.plain(dtype, before.shape)
                else:
                    inputs[each.name] = tuple(boundaries.plain(dtype, one.shape) for one in before)
            yield Proposal(replace(base, inputs=inputs), (f"{argument.type_attribute}={types}",))

    def _attribute_changes(self, base: Recipe, name: str) -> Iterator[Proposal]:
        one = next(each for each in self.given if each.name == name)
        sizes = self._numbers(base, "")
        for value in boundaries.attribute_values(one.type, one.minimum, one.allowed, sizes):
            yield Proposal(base.with_attribute(name, value), (f"{name}={value!r}"[:80],))
        if one.type == "string" and not one.allowed:
            for unit, times in boundaries.words(self.seen.words):
                if times == 1 or len(unit) * times <= 100_000:
                    yield Proposal(base.with_attribute(name, unit * times), (f"{name}={unit[:20]!r}{times}",))

    def _proposal(self, base: Recipe, name: str, one: Input) -> Proposal:
        recipe = base.with_input(name, one)
        if isinstance(one, Tensor):
            return Proposal(self._within(recipe, base), (f"{name}:{one.shape}{one.kind}{one.items}"[:120],))
        return Proposal(self._within(recipe, base), (f"{name}:{len(one)}",))

    @staticmethod
    def _within(recipe: Recipe, base: Recipe) -> Recipe:
        return recipe if recipe.elements <= MOST_ELEMENTS else base

    def _numbers(self, base: Recipe, name: str) -> list[int]:
        """Numbers that an element or an attribute may be compared with."""
        sizes: dict[int, None] = {}
        for other, one in base.inputs.items():
            if other != name:
                tensors: Sequence[Tensor] = (one,) if isinstance(one, Tensor) else one
                for each in tensors:
                    sizes |= dict.fromkeys((*each.shape, each.size))
        return [*boundaries.near(sizes), *self.seen.numbers]

    # ------------------------------------------------------------ whole calls

    def _recipe(self, types: Any, shapes: Sequence[tuple[int, ...]], *, plain: bool) -> Recipe:
        """A call with inputs of these shapes, one after the other."""
        left = list(shapes)
        counts: dict[str, int] = {}
        inputs: dict[str, Input] = {}
        for one in self.op.inputs:
            if one.types is not None:
                many = max(self.op.minimum(one.types), 2)
                chosen = ("float32", "int32", "string")
                inputs[one.name] = tuple(
                    self._tensor(chosen[at % 3], left[at % len(left)], plain=plain) for at in range(many)
                )
                continue
            dtype = one.dtype or types.get(one.type_attribute or "", "float32")
            if one.number is not None:
                if one.number not in counts:
                    least = max(self.op.minimum(one.number), 1)
                    counts[one.number] = least if plain and least > 1 else max(least, self.random.choice((1, 2, 3)))
                inputs[one.name] = tuple(
                    self._tensor(dtype, left[0] if plain else left[at % len(left)], plain=plain)
                    for at in range(counts[one.number])
                )
                left = left[1:] or list(shapes)
            else:
                inputs[one.name] = self._tensor(dtype, left.pop(0), plain=plain)
        attributes = {}
        for each in self.given:
            value = each.default if each.has_default and (plain or self.random.random() < 0.5) else None
            if value is None:
                values = boundaries.attribute_values(each.type, each.minimum, each.allowed, [1, 2, 3])
                if each.type in {"int", "list(int)"} and values and not each.has_default:
                    least = 1 if each.minimum is None else max(each.minimum, 1)
                    number = least if plain else self.random.choice((least, least, 1, 2, 3, 4))
                    value = number if each.type == "int" else [number] * self.random.choice((1, 1, 2, 4))
                elif values:
                    value = values[0] if plain else self.random.choice(values[:6])
            if value is not None or (each.has_default and each.default is not None):
                attributes[each.name] = value
        return Recipe(self.op.function, inputs, attributes, arrays=self.op.is_python, libraries=self.op.libraries)

    def _tensor(self, dtype: str, shape: tuple[int, ...], *, plain: bool) -> Tensor:
        if dtype not in DTYPES:
            dtype = "float32"
        one = boundaries.plain(dtype, shape)
        if plain and self.random.random() < 0.5:
            return one
        if dtype in INTEGERS:
            choices = [(0, 1), (1,), (0,), (2,)] if plain else [(0, 1), (1,), (0,), (2,), (3,), (4,), (1, 1)]
            items = self.random.choice(choices)
            return replace(one, kind="ramp" if len(items) == 2 else "same", items=items)
        if plain:
            return one
        several = list(boundaries.fills(one, (), self.seen.words))
        return self.random.choice(several[:12])
