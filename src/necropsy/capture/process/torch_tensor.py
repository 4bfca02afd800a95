"""PyTorch's tensors in memory: dtype and shape, found by the form of ``c10::TensorImpl``.

The Python object points to the ``TensorImpl``, which keeps its sizes and strides (``SizesAndStrides``: the rank, then
five sizes and five strides, or a pointer to those of more dimensions), the storage's offset, the number of elements,
the dtype and the device one after the other (c10/core/TensorImpl.h). Where in it differs between versions, so the form
is searched for. It counts only where the number of elements is the product of the sizes, and in one place only.
"""

from __future__ import annotations

import math
import struct

from necropsy.capture.process.eager_tensor import Tensor
from necropsy.capture.process.memory import Memory

BASES = ("torch._C.TensorBase", "torch._C._TensorBase", "_TensorBase")
_IMPL = (16, 24)
"""Of the Python object (``THPVariable``): the pointer; older releases have a flag before it (``MaybeOwned``)."""
_LOWEST = 0x10000
_SEARCHED = 256
_FIRST = 24
"""The virtual table and the counts of references stand before the sizes."""
_INLINE = 5
_DTYPE = 8 + 8 * 2 * _INLINE + 8 + 8
_FORM = _DTYPE + 5
"""The dtype in two bytes, then the device: its type, its index, and 1 for there is one."""
_MOST_DEVICES = 64
_MOST_RANK = 64
_LARGEST = 1 << 48
_DTYPES = (
    *("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"),
    *("complex32", "complex64", "complex128", "bool", "qint8", "quint8", "qint32", "bfloat16"),
)
"""By ``c10::ScalarType``."""


def tensor_of(memory: Memory, address: int) -> tuple[Tensor, bool] | None:
    """The tensor at ``address``, and whether its elements lie one after the other; None where it cannot be told."""
    found: dict[tuple[str, tuple[int, ...]], tuple[Tensor, bool]] = {}
    for place in _IMPL:
        impl = memory.u64(address + place) or 0
        data = memory.some(impl, _SEARCHED) if impl >= _LOWEST and impl % 8 == 0 else b""
        forms = (_form(memory, data, at) for at in range(_FIRST, len(data) - _FORM, 8))
        found |= {(one[0].dtype, one[0].shape): one for one in forms if one is not None}
    return next(iter(found.values())) if len(found) == 1 else None


def _form(memory: Memory, data: bytes, at: int) -> tuple[Tensor, bool] | None:
    (rank,) = struct.unpack_from("<Q", data, at)
    offset, count = struct.unpack_from("<qq", data, at + 8 + 16 * _INLINE)
    number, device, _, is_known = struct.unpack_from("<HBBB", data, at + _DTYPE)
    if rank > _MOST_RANK or number >= len(_DTYPES) or not 0 <= offset < _LARGEST:
        return None
    if device >= _MOST_DEVICES or is_known != 1:
        return None
    if rank <= _INLINE:
        shape = struct.unpack_from(f"<{rank}q", data, at + 8)
        strides = struct.unpack_from(f"<{rank}q", data, at + 8 + 8 * _INLINE)
    else:
        both = memory.exactly(struct.unpack_from("<Q", data, at + 8)[0], 16 * rank)
        if both is None:
            return None
        shape, strides = struct.unpack_from(f"<{rank}q", both), struct.unpack_from(f"<{rank}q", both, 8 * rank)
    if any(not 0 <= one < _LARGEST for one in (*shape, *strides)) or math.prod(shape) != count:
        return None
    return Tensor(_DTYPES[number], shape), _is_contiguous(shape, strides)


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """In any order of the dimensions: also as ``channels_last`` has them."""
    expected = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1):
        if stride != expected:
            return math.prod(shape) == 0
        expected *= size
    return True
