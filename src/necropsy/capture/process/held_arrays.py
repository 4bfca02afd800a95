"""Arrays and tensors that the variables of a running Python function hold: dtype, shape and bytes, never contents."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from necropsy.model import Argument, HeldArray, PythonPlace

MOST = 6
_SIZES = {
    "bool": 1,
    "bfloat16": 2,
    "longlong": 8,
    "ulonglong": 8,
    "longdouble": 16,
    "clongdouble": 32,
    "object": 8,
    "datetime64": 8,
    "timedelta64": 8,
}
_SIZED = re.compile(r"(?:q?u?int|float|complex)(\d{1,3})")
"""Types whose name has the size of one element, in bits."""
_LARGEST = 1 << 47
"""The address space of a process: what is larger shows the same memory again and again, or was misread."""


class Running(NamedTuple):
    """Where a process is, and what the function there holds."""

    place: PythonPlace
    arrays: tuple[HeldArray, ...] = ()


def held(found: Iterable[Argument]) -> tuple[HeldArray, ...]:
    """Those of these variables that are arrays, largest first."""
    return tuple(sorted(_arrays(found), key=lambda one: (-(one.bytes or 0), one.name)))


def _arrays(found: Iterable[Argument]) -> Iterator[HeldArray]:
    for one in found:
        if one.shape is None or one.dtype is None:
            continue
        size = _size_of(one.dtype)
        octets = size * math.prod(one.shape) if size is not None else None
        if octets is None or octets <= _LARGEST:
            yield HeldArray(name=one.name, type=one.type, dtype=one.dtype, shape=one.shape, bytes=octets)


def _size_of(dtype: str) -> int | None:
    if dtype in _SIZES:
        return _SIZES[dtype]
    bits = _SIZED.fullmatch(dtype)
    return int(bits[1]) // 8 if bits is not None and int(bits[1]) % 8 == 0 else None
