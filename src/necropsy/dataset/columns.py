"""One column of a dataset: its values are checked a batch at a time, and what is wrong is counted by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from necropsy.dataset.spec import Want
from necropsy.dataset.values import Extremes, extremes, finite_extremes, has_order, rounded, search, within

ROWS = 256
"""Small elements collected before they are checked together."""
LARGE = 32 << 10
"""Bytes from which an element is checked by itself."""
_SHOWN = 200


class Fault:
    """How many elements have this fault, and the first of them."""

    __slots__ = ("elements", "expected", "index", "position", "value")

    def __init__(self, index: int, position: tuple[int, ...] | None, value: str, expected: str | None) -> None:
        self.elements = 0
        self.index, self.position = index, position
        self.value, self.expected = value[:_SHOWN], expected


class Column:
    """The values at one path and their faults; memory: a batch of at most ``ROWS`` times ``LARGE`` bytes."""

    def __init__(self, path: str, bounds: tuple[float | None, float | None] = (None, None)) -> None:
        self.path = path
        self.bounds = bounds
        self.want: Want | None = None
        self.faults: dict[str, Fault] = {}
        self.elements = 0
        self.kind = "dense"
        self.dtype: str | None = None
        self.shape: tuple[int, ...] | None = None
        """Of the last correct element."""
        self.low: Any = None
        self.high: Any = None
        self._rounded: tuple[Any, tuple[float | None, float | None]] = (None, bounds)
        self._batch: Any = None
        self._rows = 0
        self._start = 0

    def fault(
        self,
        kind: str,
        index: int,
        value: str,
        *,
        position: tuple[int, ...] | None = None,
        expected: str | None = None,
        elements: int = 1,
    ) -> None:
        """Count elements that have this fault; the earliest is kept."""
        known = self.faults.get(kind)
        if known is None or index < known.index:
            fresh = Fault(index, position, value, expected)
            fresh.elements = known.elements if known is not None else 0
            self.faults[kind] = known = fresh
        known.elements += elements

    def add(self, array: Any, index: int) -> None:
        """The values of one element."""
        if array.nbytes > LARGE:
            self._check(array[None], index)
            return
        batch = self._batch
        if (
            batch is None
            or self._rows == len(batch)
            or index != self._start + self._rows
            or array.shape != batch.shape[1:]
            or array.dtype != batch.dtype
        ):
            self.flush()
            batch = self._batch
            if batch is None or array.shape != batch.shape[1:] or array.dtype != batch.dtype:
                if not array.size or not has_order(array.dtype):
                    return
                batch = self._batch = np.empty((ROWS, *array.shape), array.dtype)
            self._start = index
        # Copied, because a generator may fill the same array again.
        batch[self._rows] = array
        self._rows += 1

    def add_batch(self, batch: Any, index: int) -> None:
        """The values of several elements, the first of which is ``index``."""
        self._check(batch, index)

    def flush(self) -> None:
        """Check what was collected."""
        rows, self._rows = self._rows, 0
        if rows:
            self._check(self._batch[:rows], self._start)

    def _check(self, batch: Any, start: int) -> None:
        found = extremes(batch)
        if found is None:
            return
        dtype, bounds = self._rounded
        if dtype != batch.dtype:
            bounds = rounded(self.bounds, batch.dtype)
            self._rounded = batch.dtype, bounds
        if found.clean and within(found, bounds):
            self._widen(found)
            return
        inside = found if found.clean else finite_extremes(batch)
        if inside is not None:
            self._widen(inside)
        for kind, first in search(batch, bounds).items():
            expected = _range(self.bounds) if kind == "range" else None
            self.fault(
                kind,
                start + int(first.rows.argmax()),
                repr(first.value),
                position=first.position,
                expected=expected,
                elements=int(first.rows.sum()),
            )

    def _widen(self, found: Extremes) -> None:
        if self.low is None or found.low < self.low:
            self.low = found.low
        if self.high is None or found.high > self.high:
            self.high = found.high

    def report(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        self.flush()
        want = self.want
        faults: list[dict[str, Any]] = [
            {
                "kind": kind,
                "elements": one.elements,
                "index": one.index,
                "position": one.position,
                "value": one.value,
                "expected": one.expected,
            }
            for kind, one in sorted(self.faults.items(), key=lambda pair: pair[1].index)
        ]
        return {
            "path": self.path,
            "kind": want.kind if want is not None else self.kind,
            "dtype": want.dtype if want is not None else self.dtype,
            "shape": want.shape if want is not None else self.shape,
            "low": self.bounds[0],
            "high": self.bounds[1],
            "minimum": _plain(self.low),
            "maximum": _plain(self.high),
            "elements": self.elements,
            "faults": faults,
        }


def _plain(value: Any) -> Any:
    return None if value is None else int(value) if isinstance(value, (int, np.integer)) else float(value)


def _range(bounds: tuple[float | None, float | None]) -> str:
    low, high = bounds
    if low is None:
        return f"at most {high:g}"
    return f"at least {low:g}" if high is None else f"{low:g} to {high:g}"
