"""Makes a lethal call simpler as long as it dies the same death: fewest elements first, then the simplest values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from necropsy.fuzz.boundaries import plain
from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.recipes import Input, Recipe, Tensor

MOST_RUNS = 100
SMALL = (0, 1, -1, 2, 3, 5, 10)
"""For deaths at a wild address: which of the larger offsets are mapped differs from process to process."""
NUMBERS = (*SMALL, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
_TOO_MANY = 4_000_000
_LONG = 64
"""A size or a length above this may be what fills a stack."""

Dies = Callable[[Recipe], bool]


class Shrinker:
    """Shrinks one call; ``dies`` says whether a call dies the same death."""

    def __init__(
        self, op: OpDefinition, dies: Dies, most_runs: int = MOST_RUNS, numbers: Sequence[int] = NUMBERS
    ) -> None:
        """``numbers``: values to try instead of others, the simplest first."""
        self.op, self._dies, self.left, self._numbers = op, dies, most_runs, numbers
        self._tried: dict[tuple[str, str], bool] = {}
        self.lethal: list[Recipe] = []
        """The calls that died, in the order in which they were tried."""

    def shrink(self, recipe: Recipe) -> Recipe:
        """The simplest call that was found until nothing changes or the runs are used up."""
        while self.left > 0:
            simpler = self._sizes(recipe)
            for name in recipe.inputs:
                simpler = self._input(simpler, name)
            for name in recipe.attributes:
                simpler = self._attribute(simpler, name)
            if _cost(simpler) >= _cost(recipe):
                break
            recipe = simpler
        return recipe

    def _is_lethal(self, recipe: Recipe) -> bool:
        if recipe.call not in self._tried:
            if self.left <= 0 or recipe.elements > _TOO_MANY:
                return False
            self.left -= 1
            self._tried[recipe.call] = self._dies(recipe)
            if self._tried[recipe.call]:
                self.lethal.append(recipe)
        return self._tried[recipe.call]

    def _first(self, recipe: Recipe, candidates: Iterator[Recipe]) -> Recipe:
        return next((one for one in candidates if one != recipe and self._is_lethal(one)), recipe)

    # ------------------------------------------------------------ sizes

    def _sizes(self, recipe: Recipe) -> Recipe:
        """Each size of all shapes at once."""
        for size in sorted({size for one in recipe.tensors() for size in one.shape}, reverse=True):
            many = self._least(size, functools.partial(_resized, recipe, size))
            recipe = recipe.with_shapes({size: many}) if many != size else recipe
        return recipe

    def _least(self, most: int, made: Callable[[int], Recipe]) -> int:
        """The least number that still dies, by bisection; 0 only where 1 does not: an empty tensor is another case."""
        if most <= 1:
            return most
        for few in (1, 0):
            if self._is_lethal(made(few)):
                return few
        low, high = 1, most
        while high - low > max(1, high // 64):
            middle = (low + high) // 2
            if self._is_lethal(made(middle)):
                high = middle
            else:
                low = middle
        return high

    # ------------------------------------------------------------ inputs

    def _input(self, recipe: Recipe, name: str) -> Recipe:
        one = recipe.inputs[name]
        if isinstance(one, Tensor):
            return self._tensor(recipe, one, lambda other, base: base.with_input(name, other))
        at = len(one) - 1
        while at >= 0:
            several = _tuple(recipe.inputs[name])
            fewer = (*several[:at], *several[at + 1 :])
            if self._is_lethal(recipe.with_input(name, fewer)):
                recipe = recipe.with_input(name, fewer)
            at -= 1
        for at in range(len(_tuple(recipe.inputs[name]))):
            recipe = self._tensor(
                recipe, _tuple(recipe.inputs[name])[at], functools.partial(_with_one_of, name=name, at=at)
            )
        return recipe

    def _tensor(self, recipe: Recipe, one: Tensor, put: Callable[[Tensor, Recipe], Recipe]) -> Recipe:
        """A simpler shape, then simpler elements."""

        def of(made: Tensor) -> Recipe:
            return put(made, recipe)

        def use(made: Tensor) -> None:
            nonlocal recipe, one
            if made != one and self._is_lethal(of(made)):
                recipe, one = of(made), made

        for shape in ((), (1,), (0,)):
            if len(shape) < len(one.shape) or (shape == (1,) and len(one.shape) == 1 and one.size > 1):
                use(
                    replace(one, shape=shape, items=one.items[-1:], kind="same")
                    if one.kind == "cycle"
                    else replace(one, shape=shape)
                )
        for at in range(len(one.shape)):
            if at < len(one.shape):
                use(replace(one, shape=(*one.shape[:at], *one.shape[at + 1 :])))
        for at in range(len(one.shape)):
            sized = functools.partial(_with_size, put, one, at, recipe)
            many = self._least(one.shape[at], sized)
            if many != one.shape[at]:
                recipe = sized(many)
                one = replace(one, shape=(*one.shape[:at], many, *one.shape[at + 1 :]))
        for made in _simpler(one, self._numbers):
            before = one
            use(made)
            if one != before:
                break
        if one.dtype == "string" and one.kind == "same":
            unit, times = one.items[0]
            base, whole = one, recipe
            many = self._least(times, lambda other: put(replace(base, items=((unit, other),)), whole))
            if many != times:
                recipe = put(replace(base, items=((unit, many),)), whole)
        return recipe

    def _attribute(self, recipe: Recipe, name: str) -> Recipe:
        given = next((each for each in self.op.attributes if each.name == name), None)
        value = recipe.attributes[name]
        default = given.default if given is not None and given.has_default else None
        if default is not None and value != default and self._is_lethal(recipe.with_attribute(name, default)):
            return recipe.with_attribute(name, default)
        return self._first(recipe, (recipe.with_attribute(name, one) for one in _simpler_values(value, self._numbers)))


def _cost(recipe: Recipe) -> tuple[int, int, str]:
    """What is to become less: the elements, then the text by length. Empty is no simpler than one element."""
    text = recipe.python
    return recipe.elements + sum(not one.size for one in recipe.tensors()), len(text), text


def _resized(recipe: Recipe, size: int, other: int) -> Recipe:
    return recipe.with_shapes({size: other})


def _with_size(put: Callable[[Tensor, Recipe], Recipe], one: Tensor, at: int, recipe: Recipe, many: int) -> Recipe:
    return put(replace(one, shape=(*one.shape[:at], many, *one.shape[at + 1 :])), recipe)


def _with_one_of(other: Tensor, base: Recipe, name: str, at: int) -> Recipe:
    return base.with_input(name, _replaced(_tuple(base.inputs[name]), at, other))


def with_margin(recipe: Recipe) -> Recipe:
    """Twice as much of the largest thing: where a stack is full depends on the machine."""
    largest = max((size for one in recipe.tensors() for size in one.shape), default=0)
    repeated = max(
        (times for one in recipe.tensors() if one.dtype == "string" for _, times in one.items if one.kind == "same"),
        default=0,
    )
    if repeated > max(largest, 1):
        inputs: dict[str, Input] = {}
        for name, one in recipe.inputs.items():
            inputs[name] = _doubled(one) if isinstance(one, Tensor) else tuple(map(_doubled, one))
        return replace(recipe, inputs=inputs)
    if largest > _LONG:
        return recipe.with_shapes({largest: 2 * largest})
    inputs = {}
    for name, one in recipe.inputs.items():
        inputs[name] = _larger(one) if isinstance(one, Tensor) else tuple(map(_larger, one))
    attributes = {name: _larger_value(one) for name, one in recipe.attributes.items()}
    return replace(recipe, inputs=inputs, attributes=attributes)


def _doubled(one: Tensor) -> Tensor:
    if one.dtype != "string" or one.kind != "same":
        return one
    unit, times = one.items[0]
    return replace(one, items=((unit, times * 2 if times > 1 else times),))


def _larger(one: Tensor) -> Tensor:
    """Numbers that may be depths; those at the end of their type stay."""
    if one.dtype in {"string", "bool"} or one.kind != "same" or not 1000 < one.items[0] < 1 << 30:
        return one
    return replace(one, items=(one.items[0] * 2,))


def _larger_value(value: Any) -> Any:
    """The same of an attribute, or of a parameter of a Python function, which may also be a long text."""
    if isinstance(value, int) and 1000 < value < 1 << 30:
        return 2 * value
    if isinstance(value, str) and len(value) > _LONG:
        return 2 * value
    if isinstance(value, dict) and value.get("times", 0) > _LONG:
        return {**value, "times": 2 * value["times"]}
    return value


def _simpler(one: Tensor, numbers: Sequence[int]) -> Iterator[Tensor]:
    """The same shape with simpler elements, the simplest first."""
    yield replace(plain(one.dtype, one.shape), items=_zero(one.dtype))
    yield plain(one.dtype, one.shape)
    if one.dtype == "string":
        if one.kind != "same":
            yield from (replace(one, kind="same", items=(each,)) for each in one.items)
        return
    if one.dtype == "bool":
        return
    of_float = one.dtype.startswith(("float", "bfloat", "complex"))
    now = one.items[0] if one.kind == "same" else None
    if of_float and now is not None and now != now:  # noqa: PLR0124 - not a number
        return
    for number in numbers:
        if now is not None and abs(number) >= abs(now):
            break
        for signed in {number, -number} if now is not None and now < 0 else (number,):
            if signed >= 0 or not one.dtype.startswith(("u", "q")):
                yield replace(one, kind="same", items=(float(signed) if of_float else signed,))
    if one.kind == "cycle":
        yield from (replace(one, kind="same", items=(each,)) for each in dict.fromkeys(one.items))
        yield replace(one, items=one.items[-1:] if one.size == 1 else one.items)


def _zero(dtype: str) -> tuple[Any, ...]:
    if dtype == "string":
        return (("", 1),)
    return (False,) if dtype == "bool" else (0.0,) if dtype.startswith(("float", "bfloat", "complex")) else (0,)


def _simpler_values(value: Any, numbers: Sequence[int]) -> Iterator[Any]:
    if isinstance(value, bool):
        if value:
            yield False
    elif isinstance(value, int):
        yield from (one for one in numbers if abs(one) < abs(value) and (one >= 0 or value < 0))
        yield from (-one for one in numbers if value < 0 and 1 < one < -value)
    elif isinstance(value, float):
        yield from (one for one in (0.0, 1.0, -1.0) if one != value)
    elif isinstance(value, dict) and value.get("times", 0):
        yield {"bytes": "", "times": 1}
        many = 1
        while many < value["times"]:
            yield {**value, "times": many}
            many *= 2
    elif isinstance(value, str) and value:
        yield from ("", "a")
        many = len(value) // 2
        while many > 1:
            yield value[:many]
            many //= 2
    elif isinstance(value, list) and value:
        yield []
        yield value[:1]
        yield value[:-1]


def _tuple(one: Input) -> tuple[Tensor, ...]:
    return (one,) if isinstance(one, Tensor) else one


def _replaced(several: tuple[Tensor, ...], at: int, one: Tensor) -> tuple[Tensor, ...]:
    return (*several[:at], one, *several[at + 1 :])
