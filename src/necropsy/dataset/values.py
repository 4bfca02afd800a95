"""NaN, infinities and the range of an array's values, at nearly the speed of memory.

The minimum and maximum reveal all three, because both propagate NaN. They are taken by chunk, so that the second pass
reads from the cache. Affected elements and positions are searched for only if an array fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple, Optional, Tuple

import numpy as np

CHUNK = 512 << 10
"""Bytes."""
Bounds = Tuple[Optional[float], Optional[float]]


class First(NamedTuple):
    """The rows of a batch that are affected (a mask), and the first value in the first of them."""

    rows: Any
    position: tuple[int, ...]
    value: Any


class Extremes(NamedTuple):
    """The smallest and the largest value; ``clean``: neither is NaN or infinite."""

    low: Any
    high: Any
    clean: bool


def has_order(dtype: Any) -> bool:
    """Numbers and booleans have values that can be compared; strings, times and objects are left alone."""
    return dtype.kind in "biufc" or dtype.name == "bfloat16"


def pieces(array: Any) -> Iterator[Any]:
    """The array as one-dimensional chunks in any order; only what is not contiguous is copied, a chunk at a time."""
    if array.flags.c_contiguous or array.flags.f_contiguous:
        flat = array.reshape(-1) if array.flags.c_contiguous else array.T.reshape(-1)
        step = max(1, CHUNK // max(1, array.itemsize))
        if flat.size <= step:
            yield flat
            return
        for start in range(0, flat.size, step):
            yield flat[start : start + step]
        return
    step = max(1, CHUNK // max(1, array.nbytes // len(array)))
    for start in range(0, len(array), step):
        yield np.ascontiguousarray(array[start : start + step]).reshape(-1)


def extremes(array: Any) -> Extremes | None:
    """The smallest and largest value, both NaN if there is one; None without values or without an order."""
    if not array.size or not has_order(array.dtype):
        return None
    kind = array.dtype.kind
    if array.itemsize == 2 and (kind == "f" or array.dtype.name == "bfloat16"):
        return _of_half(array)
    minimum, maximum = np.minimum.reduce, np.maximum.reduce
    lows, highs = [], []
    for piece in pieces(array):
        view = piece
        if kind == "c":
            view = piece.view(np.empty(0, piece.dtype).real.dtype)
        elif kind == "b":
            view = piece.view(np.uint8)
        lows.append(minimum(view))
        highs.append(maximum(view))
    low = lows[0] if len(lows) == 1 else minimum(np.array(lows))
    high = highs[0] if len(highs) == 1 else maximum(np.array(highs))
    if kind in "biu":
        return Extremes(int(low), int(high), True)
    return Extremes(low, high, math.isfinite(low) and math.isfinite(high))


def finite_extremes(array: Any) -> Extremes | None:
    """The smallest and the largest of the finite values; None where there is none."""
    found = []
    for piece in pieces(array):
        values = _comparable(piece)
        values = values[np.isfinite(values)]
        if values.size:
            found += [values.min(), values.max()]
    return Extremes(min(found), max(found), True) if found else None


def _of_half(array: Any) -> Extremes:
    """Compares two-byte floats by their bits, some hundred times faster.

    The largest int16 is the largest positive number, the largest uint16 the most negative one. NaN and infinity have
    the largest exponents, so both show as an extreme.
    """
    infinity = 0x7F80 if array.dtype.name == "bfloat16" else 0x7C00
    maximum, minimum = np.maximum.reduce, np.minimum.reduce
    largest, most_negative, smallest_bits = -0x8000, 0, 0xFFFF
    for piece in pieces(array):
        bits = piece.view(np.uint16)
        largest = max(largest, int(maximum(piece.view(np.int16))))
        most_negative = max(most_negative, int(maximum(bits)))
        if largest < 0 or most_negative < 0x8000:  # of one sign so far: the end nearest to zero is needed too
            smallest_bits = min(smallest_bits, int(minimum(bits)))
    if largest > infinity or most_negative > 0x8000 | infinity:
        return Extremes(math.nan, math.nan, False)
    low = most_negative if most_negative >= 0x8000 else smallest_bits
    high = largest if largest >= 0 else smallest_bits
    of_bits = np.array([low, high], np.uint16).view(array.dtype).astype(np.float32)
    clean = largest != infinity and most_negative != 0x8000 | infinity
    return Extremes(of_bits[0], of_bits[1], clean)


def rounded(bounds: Bounds, dtype: Any) -> Bounds:
    """The bounds as numbers of this type: the float32 nearest to 0.1 is not above 0.1."""
    if dtype.kind not in "fc" and dtype.name != "bfloat16":
        return bounds
    real = np.float32 if dtype.name == "bfloat16" else np.empty(0, dtype).real.dtype.type

    def one(bound: float | None) -> float | None:
        if bound is None:
            return None
        with np.errstate(over="ignore"):
            value = np.float64(bound).astype(real)
        if dtype.name == "bfloat16":
            value = np.asarray(value).astype(dtype).astype(np.float32)[()]
        return float(value)

    return one(bounds[0]), one(bounds[1])


def within(found: Extremes, bounds: Bounds) -> bool:
    """No value is below the lower bound or above the upper one."""
    low, high = bounds
    return not ((low is not None and found.low < low) or (high is not None and found.high > high))


def search(batch: Any, bounds: Bounds) -> dict[str, First]:
    """Faults in a batch of elements (the first axis), by kind; infinities do not also count as out of range."""
    rows = len(batch)
    if rows == 1:
        return _search_one(batch, bounds)
    values = _comparable(batch)
    found = {}
    for kind, mask in _masks(values, bounds).items():
        flat = mask.reshape(rows, -1)
        affected = flat.any(axis=1)
        if affected.any():
            row = int(affected.argmax())
            found[kind] = _first(batch, values, affected, row, int(flat[row].argmax()))
    return found


def _search_one(batch: Any, bounds: Bounds) -> dict[str, First]:
    """One element, which may be large, chunk by chunk."""
    found: dict[str, First] = {}
    flat = batch.reshape(-1)
    step = max(1, CHUNK // batch.itemsize)
    affected = np.ones(1, bool)
    for start in range(0, flat.size, step):
        values = _comparable(flat[start : start + step])
        for kind, mask in _masks(values, bounds).items():
            if kind not in found and mask.any():
                at = int(mask.reshape(len(values), -1).any(axis=1).argmax())
                found[kind] = First(affected, _position(batch, start + at), _shown(flat[start + at]))
    return found


def _first(batch: Any, values: Any, affected: Any, row: int, at: int) -> First:
    if values.ndim > batch.ndim:
        at //= 2  # real and imaginary part
    return First(affected, _position(batch, at), _shown(batch[row].reshape(-1)[at]))


def _position(batch: Any, at: int) -> tuple[int, ...]:
    return tuple(int(one) for one in np.unravel_index(at, batch.shape[1:])) if batch.ndim > 1 else ()


def _shown(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) and value.dtype.kind in "biufc" else float(value)


def _comparable(array: Any) -> Any:
    """Complex numbers become pairs on a new axis; types NumPy cannot compare become float32."""
    if array.dtype.kind == "c":
        return np.stack((array.real, array.imag), axis=-1)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def _masks(values: Any, bounds: Bounds) -> dict[str, Any]:
    masks = {}
    finite = None
    if values.dtype.kind == "f":
        finite = np.isfinite(values)
        if not finite.all():
            masks["nan"] = np.isnan(values)
            masks["inf"] = ~finite & ~masks["nan"]
    low, high = bounds
    outside = None
    if low is not None:
        outside = values < low
    if high is not None:
        outside = values > high if outside is None else outside | (values > high)
    if outside is not None:
        masks["range"] = outside if finite is None else outside & finite
    return masks
