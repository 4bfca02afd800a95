"""Inputs that make sense only together: parts of a sparse or ragged tensor, segments, ranges of quantized values.

TensorFlow's ops take a sparse tensor as three inputs (``a_indices``, ``a_values``, ``a_shape``), and a ragged one as
values with ``row_splits``. The names tell which inputs belong together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

from necropsy.fuzz.definitions import OpDefinition
from necropsy.fuzz.recipes import FLOATS, INTEGERS, Input, Recipe, Tensor

_INDICES = re.compile(r"(.*?)(?:indices|ix)$")
_SPLITS = re.compile(r"(.*?)(?:nested_|row_)?splits$")
_VALUES = ("values", "dense_values", "vals", "data", "tensor")
_SHAPES = ("shape", "dense_shape", "shapes", "dense_shapes")
Change = Callable[[Tensor], Tensor]
_LEAST, _MOST = (re.compile(rf"(?:^|_){word}(?:_|$)") for word in ("min", "max"))


def is_structured(op: OpDefinition) -> bool:
    """Whether some of its inputs belong together."""
    names = [one.name for one in op.inputs]
    return bool(
        any(_sparse(names))
        or any(_ragged(names))
        or any(one.endswith("segment_ids") for one in names)
        or any(_LEAST.search(one) or _MOST.search(one) for one in names)
    )


def fitted(recipe: Recipe, random: Random) -> Recipe:
    """The same call, whose inputs that belong together fit each other."""
    inputs = dict(recipe.inputs)
    names = list(inputs)
    rows, rank = random.choice((1, 2, 3, 3, 4)), random.choice((1, 2, 2, 2, 3))
    used: set[str] = set()
    for indices, values, shape in _sparse(names):
        inputs[indices] = _each(inputs[indices], lambda one: _coordinates(one, rows, rank))
        inputs[shape] = _each(inputs[shape], lambda one: _all(one, (rank,), rows + 1))
        if values is not None:
            inputs[values] = _each(inputs[values], lambda one: replace(one, shape=(rows,)))
        used |= {indices, shape, *((values,) if values is not None else ())}
    for splits, values in _ragged(names):
        inputs[splits] = _splits(inputs[splits], rows)
        if values is not None and values not in used:
            inputs[values] = _each(inputs[values], lambda one: replace(one, shape=(rows, *one.shape[1:])))
            used.add(values)
    for name in names:
        one = inputs[name]
        if not isinstance(one, Tensor):
            continue
        if name.endswith("segment_ids") and one.dtype in INTEGERS:
            inputs |= _segments(inputs, name, one, rows)
        elif one.dtype in FLOATS and (_LEAST.search(name) or _MOST.search(name)):
            inputs[name] = replace(one, kind="same", items=(-1.0 if _LEAST.search(name) else 1.0,))
    return replace(recipe, inputs=inputs)


def _sparse(names: Sequence[str]) -> list[tuple[str, str | None, str]]:
    """The inputs that are the indices, the values and the shape of a sparse tensor."""
    found = []
    for name in names:
        matched = _INDICES.fullmatch(name)
        if matched is None:
            continue
        shape = _first(names, matched[1], _SHAPES)
        if shape is not None:
            found.append((name, _first(names, matched[1], _VALUES), shape))
    return found


def _ragged(names: Sequence[str]) -> list[tuple[str, str | None]]:
    """The inputs that are the row splits and the values of a ragged tensor."""
    found = []
    for name in names:
        matched = _SPLITS.fullmatch(name)
        if matched is not None:
            found.append((name, _first(names, matched[1], (*_VALUES, ""))))
    return found


def _first(names: Sequence[str], prefix: str, ends: Sequence[str]) -> str | None:
    wanted = (f"{prefix}{end}".rstrip("_") for end in ends)
    return next((one for one in wanted if one in names), None)


def _each(one: Input, change: Change) -> Input:
    return change(one) if isinstance(one, Tensor) else tuple(map(change, one))


def _all(one: Tensor, shape: tuple[int, ...], value: int) -> Tensor:
    return replace(one, shape=shape, kind="same", items=(value,)) if one.dtype in INTEGERS else one


def _coordinates(one: Tensor, rows: int, rank: int) -> Tensor:
    """Row after row, the elements of a diagonal: all different, and in order."""
    if one.dtype not in INTEGERS:
        return one
    items = tuple(row for row in range(rows) for _ in range(rank))
    return replace(one, shape=(rows, rank), kind="cycle", items=items)


def _splits(one: Input, rows: int) -> Input:
    """Where the rows of ``rows`` values begin and end; of several levels each splits the rows of the next one."""

    def split(tensor: Tensor, items: tuple[int, ...]) -> Tensor:
        return replace(tensor, shape=(len(items),), kind="cycle", items=items) if tensor.dtype in INTEGERS else tensor

    if isinstance(one, Tensor):
        return split(one, (0, 1, rows))
    return tuple(split(each, (0, 1, rows if at == len(one) - 1 else 2)) for at, each in enumerate(one))


def _segments(inputs: Mapping[str, Input], name: str, one: Tensor, rows: int) -> dict[str, Input]:
    """The ids of ``rows`` segments in order, and as many rows of data, or indices of them."""
    changed: dict[str, Input] = {name: replace(one, shape=(rows,), kind="ramp", items=(0, 1))}
    for other in ("data", "indices", "ids"):
        each = inputs.get(other)
        if isinstance(each, Tensor) and (other == "data" or each.dtype in INTEGERS):
            shape = (rows, *each.shape[1:]) if other == "data" else (rows,)
            items = each if other == "data" else replace(each, kind="same", items=(0,))
            changed[other] = replace(items, shape=shape)
    counted = inputs.get("num_segments")
    if isinstance(counted, Tensor):
        changed["num_segments"] = _all(counted, (), rows)
    return changed
