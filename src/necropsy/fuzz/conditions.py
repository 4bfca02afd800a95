"""Conditions on the arguments of a call, such as ``max(rows) < dim(params, 0)``: what they say of a recipe."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.recipes import COMPLEX, Recipe, Tensor

MOST_AXES = 4

Part = Literal["rank", "size", "dim", "min", "max", "zeros", "length", "value"]
Comparison = Literal["==", "!=", "<", "<=", ">", ">="]
Number = int | float

HOLDS = {
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}
ELEMENTS = frozenset({"min", "max", "zeros", "length"})
"""Parts that say something of all elements, which is true of none."""


@dataclass(frozen=True, order=True)
class Term:
    """A number of a call: ``dim(params, 0)``, ``max(rows)``, ``len(text)``, or an attribute."""

    part: Part
    name: str
    axis: int = 0

    def __str__(self) -> str:
        match self.part:
            case "dim":
                return f"dim({self.name}, {self.axis})"
            case "value":
                return self.name
            case "length":
                return f"len({self.name})"
            case _:
                return f"{self.part}({self.name})"


@dataclass(frozen=True)
class Condition:
    """``left`` compared with a number, or with another term."""

    left: Term
    comparison: Comparison
    right: Term | Number
    is_learned: bool = False
    """The number is a limit between calls that survived and calls that died."""

    def __str__(self) -> str:
        if self.left.part == "zeros":
            return f"all({self.left.name} != 0)"
        right = f"{self.right:,}" if isinstance(self.right, int) else str(self.right)
        return f"{self.left} {self.comparison} {right}"

    def holds(self, values: Mapping[Term, Number | None]) -> bool | None:
        """Whether it holds; None where it is not known. A dimension that a tensor has not breaks it."""
        if self.left not in values or (isinstance(self.right, Term) and self.right not in values):
            return False
        one = values[self.left]
        other = values[self.right] if isinstance(self.right, Term) else self.right
        if one is None or other is None:
            return None
        if self.left.part in ELEMENTS and one != one:  # noqa: PLR0124 - there is no element
            return True
        return bool(HOLDS[self.comparison](one, other))


def values_of(recipe: Recipe) -> dict[Term, Number | None]:
    """The terms of a call. Unknown ones are None; those of all elements are not a number where there is none."""
    found: dict[Term, Number | None] = {}
    for name, one in recipe.inputs.items():
        if isinstance(one, Tensor):
            found |= _of_tensor(name, one)
    for name, value in recipe.attributes.items():
        found |= _of_attribute(name, value)
    return found


def with_value(recipe: Recipe, term: Term, number: int) -> Recipe | None:
    """The same call with another value of a term; None where that cannot be had by itself."""
    if term.part == "value" and isinstance(recipe.attributes.get(term.name), int):
        return recipe.with_attribute(term.name, number)
    held = recipe.attributes.get(term.name)
    if term.part == "length" and isinstance(held, dict) and len(held.get("bytes", "")) == 1:
        return recipe.with_attribute(term.name, {**held, "times": number})
    if term.part == "length" and isinstance(held, str) and held:
        return recipe.with_attribute(term.name, (held * (number // len(held) + 1))[:number])
    one = recipe.inputs.get(term.name)
    if not isinstance(one, Tensor):
        return None
    if term.part in {"size", "dim"} and len(one.shape) == 1:
        return recipe.with_input(term.name, replace(one, shape=(number,)))
    if term.part in {"min", "max"} and one.kind == "same":
        return recipe.with_input(term.name, replace(one, items=(number,)))
    if term.part == "length" and one.kind == "same" and len(one.items[0][0]) == 1:
        return recipe.with_input(term.name, replace(one, items=((one.items[0][0], number),)))
    return None


def _of_tensor(name: str, one: Tensor) -> dict[Term, Number | None]:
    found: dict[Term, Number | None] = {Term("rank", name): len(one.shape), Term("size", name): one.size}
    for axis, size in enumerate(one.shape[:MOST_AXES]):
        found[Term("dim", name, axis)] = size
    if one.dtype == "string":
        found[Term("length", name)] = _longest(one)
    elif one.dtype != "bool" and one.dtype not in COMPLEX:
        least, most, zeros = _extremes(one)
        found[Term("min", name)], found[Term("max", name)] = least, most
        found[Term("zeros", name)] = zeros
    return found


def _longest(one: Tensor) -> Number:
    if not one.size:
        return math.nan
    lengths: list[int] = [len(unit) * times for unit, times in one.items[: one.size]]
    return max(lengths)


def _extremes(one: Tensor) -> tuple[Number | None, Number | None, Number | None]:
    """The least and the greatest element, and whether one is zero."""
    if not one.size:
        return math.nan, math.nan, math.nan
    if one.kind == "ramp":
        first, step = one.items
        last = first + (one.size - 1) * step
        has_zero = step == 0 == first or (step != 0 and first % step == 0 and 0 <= -first // step < one.size)
        return min(first, last), max(first, last), int(has_zero)
    items = one.items[: one.size]
    if one.kind == "random" or any(each != each for each in items):  # noqa: PLR0124 - not a number
        return None, None, None
    return min(items), max(items), int(0 in items)


def _of_attribute(name: str, value: Any) -> dict[Term, Number | None]:
    if isinstance(value, bool) or value is None:
        return {}
    if isinstance(value, (int, float)):
        return {Term("value", name): None if value != value else value}  # noqa: PLR0124 - not a number
    if isinstance(value, str):
        return {Term("length", name): len(value)}
    if isinstance(value, dict) and "bytes" in value:
        return {Term("length", name): len(value["bytes"]) * value["times"]}
    if isinstance(value, list):
        numbers = [one for one in value if isinstance(one, (int, float)) and not isinstance(one, bool)]
        found: dict[Term, Number | None] = {Term("size", name): len(value)}
        if len(numbers) == len(value) and all(one == one for one in numbers):  # noqa: PLR0124 - a number
            found[Term("min", name)] = min(numbers, default=math.nan)
            found[Term("max", name)] = max(numbers, default=math.nan)
        return found
    return {}


# ------------------------------------------------------------ the grammar


def candidates(
    op: OpDefinition, survivors: list[dict[Term, Number | None]], dead: list[dict[Term, Number | None]], *, limits: bool
) -> Iterator[Condition]:
    """Conditions that may separate the calls, the plainest first; ``limits``: also numbers learned from the calls."""
    terms = sorted({term for values in (*survivors, *dead) for term in values}, key=_plainness)
    for term in terms:
        yield from _natural(term, survivors)
    yield from _relations(op, terms)
    if limits:
        for term in terms:
            yield from _limits(term, survivors, dead)


def _plainness(term: Term) -> tuple[int, str, int]:
    parts = ("value", "rank", "size", "dim", "length", "min", "max", "zeros")
    return parts.index(term.part), term.name, term.axis


def _natural(term: Term, survivors: list[dict[Term, Number | None]]) -> Iterator[Condition]:
    """Comparisons with 0 and 1, and ranks."""
    match term.part:
        case "rank":
            seen = {values[term] for values in survivors if term in values} - {None}
            ranks = sorted(one for one in seen if isinstance(one, int))
            if ranks:
                yield Condition(term, "==", ranks[0])
                yield Condition(term, ">=", ranks[0])
                yield Condition(term, "<=", ranks[-1])
        case "size" | "dim" | "length":
            yield Condition(term, ">", 0)
            sizes = {values.get(term) for values in survivors}
            if len(sizes) == 1 and isinstance(one := sizes.pop(), int) and one > 0:
                yield Condition(term, "==", one)
        case "zeros":
            yield Condition(term, "==", 0)
        case "value":
            yield from (Condition(term, "!=", 0), Condition(term, ">=", 0), Condition(term, ">", 0))
            yield from (Condition(term, "<", 0), Condition(term, "<=", 0))
        case "min":
            yield from (Condition(term, ">=", 0), Condition(term, ">", 0))
        case "max":
            yield Condition(term, "<=", 0)


def _relations(op: OpDefinition, terms: list[Term]) -> Iterator[Condition]:
    """What must fit together: indices and sizes, equal dimensions."""
    sizes = [one for one in terms if one.part in {"size", "dim", "length", "rank"}]
    numbers = [one for one in terms if one.part in {"max", "value"}]
    for one, other in itertools.product(numbers, sizes):
        if one.name != other.name and not (
            other.part == "length" and any(each.name == other.name for each in op.inputs)
        ):
            yield Condition(one, "<", other)
            yield Condition(one, "<=", other)
            if one.part == "value":
                yield Condition(one, "==", other)
    comparable = [one for one in sizes if one.part != "length"]
    for one, other in itertools.combinations(comparable, 2):
        if (one.part == "rank") == (other.part == "rank") and one.name != other.name:
            yield Condition(one, "==", other)
            yield Condition(one, "<=", other)
            yield Condition(one, ">=", other)
        elif one.name == other.name and one.part == other.part == "dim":
            yield Condition(one, "==", other)
        elif {one.part, other.part} == {"size", "rank"} and one.name != other.name:
            size, rank = (one, other) if one.part == "size" else (other, one)
            yield Condition(size, "==", rank)


def _limits(
    term: Term, survivors: list[dict[Term, Number | None]], dead: list[dict[Term, Number | None]]
) -> Iterator[Condition]:
    """A number between all that survived and all that died."""
    if term.part in {"rank", "zeros"}:
        return
    alive = [one for values in survivors if (one := values.get(term)) is not None and math.isfinite(one)]
    killed = [one for values in dead if (one := values.get(term)) is not None and math.isfinite(one)]
    if not alive or not killed:
        return
    if max(killed) > max(alive):
        yield Condition(term, "<=", max(alive), is_learned=True)
    if term.part in {"value", "min"} and min(killed) < min(alive):
        yield Condition(term, ">=", min(alive), is_learned=True)
