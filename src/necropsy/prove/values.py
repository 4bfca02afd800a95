"""Tensors and attributes as the text of the Python expressions that make them: what runs is what a user can paste."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

_WRITTEN_OUT = 16
_LIMITS = {
    "int8": (-(1 << 7), (1 << 7) - 1),
    "int16": (-(1 << 15), (1 << 15) - 1),
    "int32": (-(1 << 31), (1 << 31) - 1),
    "int64": (-(1 << 63), (1 << 63) - 1),
    "uint8": (0, (1 << 8) - 1),
    "uint16": (0, (1 << 16) - 1),
    "uint32": (0, (1 << 32) - 1),
    "uint64": (0, (1 << 64) - 1),
}
_NOT_COUNTED = frozenset({"uint8", "uint64"})
"""tf.range does not know them."""
FLOATS = frozenset({"float32", "float64", "half", "float16", "bfloat16"})


def is_integer(dtype: str) -> bool:
    """Whether a type holds whole numbers."""
    return dtype in _LIMITS


def within(dtype: str, number: int) -> int:
    """The number, or the nearest one that the type holds."""
    low, high = _LIMITS.get(dtype, (number, number))
    return max(low, min(high, number))


def greatest(dtype: str) -> int:
    """The largest number of an integer type."""
    return _LIMITS[dtype][1]


def least(dtype: str) -> int:
    """The smallest number of an integer type."""
    return _LIMITS[dtype][0]


@dataclass(frozen=True)
class Tensor:
    """A tensor with one value everywhere, or ``steps``: ``fill``, ``fill + 1``, ... in the order of its elements."""

    dtype: str
    shape: tuple[int, ...]
    fill: int | float | bool | str | None = None
    """A number, a truth value, or an expression such as ``"(" * 1000`` for strings. None: 1 or equivalent."""
    steps: bool = False

    def __str__(self) -> str:
        dtype, shape, value = f"tf.{self.dtype}", list(self.shape), self._value()
        if self.steps and self.size > 1:
            first = int(self.fill or 0)
            made = f"tf.range({first}, {first + self.size}, dtype={dtype})"
            if self.dtype in _NOT_COUNTED:
                made = f"tf.cast(tf.range({first}, {first + self.size}), {dtype})"
            return made if len(shape) == 1 else f"tf.reshape({made}, {shape})"
        if not self.shape:
            return f"tf.constant({value}, {dtype})"
        if len(self.shape) == 1 and 0 < self.size <= _WRITTEN_OUT and self.dtype != "string":
            return f"tf.constant([{', '.join([value] * self.size)}], {dtype})"
        if value in {"0", "0.0"}:
            return f"tf.zeros({shape}, {dtype})"
        return f"tf.fill({shape}, tf.constant({value}, {dtype}))"

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)

    def _value(self) -> str:
        fill = 1 if self.fill is None else self.fill
        if self.dtype == "string":
            return fill if isinstance(fill, str) else repr(str(fill))
        if self.dtype == "bool":
            return str(bool(fill))
        if is_integer(self.dtype):
            return str(within(self.dtype, int(fill)))
        if isinstance(fill, float) and not math.isfinite(fill):
            return f'float("{fill}")'
        return repr(float(fill))

    def with_shape(self, *shape: int) -> Tensor:
        """The same values in another shape."""
        return dataclasses.replace(self, shape=shape)

    def filled(self, fill: float | bool | str) -> Tensor:
        """The same shape with another value."""
        return dataclasses.replace(self, fill=fill, steps=False)

    def counted(self, first: int) -> Tensor:
        """The same shape with the numbers from ``first`` on."""
        return dataclasses.replace(self, fill=first, steps=True)


@dataclass(frozen=True)
class Tensors:
    """A list of tensors."""

    each: tuple[Tensor, ...]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.each))}]"


@dataclass(frozen=True)
class Literal:
    """An attribute's value, as the text of an expression."""

    text: str

    def __str__(self) -> str:
        return self.text


Value = Tensor | Tensors | Literal


@dataclass(frozen=True)
class Call:
    """One call of an op."""

    op: str
    arguments: Mapping[str, Value]

    def __str__(self) -> str:
        return f"ops.{self.op}({', '.join(f'{name}={value}' for name, value in self.arguments.items())})"

    def but(self, **changed: Value) -> Call:
        """The same call with other arguments."""
        return Call(self.op, {**self.arguments, **changed})
