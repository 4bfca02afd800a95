"""Where a stack repeats: the same return addresses at the same distances, thousands of frames long.

The expected content of the next window is compared column by column instead of following it frame by frame: every
return address, and every frame pointer where it matters.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from operator import sub

from necropsy.capture.process.memory import Memory

SURE = 2048
"""Frames that have to repeat before windows are compared."""
LONGEST = 64
"""Frames of the longest period that is looked for."""
_WINDOW = 1 << 20
"""Bytes that are compared at once."""
_FEWEST = 4
"""Periods in a window; where there are fewer, frame by frame is as good."""


@dataclass(frozen=True)
class SavedRegisters:
    """Where the frame pointer is saved in one period, and its value.

    ``at``: bytes above the last frame's stack pointer, in the next period; ``value``: of the last one; ``grows``: by
    how much with each period.
    """

    at: int
    value: int
    grows: int


@dataclass(frozen=True)
class PeriodUnit:
    """One period: the return addresses, how far each lies above the last frame's, and how many bytes it takes."""

    pcs: tuple[int, ...]
    offsets: tuple[int, ...]
    size: int


class StackPeriod:
    """The last frames of one stack."""

    def __init__(self) -> None:
        self._pcs: list[int] = []
        self._pointers: list[int] = []

    def add(self, pcs: list[int], pointers: list[int]) -> None:
        """More frames: their return addresses, and the stack pointers after returning there."""
        self._pcs = (self._pcs + pcs[-SURE - LONGEST :])[-SURE - LONGEST :]
        self._pointers = (self._pointers + pointers[-SURE - LONGEST :])[-SURE - LONGEST :]

    def clear(self) -> None:
        """Begin anew."""
        self._pcs, self._pointers = [], []

    def unit(self) -> PeriodUnit | None:
        """The period, where the last ``SURE`` frames repeat."""
        pcs, pointers = self._pcs, self._pointers
        if len(pcs) < SURE + LONGEST:
            return None
        for period in range(1, LONGEST + 1):
            near = pcs[-period - 1] == pcs[-1] and pcs[-2 * LONGEST : -period] == pcs[-2 * LONGEST + period :]
            if not near or pcs[-SURE:] != pcs[-SURE - period : -period]:
                continue
            sizes = set(map(sub, pointers[-SURE:], pointers[-SURE - period : -period]))
            if len(sizes) != 1 or not 0 < (size := sizes.pop()) <= _WINDOW // _FEWEST:
                return None
            before = pointers[-period - 1]
            return PeriodUnit(tuple(pcs[-period:]), tuple(pointer - before for pointer in pointers[-period:]), size)
        return None


@dataclass(frozen=True)
class Period:
    """What the memory of the next periods holds: words at a distance from the stack pointer, every ``size`` bytes.

    ``returns``: where the return addresses are, and which; ``mask``: those of their bits that are compared, where
    processors may sign them.
    """

    size: int
    returns: Sequence[tuple[int, int]]
    saved: Sequence[SavedRegisters]
    mask: int | None = None


def times(memory: Memory, start: int, period: Period, deadline: float) -> int:
    """How often the period is repeated from the stack pointer ``start`` on, as far as compared by ``deadline``."""
    words_each = period.size // 8
    found, columns = 0, _Columns(0, period)
    while time.monotonic() <= deadline:
        data = memory.some(start + found * period.size, _WINDOW)
        count = len(data) // period.size
        if not count:
            break
        if columns.count != count:
            columns = _Columns(count, period)
        words = memoryview(data)[: count * period.size].cast("Q")
        same = count
        for (at, pc), expected in zip(period.returns, columns.pcs, strict=True):
            column = words[at // 8 :: words_each]
            same = min(same, _same(column, expected) if columns.masks is None else columns.same_below_mask(column, pc))
        for one, rising in zip(period.saved, columns.rising, strict=True):
            same = min(same, rising.same(words[one.at // 8 :: words_each], one.value + one.grows * (found + 1)))
        found += same
        if same < count:
            break
    return found


class _Columns:
    """The expected content of a window of ``count`` periods."""

    def __init__(self, count: int, period: Period) -> None:
        self.count = count
        self.pcs = tuple(memoryview(array("Q", (pc,)) * count) for _, pc in period.returns)
        self.rising = tuple(_Rising(count, one.grows) for one in period.saved)
        self.masks = None if period.mask is None else _number(memoryview(array("Q", (period.mask,)) * count))
        self._mask = period.mask or 0

    def same_below_mask(self, column: memoryview, pc: int) -> int:
        """How many words from the beginning are ``pc`` where the mask looks."""
        expected = next(one for one in self.pcs if one[0] == pc)
        if self.masks is not None and _number(column) & self.masks == _number(expected):
            return len(column)
        return next((at for at, word in enumerate(column) if word & self._mask != pc), len(column))


def _number(column: memoryview) -> int:
    """The words as one long number, of which all are compared at once."""
    return int.from_bytes(column.tobytes(), "little")


class _Rising:
    """A column of words that grows by the same number each time, compared as one long number."""

    def __init__(self, count: int, step: int) -> None:
        self._step = step
        self._ones = int.from_bytes((1).to_bytes(8, "little") * count, "little")
        steps = range(0, count * step, step) if step else [0] * count
        self._steps = _number(memoryview(array("Q", steps)))

    def same(self, column: memoryview, first: int) -> int:
        """How many words from the beginning are as expected, where the first one must be ``first``."""
        if _number(column) == first * self._ones + self._steps:
            return len(column)
        return next((at for at, word in enumerate(column) if word != first + at * self._step), len(column))


def _same(column: memoryview, expected: memoryview) -> int:
    if column == expected:
        return len(column)
    low, high = 0, len(column)
    while high - low > 1:
        middle = (low + high) // 2
        if column[low:middle] == expected[low:middle]:
            low = middle
        else:
            high = middle
    return low
