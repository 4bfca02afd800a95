"""Calls that an op may accept: what is tried until some come back with a value."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from necropsy.prove.session import OpAttribute, OpDescription, OpInput
from necropsy.prove.values import Call, Literal, Tensor, Tensors, Value, is_integer

SHAPES: tuple[tuple[int, ...], ...] = ((), (4,), (4, 4), (1,), (2, 3, 4), (1, 4, 4, 3), (2,), (3,), (2, 4), (4, 2))
_FEW = SHAPES[:5]
_STRINGS = ("'1'", "'a'", "'1,2'", "'(1)'", "'a b'", "'[1]'", "'0:1'", "'()'")
_MOST = 1500
_REFUSED = frozenset({"resource", "variant"})


def cannot_be_called(op: OpDescription) -> str | None:
    """Why no call of it can be made up; None where one can."""
    for one in op.inputs:
        if one.type in _REFUSED:
            return f"no value can be made up for its input {one.name} of type {one.type}"
    for each in op.attributes:
        if each.type in {"func", "list(func)", "tensor", "list(tensor)"} and each.default is None:
            return f"no value can be made up for its attribute {each.name} of type {each.type}"
    return None


def candidates(name: str, op: OpDescription) -> Iterator[Call]:
    """Many calls, the plain ones first."""
    return itertools.islice(_distinct(_all(name, op)), _MOST)


def _distinct(calls: Iterator[Call]) -> Iterator[Call]:
    seen = set()
    for one in calls:
        text = str(one)
        if text not in seen:
            seen.add(text)
            yield one


def _all(name: str, op: OpDescription) -> Iterator[Call]:
    types = next(iter(type_choices(op)), {})
    number = len(op.inputs)
    for attributes in _attribute_choices(op, types):
        for fill in (1, 0, "steps", *_STRINGS[1:]):
            if isinstance(fill, str) and fill != "steps" and not _has_strings(op, types):
                continue
            for shape in SHAPES:
                yield Call(name, {**_inputs(op, types, [shape] * number, fill), **attributes})
        for shapes in _mixed(number):
            yield Call(name, {**_inputs(op, types, shapes, 1), **attributes})
            yield Call(name, {**_inputs(op, types, shapes, 0), **attributes})


def _mixed(number: int) -> Iterator[Sequence[tuple[int, ...]]]:
    if number < 2:
        return
    choices = SHAPES if number == 2 else _FEW if number == 3 else _FEW[:3]
    yield from itertools.islice(itertools.product(choices, repeat=number), 800)


def _has_strings(op: OpDescription, types: Mapping[str, str]) -> bool:
    return any(dtype_of(one, types) == "string" for one in op.inputs)


def type_choices(op: OpDescription) -> Iterator[dict[str, str]]:
    """Types for the attributes that are types: those that kernels exist for, then what the registration allows."""
    wanted = [one for one in op.attributes if one.type == "type"]
    for kernel in op.kernels or ({},):
        yield {one.name: next(iter(kernel.get(one.name, ())), None) or _default_type(one) for one in wanted}
    for one in wanted:
        for dtype in one.allowed:
            yield {each.name: dtype if each is one else _default_type(each) for each in wanted}


def _default_type(one: OpAttribute) -> str:
    return one.default or next(iter(one.allowed), "float32")


def dtype_of(one: OpInput, types: Mapping[str, str]) -> str:
    """The type of an input's tensor."""
    return one.type or types.get(one.type_attribute or "", "float32")


def _attribute_choices(op: OpDescription, types: Mapping[str, str]) -> Iterator[dict[str, Value]]:
    """Attributes without a default or an input that determines them."""
    decided = {name for one in op.inputs for name in (one.type_attribute, one.number_attribute, one.types_attribute)}
    wanted = [one for one in op.attributes if one.name not in decided and one.default is None]
    if not wanted:
        yield {}
        return
    for turn in range(4):
        yield {one.name: Literal(_plain(one, turn, types)) for one in wanted}


def _plain(one: OpAttribute, turn: int, types: Mapping[str, str]) -> str:
    number = max(one.minimum or 0, (1, 2, 4, 0)[turn])
    if one.type == "type":
        return f"tf.{types.get(one.name, 'float32')}"
    if one.type == "string":
        return repr(one.allowed[turn % len(one.allowed)] if one.allowed else ("a", "1", "", "SAME")[turn])
    length = max(one.minimum or 0, (2, 1, 4, 3)[turn])
    return {
        "int": str(number),
        "float": "1.0",
        "bool": "False",
        "shape": str([4] * (turn + 1)),
        "list(int)": str([1] * length),
        "list(float)": str([1.0] * length),
        "list(bool)": str([False] * length),
        "list(string)": str(["a"] * length),
        "list(shape)": str([[4]] * length),
        "list(type)": "[" + ", ".join(["tf.float32"] * length) + "]",
    }.get(one.type, "None")


def _inputs(
    op: OpDescription, types: Mapping[str, str], shapes: Sequence[tuple[int, ...]], fill: int | str
) -> dict[str, Value]:
    """Tensors with these shapes and one kind of values."""
    arguments: dict[str, Value] = {}
    for one, shape in zip(op.inputs, shapes, strict=True):
        dtype = dtype_of(one, types)
        if fill == "steps":
            tensor = Tensor(dtype, shape, 0, steps=is_integer(dtype))
        elif isinstance(fill, str):
            tensor = Tensor(dtype, shape, fill if dtype == "string" else None)
        else:
            tensor = Tensor(dtype, shape, fill)
        several = one.number_attribute is not None or one.types_attribute is not None
        arguments[one.name] = Tensors((tensor, tensor)) if several else tensor
    return arguments
