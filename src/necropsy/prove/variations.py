"""Calls on the border of what an op accepts: one argument of an accepted call is changed, as a finding predicts."""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.prove.session import OpAttribute, OpDescription
from necropsy.prove.values import FLOATS, Call, Literal, Tensor, Tensors, Value, greatest, is_integer, least

_RANKS: tuple[tuple[int, ...], ...] = ((), (1,), (3,), (2, 2), (2, 2, 2), (1, 2, 2, 1), (1, 1, 1, 1, 1))
_LARGE = 4_000_000
_DEEP = 1_000_000
_TEXTS = ("''", "'x'", "'1x'", "'-1'", "'9' * 30", "'x' * 1000", "'=' * 10", "':'", "'1 1000000'", "'a b c d e f g'")
_LISTS = (
    *("[]", "[0]", "[1]", "[-1]", "[0, 0]", "[1, 0]", "[1, -1]", "[1, 1, 1]", "[0, 0, 0, 0]", "[1, 0, 0, 1]"),
    *("[300000000]", "[300000000, 300000000]", "[1] * 1000"),
)
_DEEP_TEXTS = tuple(f"'{each}' * {_DEEP}" for each in ("(", "[", "{", "-", "a", "(a ", "/", "!", "1+", "a/"))


def shapes(call: Call) -> Iterator[Call]:
    """Other ranks, empty tensors, and sizes that do not fit the other inputs."""
    tensors = _tensors(call)
    for name, one in tensors.items():
        for shape in _RANKS:
            yield call.but(**{name: one.with_shape(*shape)})
        yield call.but(**{name: one.with_shape(0)})
        for at, size in enumerate(one.shape):
            for other in dict.fromkeys((0, 1, size - 1, size + 1, 2 * size, 1000)):
                if other >= 0:
                    yield call.but(**{name: one.with_shape(*one.shape[:at], other, *one.shape[at + 1 :])})
    for size in (0, 1, 2, 3, 5, 16, 17, 100):
        yield call.but(**{name: one.with_shape(*[size] * len(one.shape)) for name, one in tensors.items()})
    for shape in _RANKS:
        yield call.but(**{name: one.with_shape(*shape) for name, one in tensors.items()})
    for name, value in call.arguments.items():
        if isinstance(value, Tensors):
            yield call.but(**{name: Tensors(())})
            yield call.but(**{name: Tensors(value.each[:1])})
            yield call.but(**{name: Tensors((*value.each[:1], *(one.with_shape(7) for one in value.each[1:])))})


def numbers(call: Call) -> Iterator[Call]:
    """Values that are negative, zero, too large; texts that are empty, long or no number."""
    for name, one in _tensors(call).items():
        for value in _fills(one):
            yield call.but(**{name: one.filled(value)})
        if is_integer(one.dtype):
            for first in (0, 1, -1, 1000):
                yield call.but(**{name: one.counted(first)})
            if one.size != 2:
                for value in (0, -1, 300_000_000):
                    yield call.but(**{name: Tensor(one.dtype, (2,), value)})


def _fills(one: Tensor) -> Iterator[int | float | bool | str]:
    if one.dtype == "string":
        yield from _TEXTS
    elif one.dtype == "bool":
        yield from (True, False)
    elif one.dtype in FLOATS:
        yield from (0.0, -1.0, 1e30, -1e30, float("nan"), float("inf"))
    elif is_integer(one.dtype):
        size = one.size
        yield from (0, -1, 1, size, size + 1, 7, 64, 1000, 65_536, 300_000_000, -300_000_000)
        yield from (greatest(one.dtype), least(one.dtype))


def attributes(call: Call, op: OpDescription) -> Iterator[Call]:
    """Attributes that are negative, zero, huge, or lists that are too short."""
    decided = {name for one in op.inputs for name in (one.type_attribute, one.number_attribute, one.types_attribute)}
    for one in op.attributes:
        if one.name not in decided:
            for text in _texts(one):
                yield call.but(**{one.name: Literal(text)})


def _texts(one: OpAttribute) -> tuple[str, ...]:
    return {
        "int": ("0", "-1", "1", "2", "100", "1000", "300000000", "-300000000", str((1 << 62) - 1)),
        "list(int)": _LISTS,
        "string": ("''", "'x' * 1000", "'x'", "'/' + 'x' * 150", "'(' * 1000000", "'1x'"),
        "float": ("0.0", "-1.0", "1e30", "float('nan')"),
        "bool": ("True", "False"),
        "list(float)": ("[]", "[0.0]", "[0.0] * 1000"),
        "list(string)": ("[]", "['']", "['x' * 1000]"),
        "shape": ("[]", "[0]", "[100000, 100000]"),
    }.get(one.type, ())


def types(call: Call, op: OpDescription) -> Iterator[Call]:
    """Each type that the registration allows."""
    for one in op.attributes:
        if one.type != "type":
            continue
        of = [each.name for each in op.inputs if each.type_attribute == one.name]
        for dtype in one.allowed or ("float32", "float64", "int32", "int64", "string", "bool", "uint8"):
            changed: dict[str, Value] = {name: _typed(call.arguments[name], dtype) for name in of}
            yield call.but(**(changed or {one.name: Literal(f"tf.{dtype}")}))


def _typed(value: Value, dtype: str) -> Value:
    if isinstance(value, Tensor):
        return Tensor(dtype, value.shape)
    return Tensors(tuple(Tensor(dtype, one.shape) for one in value.each)) if isinstance(value, Tensors) else value


def deep(call: Call) -> Iterator[Call]:
    """Inputs that a recursion may follow far down, or that are larger than a stack."""
    for name, one in _tensors(call).items():
        if one.dtype == "string":
            for text in (*_DEEP_TEXTS, f"'(' * {_DEEP} + ')' * {_DEEP}", f"'(' * {_DEEP} + '1' + ')' * {_DEEP}"):
                yield call.but(**{name: one.filled(text)})
            yield call.but(**{name: Tensor("string", (1,), "'x' * 9000000")})
        elif is_integer(one.dtype):
            for value in (100_000, 10_000_000, 100_000_000):
                yield call.but(**{name: one.filled(value)})
            for first in (1, -1):
                yield call.but(**{name: one.with_shape(_DEEP).counted(first)})
        for at in range(len(one.shape)):
            wide = one.with_shape(*one.shape[:at], _LARGE, *[1] * (len(one.shape) - at - 1))
            yield call.but(**{name: wide})
        if len(one.shape) == 2:
            yield call.but(**{name: one.with_shape(2000, 2000)})
            yield call.but(**{name: one.with_shape(2000, 2000).filled(0)})
    sized = {name: one for name, one in _tensors(call).items() if one.shape}
    if len(sized) > 1:
        for first in (1, -1):
            yield call.but(
                **{
                    name: one.with_shape(_DEEP).counted(first) if is_integer(one.dtype) else one.with_shape(_DEEP)
                    for name, one in sized.items()
                }
            )


def _tensors(call: Call) -> dict[str, Tensor]:
    return {name: one for name, one in call.arguments.items() if isinstance(one, Tensor)}
