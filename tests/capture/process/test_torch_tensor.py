"""PyTorch's tensors by the bytes that its release 2.13 left in memory, and by those of the form before it."""

from __future__ import annotations

import math
import struct

import pytest

from necropsy.capture.process import torch_tensor
from necropsy.capture.process.eager_tensor import Tensor
from necropsy.capture.process.memory import Memory

OBJECT, IMPL, BOTH = 0x7FF100000000, 0x7FF200000000, 0x7FF300000000
HEAD = (0x7FF1503E6B60, 0x8000000100000001, 0x5644E64ABCE0, 0, 0, 0x5644E64A7CA0, 0x7FF150A20EB0)
BEHIND = (0x9400010001, 0x7FF1508DA340, 0x21, 0x665F3A3A6E657461, 0x6D5F68636165726F, 0x7FF136B0006D, 0x21)
FLOAT32, INT64, BOOL = 6, 4, 11
NAMES = {FLOAT32: "float32", INT64: "int64", BOOL: "bool"}
ON_CPU = 0x1FF00 << 16
"""The device after the dtype: CPU, no index, and that there is one."""


class Bytes(Memory):
    """What lies at a few addresses."""

    def __init__(self, **kept: bytes) -> None:
        self._kept = {OBJECT: kept["object"], IMPL: kept["impl"], BOTH: kept.get("both", b"")}

    def some(self, address: int, size: int) -> bytes:
        for start, data in self._kept.items():
            if start <= address < start + len(data):
                return data[address - start :][:size]
        return b""


def memory(
    shape: tuple[int, ...], strides: tuple[int, ...], dtype: int, *, count: int, is_borrowed: int | None = None
) -> Bytes:
    flag = () if is_borrowed is None else (is_borrowed,)
    both = struct.pack(f"<{2 * len(shape)}q", *shape, *strides)
    if len(shape) <= 5:
        pad = [0] * (5 - len(shape))
        sizes = struct.pack("<10q", *shape, *pad, *strides, *pad)
    else:
        sizes = struct.pack("<10Q", BOTH, *[0] * 9)
    form = struct.pack("<Q", len(shape)) + sizes + struct.pack("<qqQ", 0, count, ON_CPU | dtype)
    impl = struct.pack("<7Q", *HEAD) + form + struct.pack("<7Q", *BEHIND)
    return Bytes(object=struct.pack(f"<{4 + len(flag)}Q", 1, 0x5644E4B74740, *flag, IMPL, 0), impl=impl, both=both)


CASES = [
    ((2, 3, 4), (12, 4, 1), FLOAT32, True),
    ((0, 4), (4, 1), INT64, True),
    ((4, 4), (16, 2), FLOAT32, False),
    ((2, 3, 4, 5), (60, 1, 15, 3), FLOAT32, True),  # channels_last
    ((1, 2, 3, 4, 5, 6), (720, 360, 120, 30, 6, 1), BOOL, True),
    ((), (), INT64, True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("is_borrowed", [None, 0, 1])
def test_dtype_and_shape(case: tuple[tuple[int, ...], tuple[int, ...], int, bool], is_borrowed: int | None) -> None:
    shape, strides, dtype, is_contiguous = case
    kept = memory(shape, strides, dtype, count=math.prod(shape), is_borrowed=is_borrowed)
    assert torch_tensor.tensor_of(kept, OBJECT) == (Tensor(NAMES[dtype], shape), is_contiguous)


def test_what_does_not_fit_is_not_told() -> None:
    assert torch_tensor.tensor_of(memory((2, 3), (3, 1), FLOAT32, count=7), OBJECT) is None
    assert torch_tensor.tensor_of(memory((2, 3), (3, 1), 99, count=6), OBJECT) is None
    assert torch_tensor.tensor_of(Bytes(object=b"\xff" * 64, impl=b""), OBJECT) is None
