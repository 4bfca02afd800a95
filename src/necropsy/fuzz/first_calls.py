"""Whole calls of an op, made up of shapes: those that a campaign begins with, before anything was accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from necropsy.fuzz import boundaries
from necropsy.fuzz.attributes import Attribute
from necropsy.fuzz.definitions import Argument, OpDefinition
from necropsy.fuzz.recipes import DTYPES, INTEGERS, Input, Recipe, Tensor

_LENGTHS = (1, 2, 4, 4, 5)
_ANY_TYPES = ("float32", "int32", "string")

Shape = tuple[int, ...]


class FirstCalls:
    """Makes calls of one op; ``words`` of its messages become texts."""

    def __init__(self, op: OpDefinition, given: tuple[Attribute, ...], random: Random, words: list[str]) -> None:
        self.op, self._given, self._random, self._words = op, given, random, words

    def made(self, types: Mapping[str, str], shape: Callable[[str], Shape], *, plain: bool) -> Recipe:
        """A call whose inputs have the shapes that ``shape`` gives for their names."""
        counts: dict[str, int] = {}
        inputs: dict[str, Input] = {}
        for one in self.op.inputs:
            if one.types is not None:
                several = self._types(one)
                inputs[one.name] = tuple(self._tensor(dtype, shape(one.name), plain=plain) for dtype in several)
                continue
            dtype = one.dtype or types.get(one.type_attribute or "", "float32")
            if one.number is None:
                inputs[one.name] = self._tensor(dtype, shape(one.name), plain=plain)
                continue
            if one.number not in counts:
                least = max(self.op.minimum(one.number), 1)
                counts[one.number] = least if plain and least > 1 else max(least, self._random.choice((1, 2, 3)))
            first = shape(one.name)
            inputs[one.name] = tuple(
                self._tensor(dtype, first if plain or not at else shape(one.name), plain=plain)
                for at in range(counts[one.number])
            )
        attributes = {one.name: self._attribute(one, plain=plain) for one in self._given}
        attributes = {name: value for name, value in attributes.items() if value is not None}
        return Recipe(
            self.op.function,
            inputs,
            attributes,
            arrays=self.op.is_python,
            libraries=self.op.libraries,
            composites=self.op.composites,
            handles=self.op.makers,
        )

    def _types(self, one: Argument) -> list[str]:
        """The types of an input that is a list of tensors of different types."""
        allowed = next((each.allowed for each in self.op.attributes if each.name == one.types), ())
        choices = [dtype for dtype in allowed or _ANY_TYPES if dtype in DTYPES] or list(_ANY_TYPES)
        many = max(self.op.minimum(one.types), 1 if allowed else 2)
        return [choices[at % len(choices)] for at in range(many)]

    def _attribute(self, one: Attribute, *, plain: bool) -> Any:
        """None where the op's own default is taken because it has no value that a call could name."""
        if one.has_default and (plain or self._random.random() < 0.7):
            return one.default
        if one.type in {"int", "list(int)"} and not one.has_default:
            return self._number(one, plain=plain)
        values = boundaries.attribute_values(one.type, one.minimum, one.allowed, [1, 2, 3])
        if not values:
            return one.default
        if one.type == "string" and not one.allowed and self._words:
            return self._random.choice([*self._words, *values[:2]])
        return values[0] if plain else self._random.choice(values[:6])

    def _number(self, one: Attribute, *, plain: bool) -> Any:
        if one.type == "int":
            least = 1 if one.minimum is None else max(one.minimum, 1)
            return least if plain else self._random.choice((least, least, 1, 2, 3, 4))
        number = 1 if plain else self._random.choice((1, 1, 1, 2, 3, 4))
        return [number] * max(one.minimum or 0, self._random.choice(_LENGTHS))

    def _tensor(self, dtype: str, shape: Shape, *, plain: bool) -> Tensor:
        if dtype not in DTYPES:
            dtype = "float32"
        one = boundaries.plain(dtype, shape)
        if plain and self._random.random() < 0.5:
            return one
        if dtype in INTEGERS:
            choices = [(0, 1), (1,), (0,), (2,)] if plain else [(0, 1), (1,), (0,), (2,), (3,), (4,), (1, 1)]
            items = self._random.choice(choices)
            return replace(one, kind="ramp" if len(items) == 2 else "same", items=items)
        if plain:
            return one
        return one.filled(self._random.choice(boundaries.fills(one, (), self._words)[:12]))
