"""TensorFlow's eager tensors in memory: dtype and shape, found by the form of ``TensorShapeRep``.

An ``EagerTensor`` points to its handle, and the handle keeps the shape twice (``TensorHandle::inference_shape_`` and
its tensor's). Where in it differs between versions, so it is searched for: 16 bytes of dimensions with dtype, rank and
tag in the last three, and the count of elements after them (core/framework/tensor_shape.h). Only a form that is there
twice, with the same content, counts.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass

from necropsy.capture.process.memory import Memory

_SEARCHED = 512
_FORM = 24
_APART = 32
"""Bytes between the two forms of a handle."""
_FIRST_POINTER = 24
_MOST_RANK = 254
_MOST_OUT_OF_LINE = 32
_MOST_LOOKED_AT = 8
DTYPES = (
    "",
    "float32",
    "float64",
    "int32",
    "uint8",
    "int16",
    "int8",
    "string",
    "complex64",
    "int64",
    "bool",
    "qint8",
    "quint8",
    "qint32",
    "bfloat16",
    "qint16",
    "quint16",
    "uint16",
    "complex128",
    "float16",
    "resource",
    "variant",
    "uint32",
    "uint64",
)
"""By ``DataType`` (core/framework/types.proto)."""
_NUMBERS = {
    "float32": "f",
    "float64": "d",
    "int32": "i",
    "uint8": "B",
    "int16": "h",
    "int8": "b",
    "int64": "q",
    "bool": "?",
    "uint16": "H",
    "float16": "e",
    "uint32": "I",
    "uint64": "Q",
    "qint32": "i",
    "qint8": "b",
    "quint8": "B",
}


@dataclass(frozen=True)
class Tensor:
    """``values``: the numbers of a tensor of at most eight; empty of a larger one, or where they cannot be read."""

    dtype: str
    shape: tuple[int, ...]
    values: tuple[float, ...] = ()


def tensor_of(memory: Memory, address: int, size: int) -> Tensor | None:
    """The eager tensor at ``address``, an object of ``size`` bytes; None where it cannot be told for certain."""
    body = memory.exactly(address, min(size, _SEARCHED) & ~7)
    if body is None:
        return None
    found: dict[tuple[str, tuple[int, ...]], Tensor] = {}
    for (pointer,) in struct.iter_unpack("<Q", body[_FIRST_POINTER:]):
        if pointer % 8 or not 0x10000 <= pointer < 1 << 47:
            continue
        tensor = _of_handle(memory, memory.some(pointer, _SEARCHED))
        if tensor is not None:
            found[tensor.dtype, tensor.shape] = tensor
    return next(iter(found.values())) if len(found) == 1 else None


def tensor_at(memory: Memory, address: int) -> Tensor | None:
    """The ``tensorflow::Tensor`` at ``address``: its shape, then its buffer; None where there is none."""
    data = memory.exactly(address, _FORM + 8)
    form = _form(memory, data, 0) if data is not None else None
    if data is None or form is None:
        return None
    dtype, shape = form
    return Tensor(dtype, shape, _values(memory, struct.unpack_from("<Q", data, _FORM)[0], dtype, math.prod(shape)))


def _of_handle(memory: Memory, data: bytes) -> Tensor | None:
    for at in range(0, len(data) - _APART - _FORM - 7, 8):
        first = _form(memory, data, at)
        if first is None or first != _form(memory, data, at + _APART):
            continue
        dtype, shape = first
        values = [
            _values(memory, struct.unpack_from("<Q", data, place + _FORM)[0], dtype, math.prod(shape))
            for place in (at, at + _APART)
            if place + _FORM + 8 <= len(data)
        ]
        return Tensor(dtype, shape, next((one for one in values if one), ()))
    return None


def _form(memory: Memory, data: bytes, at: int) -> tuple[str, tuple[int, ...]] | None:
    """Dtype and shape of the ``TensorShapeRep`` at ``at``, or None."""
    number, rank, tag = data[at + 13], data[at + 14], data[at + 15]
    (count,) = struct.unpack_from("<q", data, at + 16)
    if not 0 < number < len(DTYPES) or count < 0:
        return None
    shape: tuple[int, ...] | None = None
    if tag == 0 and rank <= 6:
        shape = struct.unpack_from(f"<{rank}H", data, at)
    elif tag == 1 and rank <= 3:
        shape = struct.unpack_from(f"<{rank}I", data, at)
    elif tag == 2 and 0 < rank <= _MOST_OUT_OF_LINE:
        shape = _out_of_line(memory, struct.unpack_from("<Q", data, at)[0], rank)
    if shape is None or math.prod(shape) != count:
        return None
    return DTYPES[number], shape


def _out_of_line(memory: Memory, vector: int, rank: int) -> tuple[int, ...] | None:
    """The dimensions in an ``absl::InlinedVector<int64_t, 4>``."""
    head = memory.u64(vector)
    if head is None or head >> 1 != rank:
        return None
    at = memory.u64(vector + 8) if head & 1 else vector + 8
    data = memory.exactly(at, 8 * rank) if at else None
    shape = struct.unpack(f"<{rank}q", data) if data is not None else None
    return shape if shape is not None and all(0 <= one < 1 << 48 for one in shape) else None


def _values(memory: Memory, buffer: int, dtype: str, count: int) -> tuple[float, ...]:
    """The numbers of a small tensor in the memory of the host; none where they are elsewhere."""
    code = _NUMBERS.get(dtype)
    if code is None or not 0 < count <= _MOST_LOOKED_AT or buffer % 8 or not 0x10000 <= buffer < 1 << 47:
        return ()
    at = memory.u64(buffer + 16)  # TensorBuffer: vtable, count of references, data
    data = memory.exactly(at, struct.calcsize(f"<{count}{code}")) if at else None
    return struct.unpack(f"<{count}{code}", data) if data is not None else ()
