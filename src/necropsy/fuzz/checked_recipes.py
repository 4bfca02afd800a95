"""Reads recipes that come from outside: from a corpus on disk, and from the calls of a program.

A recipe becomes Python text that is run, so that nothing enters it that this module has not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

from necropsy.fuzz.attributes import Attribute
from necropsy.fuzz.boundaries import MOST_ELEMENTS, plain
from necropsy.fuzz.definitions import Argument, OpDefinition
from necropsy.fuzz.recipes import COMPLEX, DTYPES, FLOATS, INTEGERS, QUANTIZED, Input, Kind, Recipe, Tensor

_MOST_RANK = 32
_MOST_ITEMS = 64
_MOST_TENSORS = 64
_MOST_TEXT = 10_000_000
_MOST_LIST = 64
_WHOLE = range(-(1 << 63), 1 << 64)


class UnfitRecipeError(ValueError):
    """It is not a call of this op; the text says why."""


def checked_recipe(data: object, op: OpDefinition) -> Recipe:
    """The recipe of data as ``recipes.to_json`` writes it.

    Raises:
        UnfitRecipeError: it is not a call of ``op``.

    """
    found = _mapping(data, "a recipe")
    inputs, attributes = (_mapping(found.get(name), name) for name in ("inputs", "attributes"))
    if set(inputs) != {one.name for one in op.inputs}:
        raise UnfitRecipeError("its inputs are not those of the op")
    given = {one.name: one for one in op.given}
    if not set(attributes) <= set(given):
        raise UnfitRecipeError("it has an attribute that the op has not")
    return made_recipe(
        op,
        {one.name: _input(inputs[one.name], one) for one in op.inputs},
        {name: attribute_value(attributes[name], one) for name, one in given.items() if name in attributes},
    )


def made_recipe(op: OpDefinition, inputs: Mapping[str, Input], attributes: Mapping[str, Any]) -> Recipe:
    """The recipe of checked inputs and attributes.

    Raises:
        UnfitRecipeError: an attribute is missing, or it is too large.

    """
    for one in op.given:
        if one.is_needed and not one.has_default and one.name not in attributes:
            raise UnfitRecipeError(f"it lacks the attribute {one.name}")
    recipe = Recipe(
        op.function,
        inputs,
        attributes,
        arrays=op.is_python,
        libraries=op.libraries,
        composites=op.composites,
        handles=op.makers,
    )
    if recipe.elements > MOST_ELEMENTS:
        raise UnfitRecipeError(f"it has more than {MOST_ELEMENTS:,} elements")
    return recipe


def _mapping(data: object, what: str) -> Mapping[str, Any]:
    if not isinstance(data, dict):
        raise UnfitRecipeError(f"{what}: not an object of JSON")
    return cast("Mapping[str, Any]", data)


def _input(data: object, one: Argument) -> Input:
    if one.number is None and one.types is None:
        return tensor(data)
    if not isinstance(data, list) or len(data) > _MOST_TENSORS:
        raise UnfitRecipeError(f"{one.name} is not a list of at most {_MOST_TENSORS} tensors")
    return tuple(map(tensor, data))


def tensor(data: object) -> Tensor:
    """The tensor of ``[dtype, shape, [kind, *items]]``; raises ``UnfitRecipeError``."""
    match data:
        case [str(dtype), [*shape], [str(kind), *items]] if dtype in DTYPES:
            return tensor_of(dtype, shape, kind, items)
    raise UnfitRecipeError("a tensor is not [type, shape, elements]")


def tensor_of(dtype: str, shape: Sequence[object], kind: str, items: Sequence[object]) -> Tensor:
    """The tensor with these parts, each of which may be anything; raises ``UnfitRecipeError``."""
    if dtype not in DTYPES:
        raise UnfitRecipeError(f"no tensor can be made of the type {dtype[:40]}")
    if len(shape) > _MOST_RANK or not all(_is_whole(one) and cast("int", one) >= 0 for one in shape):
        raise UnfitRecipeError("a shape is not made of sizes")
    sizes = tuple(cast("Sequence[int]", shape))
    if math.prod(sizes) > MOST_ELEMENTS or any(one > 1 << 62 for one in sizes):
        raise UnfitRecipeError(f"a tensor has more than {MOST_ELEMENTS:,} elements")
    if kind == "unknown":
        return plain(dtype, sizes)
    if kind not in {"same", "cycle", "ramp", "random"} or not 1 <= len(items) <= _MOST_ITEMS:
        raise UnfitRecipeError("elements are neither listed nor a range")
    if kind in {"same", "cycle"}:
        made = [_element(one, dtype) for one in items]
        return Tensor(dtype, sizes, cast("Kind", kind), tuple(made[:1] if kind == "same" else made))
    if dtype in {"string", "bool"} or dtype in COMPLEX or len(items) != (2 if kind == "ramp" else 3):
        raise UnfitRecipeError(f"no {kind} of this type")
    numbers = cast("Sequence[float]", items)
    is_whole = dtype not in FLOATS
    if not all((_is_whole(one) if is_whole or at == 0 else _is_finite(one)) for at, one in enumerate(numbers)):
        raise UnfitRecipeError(f"a {kind} of something else than numbers")
    if kind == "ramp":
        _ = [_element(one, dtype) for one in (numbers[0], numbers[0] + max(math.prod(sizes) - 1, 0) * numbers[1])]
    elif not (0 <= numbers[0] < 1 << 32 and numbers[1] < numbers[2]):
        raise UnfitRecipeError("a random range is empty")
    elif is_whole:
        _ = [_element(one, dtype) for one in (numbers[1], int(numbers[2]) - 1)]
        if not -(1 << 63) <= numbers[1] <= numbers[2] < 1 << 63:
            raise UnfitRecipeError("a random range is too wide")
    return Tensor(dtype, sizes, cast("Kind", kind), tuple(numbers))


def _element(one: object, dtype: str) -> Any:
    """An element as recipes have it."""
    if dtype == "string":
        match one:
            case [str(unit), int(times)] if _is_whole(times) and _is_latin(unit) and times >= 0:
                if len(unit) * times <= _MOST_TEXT:
                    return unit, times
            case str(text) if _is_latin(text):
                return text, 1
    elif dtype == "bool":
        if isinstance(one, bool):
            return one
    elif dtype in FLOATS or dtype in COMPLEX:
        if isinstance(one, float) or _is_whole(one):
            return one
    else:
        low, high = INTEGERS[QUANTIZED.get(dtype, dtype)]
        if _is_whole(one) and low <= cast("int", one) <= high:
            return one
    raise UnfitRecipeError(f"an element does not fit the type {dtype}")


def attribute_value(data: Any, one: Attribute) -> Any:
    """The value of an attribute, as recipes have it; raises ``UnfitRecipeError``."""
    kind = one.type
    if data is None and one.has_default:
        return None
    if kind.startswith("list(") and isinstance(data, list) and len(data) <= _MOST_LIST:
        return [_single(each, kind[5:-1], one.name) for each in data]
    return _single(data, kind, one.name)


def _single(data: Any, kind: str, name: str) -> Any:
    match kind:
        case "int" if _is_whole(data):
            return data
        case "float" if isinstance(data, float) or _is_whole(data):
            return data
        case "bool" if isinstance(data, bool):
            return data
        case "string" if isinstance(data, str) and len(data) <= _MOST_TEXT:
            return data
        case "type" if isinstance(data, dict) and data.keys() == {"type"} and data["type"] in DTYPES:
            return data
        case "shape" if isinstance(data, list) and len(data) <= _MOST_RANK and all(map(_is_whole, data)):
            return data
        case "bytes" if isinstance(data, dict) and data.keys() == {"bytes", "times"}:
            return dict(zip(("bytes", "times"), _element([data["bytes"], data["times"]], "string"), strict=True))
    raise UnfitRecipeError(f"{name} is no {kind}")


def _is_whole(one: object) -> bool:
    return isinstance(one, int) and not isinstance(one, bool) and one in _WHOLE


def _is_finite(one: object) -> bool:
    return (isinstance(one, float) and math.isfinite(one)) or _is_whole(one)


def _is_latin(text: str) -> bool:
    return all(ord(one) < 256 for one in text) and len(text) <= _MOST_TEXT
