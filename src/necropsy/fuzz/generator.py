"""Proposes the calls of a campaign on one op, in stages: simple ones, mixtures, one thing changed, then several.

What is proposed depends on the seed and on how the calls before ended, and on nothing else.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal

from necropsy.fuzz import boundaries, messages, random_values, structures
from necropsy.fuzz.boundaries import LARGE, LARGE_SIZES, MOST_ELEMENTS, SIMPLE_SHAPES, SIZES
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.engine import Call
from necropsy.fuzz.first_calls import FirstCalls
from necropsy.fuzz.inferred_ranks import Ranks
from necropsy.fuzz.recipes import Input, Recipe, Tensor

MIXTURES, _MOST_MIXTURES = 150, 450
"""Calls with mixtures of shapes; and where none was accepted by then."""
_FITTED = 24
_FREELY = 0.2
"""How often a shape is mixed that is of another rank than is known to be allowed."""
_LARGEST_SIZE_SAID = 64
_MIXED_RANKS = (0, 1, 1, 2, 2, 3, 4)
_BASES = 3
"""Accepted calls around which single things are changed."""
_MOST_KEPT = 200
_DRAWN, _DRAWN_ALONE = 0.3, 0.9
"""How often a change is drawn at random, in the last stage; and where there is one input or attribute only."""
_RECENT = 200
"""Over how many proposals the share of repeated ones is averaged. The higher it is, the more is drawn at random."""
_HEAVY = 1 << 20
"""Bytes of a result that take time."""
_LARGE_AGAIN = 0.2
"""How often a large call is made in the last stage, or one that is like a call with a large result.

It takes as long as hundreds of others, and the stages before have made them.
"""
_LONGEST_TEXT = 100_000
_MOST_COMPARED = 32
_MOST_SAID = 30


Edit = tuple[Literal["fill", "shape", "types", "count", "element", "attribute"], Any]
"""One thing to change in an input or an attribute, and what it becomes; of a list, in which of its elements."""


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
    heavy: set[Call] = field(default_factory=set)
    """Accepted calls with a large result."""
    ranks: Ranks = field(default_factory=dict)
    """The ranks that the op's shape function allows."""
    said_ranks: dict[str, int] = field(default_factory=dict)
    """Those that its messages demand, by the name of the input."""
    said_shapes: dict[str, tuple[int | None, ...]] = field(default_factory=dict)
    """The shapes that its messages demand; None for a size that they leave open."""
    compared: list[int] = field(default_factory=list)
    """Constants that the op compares with, with their neighbours."""
    repeated: float = 0.0
    """The share of the last proposals that repeated an earlier one."""

    def note_proposal(self, *, again: bool) -> None:
        """Record that a call was proposed; ``again``: it repeats an earlier proposal."""
        self.repeated += (again - self.repeated) / _RECENT

    def note(self, recipe: Recipe, *, accepted: bool, text: str | None, size: int = 0) -> None:
        """A call gave a new result, of so many bytes, or a new message."""
        if accepted:
            self.accepted.append(recipe)
        if size >= _HEAVY:
            self.heavy.add(recipe.call)
        self.notable = [*self.notable[-_MOST_KEPT:], recipe]
        for word in messages.words(text or ""):
            if word not in self.words and len(self.words) < _MOST_SAID:
                self.words.append(word)
        for number in messages.numbers(text or ""):
            if number not in self.numbers and len(self.numbers) < _MOST_SAID:
                self.numbers.append(number)
        shapes = dict(messages.shapes(text or ""))
        self.said_shapes |= shapes
        self.said_ranks |= {**dict(messages.ranks(text or "")), **{name: len(shape) for name, shape in shapes.items()}}

    def compare(self, constants: Sequence[int]) -> None:
        """These are the constants that the calls so far were compared with."""
        chosen = dict.fromkeys(near for one in constants[:_MOST_COMPARED] for near in (one, one - 1, one + 1))
        if len(chosen) != len(self.compared):
            self.compared = list(chosen)

    def ranks_of(self, name: str) -> tuple[int, ...]:
        """The ranks that an input may have; empty where nothing is known."""
        said = self.said_ranks.get(name)
        return self.ranks.get(name, ()) if said is None else (said,)

    def as_said(self, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        """``shape`` with the sizes that a message demands of this input, if the ranks are the same."""
        said = self.said_shapes.get(name, ())
        if len(said) != len(shape):
            return shape
        return tuple(size if own is None else own for size, own in zip(shape, said, strict=True))

    @property
    def sizes(self) -> list[int]:
        """The constants that an input may be as large as."""
        return [one for one in self.compared if 0 < one <= MOST_ELEMENTS]


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
        self._first = FirstCalls(op, tuple(self.given), self.random, seen.words)
        self._is_structured = structures.is_structured(op)
        self._attributes = {one.name: one for one in self.given}
        self._attribute_values: dict[str, tuple[tuple[int, ...], tuple[str, ...], Sequence[Edit]]] = {}
        """The changes of each attribute, with the numbers and words that they were made of: they take long to list."""

    def proposals(self) -> Iterator[Proposal]:
        """Calls without end; those of an op without inputs and attributes repeat."""
        yield from self._simple()
        yield from self._fitted()
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
            base = self._notable()
            if base.call in self.seen.heavy and self.random.random() >= _LARGE_AGAIN:
                continue
            proposal = self._several_changes(base)
            if proposal.recipe.elements < LARGE or self.random.random() < _LARGE_AGAIN:
                yield proposal

    def _bases(self) -> list[Recipe]:
        """The calls that changes begin with: accepted ones of different shapes, or the most that was reached."""
        found: dict[str, Recipe] = {}
        for one in self.seen.accepted:
            shapes = str([each.shape for each in one.tensors()])
            found.setdefault(shapes, one)
        chosen = list(found.values())[:_BASES] or self.seen.notable[-_BASES:]
        return chosen or [next(self._simple()).recipe]

    # ------------------------------------------------------------ stages

    def plain(self) -> Recipe:
        """The call that is the likeliest to be accepted by ops in general."""
        return self._first.made(self.op.combinations[0], lambda _name: (3,), plain=True)

    def _simple(self) -> Iterator[Proposal]:
        """All inputs of one simple shape."""
        combinations = self.op.combinations
        for number, shape in enumerate(SIMPLE_SHAPES):

            def same(_name: str, shape: tuple[int, ...] = shape) -> tuple[int, ...]:
                return shape

            for types in (combinations[0], combinations[number % len(combinations)]):
                yield Proposal(self._first.made(types, same, plain=True))

    def _fitted(self) -> Iterator[Proposal]:
        """Inputs of ranks that are known to be allowed, all of one size; what belongs together fits."""
        if not (self.seen.ranks or self.seen.said_ranks or self._is_structured):
            return
        combinations = self.op.combinations
        for number in range(_FITTED):
            size, at = (2, 1, 3, 4)[number % 4], number // 4 % 2

            def shape(name: str, size: int = size, at: int = at) -> tuple[int, ...]:
                allowed = self.seen.ranks_of(name) or (1, 2)
                return self.seen.as_said(name, (size,) * allowed[min(at, len(allowed) - 1)])

            recipe = self._first.made(combinations[number // 2 % len(combinations)], shape, plain=True)
            if recipe.elements <= MOST_ELEMENTS:
                yield Proposal(structures.fitted(recipe, self.random))

    def _mixtures(self) -> Iterator[Proposal]:
        """Shapes of few different sizes, so that some of them fit each other."""
        for number in range(_MOST_MIXTURES):
            if number >= MIXTURES and self.seen.accepted:
                return
            said = [one for one in self.seen.numbers if 0 < one <= _LARGEST_SIZE_SAID]
            sizes = [self.random.choice((1, 2, 3, 4, 5, 8, *said)) for _ in range(3)]
            sizes += [2 * sizes[0]] if number >= MIXTURES else []
            freely = self.random.random() < _FREELY

            def shape(name: str, sizes: Sequence[int] = sizes, freely: bool = freely) -> tuple[int, ...]:
                ranks = () if freely else self.seen.ranks_of(name)
                mixed = tuple(self.random.choice(sizes) for _ in range(self.random.choice(ranks or _MIXED_RANKS)))
                return mixed if freely else self.seen.as_said(name, mixed)

            types = self.random.choice(self.op.combinations)
            recipe = self._first.made(types, shape, plain=number % 2 == 0)
            if self._is_structured and number % 4:
                recipe = structures.fitted(recipe, self.random)
            if recipe.elements <= MOST_ELEMENTS:
                yield Proposal(recipe)

    def _sizes_together(self, base: Recipe) -> Iterator[Proposal]:
        """Each size replaced in all shapes at once: what must be equal stays equal."""
        sizes = dict.fromkeys(size for one in base.tensors() for size in one.shape)
        for size in sizes:
            for other in (*self.seen.sizes, *SIZES, *LARGE_SIZES):
                recipe = self._as_said(base.with_shapes({size: other}))
                if other != size and recipe.elements <= MOST_ELEMENTS:
                    yield Proposal(recipe, (f"{size}:{other}",))

    def _as_said(self, recipe: Recipe) -> Recipe:
        """The call with the sizes that messages demand."""
        for name, one in recipe.inputs.items():
            if isinstance(one, Tensor) and name in self.seen.said_shapes:
                recipe = recipe.with_input(name, replace(one, shape=self.seen.as_said(name, one.shape)))
        return recipe

    def _single_changes(self, base: Recipe) -> Iterator[Proposal]:
        """One input or attribute is different; first values, then shapes, in turns of the inputs."""
        names = (*base.inputs, *(one.name for one in self.given))
        turns = [zip(itertools.repeat(name), self._edits(base, name), strict=False) for name in names]
        while turns:
            for one in list(turns):
                name, edit = next(one, (None, None))
                if name is None or edit is None:
                    turns.remove(one)
                else:
                    yield self._edited(base, name, edit)

    def around(self, base: Recipe) -> Iterator[Proposal]:
        """The call with one thing changed, and with sizes changed together."""
        yield from self._sizes_together(base)
        yield from self._single_changes(base)

    def _notable(self) -> Recipe:
        """A call that showed something new."""
        pool = self.seen.notable if self.random.random() < 0.5 else self.seen.accepted
        return self.random.choice(pool or self.seen.notable or [next(self._simple()).recipe])

    def _several_changes(self, recipe: Recipe) -> Proposal:
        """Two or three things of a call changed."""
        changes: list[str] = []
        names = [*recipe.inputs, *(one.name for one in self.given)]
        drawn = max(_DRAWN if len(names) > 1 else _DRAWN_ALONE, 2 * self.seen.repeated)
        for name in self.random.sample(names, min(self.random.choice((1, 2, 2, 3)), len(names))):
            if recipe.inputs and self.random.random() < 0.15:
                sizes = sorted({size for one in recipe.tensors() for size in one.shape})
                if sizes:
                    size, other = (
                        self.random.choice(sizes),
                        self.random.choice((*SIZES, *LARGE_SIZES, *self.seen.sizes)),
                    )
                    recipe = self._within(recipe.with_shapes({size: other}), recipe)
                    continue
            edit = self._drawn(recipe, name) if self.random.random() < drawn else None
            edits = [edit] if edit is not None else self._edits(recipe, name)
            if edits:
                chosen = self._edited(recipe, name, self.random.choice(edits))
                recipe, changes = chosen.recipe, [*changes, *chosen.changes]
        return Proposal(recipe, tuple(changes))

    # ------------------------------------------------------------ changes of one input or attribute

    def _edits(self, base: Recipe, name: str) -> Sequence[Edit]:
        if name not in base.inputs:
            return self._attribute_edits(name, tuple(self._numbers(base, "")), tuple(self.seen.words))
        one, numbers = base.inputs[name], self._numbers(base, name)
        if isinstance(one, tuple):
            counts: list[Edit] = [("count", many) for many in (0, 1, 2, 3, 5, 16) if one and many != len(one)]
            places = sorted({*range(len(one))[:2], *range(len(one))[-1:]})
            return [
                *counts,
                *(("element", (at, edit)) for at in places for edit in self._tensor_edits(one[at], numbers)),
            ]
        others = [each.shape for at, each in base.inputs.items() if at != name and isinstance(each, Tensor)]
        edits = self._tensor_edits(one, numbers, others)
        if next(each for each in self.op.inputs if each.name == name).type_attribute is not None:
            edits += [("types", types) for types in self.op.combinations]
        return edits

    def _tensor_edits(self, one: Tensor, numbers: Sequence[int], others: Sequence[tuple[int, ...]] = ()) -> list[Edit]:
        edits: list[Edit] = [("fill", items) for items in boundaries.fills(one, numbers, self.seen.words)]
        return [*edits, *(("shape", shape) for shape in boundaries.shapes(one.shape, others, self.seen.sizes))]

    def _attribute_edits(self, name: str, numbers: tuple[int, ...], words: tuple[str, ...]) -> Sequence[Edit]:
        known = self._attribute_values.get(name)
        if known is None or known[:2] != (numbers, words):
            one = self._attributes[name]
            values = boundaries.attribute_values(one.type, one.minimum, one.allowed, numbers)
            if one.type == "string" and not one.allowed:
                long = (unit * times for unit, times in boundaries.words(words) if len(unit) * times <= _LONGEST_TEXT)
                values = [*values, *long]
            known = self._attribute_values[name] = (numbers, words, [("attribute", value) for value in values])
        return known[2]

    def _drawn(self, base: Recipe, name: str) -> Edit | None:
        """A change at random, beyond the tables; None where nothing can be drawn."""
        one = base.inputs.get(name)
        if name not in base.inputs:
            attribute = self._attributes[name]
            if attribute.allowed:
                return None
            numbers = self._numbers(base, "")
            value = random_values.attribute(self.random, attribute.type, numbers, self.seen.words)
            return None if value is None else ("attribute", value)
        if isinstance(one, tuple):
            at = self.random.randrange(len(one)) if one else 0
            return ("element", (at, self._drawn_tensor(base, name, one[at]))) if one else None
        return self._drawn_tensor(base, name, one) if one is not None else None

    def _drawn_tensor(self, base: Recipe, name: str, one: Tensor) -> Edit:
        if self.random.random() < 0.3:
            return "shape", random_values.shape(self.random, one.shape)
        return "fill", random_values.fill(self.random, one, self._numbers(base, name), self.seen.words)

    def _edited(self, base: Recipe, name: str, edit: Edit) -> Proposal:
        what, value = edit
        if what == "attribute":
            return Proposal(base.with_attribute(name, value), (f"{name}={value!r}"[:80],))
        if what == "types":
            return self._with_types(base, name, value)
        one = base.inputs[name]
        if isinstance(one, Tensor):
            return self._proposal(base, name, _other(one, edit))
        if what == "count":
            return self._proposal(base, name, tuple(one[at % len(one)] for at in range(value)))
        at, inner = value
        return self._proposal(base, name, (*one[:at], _other(one[at], inner), *one[at + 1 :]))

    def _with_types(self, base: Recipe, name: str, types: Mapping[str, str]) -> Proposal:
        """Other types for all inputs whose type is that of this one."""
        attribute = next(one.type_attribute for one in self.op.inputs if one.name == name)
        inputs: dict[str, Input] = {}
        for each in self.op.inputs:
            before = base.inputs[each.name]
            dtype = types.get(each.type_attribute or "")
            if each.type_attribute != attribute or dtype is None:
                inputs[each.name] = before
            elif isinstance(before, Tensor):
                inputs[each.name] = boundaries.plain(dtype, before.shape)
            else:
                inputs[each.name] = tuple(boundaries.plain(dtype, one.shape) for one in before)
        return Proposal(replace(base, inputs=inputs), (f"{attribute}={types}",))

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
        return [*boundaries.near(sizes), *self.seen.numbers, *self.seen.compared]


def _other(one: Tensor, edit: Edit) -> Tensor:
    what, value = edit
    return replace(one, shape=value) if what == "shape" else one.filled(value)
