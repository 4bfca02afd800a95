"""A recipe as the JSON document shows it: types, shapes, the first values, and one Python expression."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from necropsy.fuzz.engine import Call
from necropsy.fuzz.recipes import Recipe, Tensor
from necropsy.model import FuzzCall, FuzzTensor

MOST_VALUES = 64
_LONGEST = 200
_LONGEST_CALL = 20_000


def described(target: str, recipe: Recipe, repeated: int, beside: Sequence[Call] = ()) -> FuzzCall:
    """The call as data; ``beside``: what other threads call at the same time."""
    return FuzzCall(
        target=target,
        inputs={
            name: _tensor(one) if isinstance(one, Tensor) else tuple(map(_tensor, one))
            for name, one in recipe.inputs.items()
        },
        attributes=dict(recipe.attributes),
        python=shown(target, recipe)[:_LONGEST_CALL],
        repeated=repeated,
        beside=tuple(f"{function}({arguments})"[:_LONGEST_CALL] for function, arguments in beside),
    )


def shown(target: str, recipe: Recipe) -> str:
    """The call as one expression, with the name of a Python function as its file has it."""
    return f"{target}({recipe.call[1]})" if recipe.arrays else recipe.python


def _tensor(one: Tensor) -> FuzzTensor:
    values = None if one.kind == "random" else tuple(itertools.islice(_values(one), MOST_VALUES))
    return FuzzTensor(dtype=one.dtype, shape=one.shape, values=values)


def _values(one: Tensor) -> Iterator[Any]:
    if one.kind == "ramp":
        first, step = one.items
        yield from (first + at * step for at in range(one.size))
    else:
        yield from itertools.islice(itertools.cycle(map(_plain, one.items)), one.size)


def _plain(item: Any) -> Any:
    """A value that JSON has: texts are shortened, and what is not finite becomes a text."""
    if isinstance(item, tuple):
        unit, times = item
        text = unit * min(times, _LONGEST)
        return text[:_LONGEST]
    return str(item) if isinstance(item, float) and not math.isfinite(item) else item
