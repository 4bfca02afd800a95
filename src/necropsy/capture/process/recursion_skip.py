"""Skips recursions while a stack is unwound.

With unwind tables (``StackPeriod``): the expected content of the next window, the same return addresses at the same
distances, is compared column by column instead of following it frame by frame.

In code without tables, as run-time compilers make it, the caller of each frame is found by a search. The same return
addresses at the same distances, four times in a row, are a recursion; as long as it goes on, no search is needed.
"""

from __future__ import annotations

import math
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import sub

from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import Cursor, NativeStack
from necropsy.capture.process.thread_report import Folded, nameless
from necropsy.model import Fold, Stack

SURE = 2048
"""Frames that have to repeat before windows are compared."""
LONGEST = 64
"""Frames of the longest period that is looked for."""
_LOOK = 1 << 20
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
            if len(sizes) != 1 or not 0 < (size := sizes.pop()) <= _LOOK // _FEWEST:
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
        data = memory.some(start + found * period.size, _LOOK)
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


_SURE = 4
"""Times that a recursion has to be seen before it is followed."""
_LONGEST_PERIOD = 8
_WINDOW = 256 << 10
"""Bytes of a stack that are read at once."""
_AT_ONCE = 2048
"""Frames that are added at once."""


class RecursionSkip:
    """One stack's: what was found by searching so far."""

    def __init__(self, memory: Memory, place_of: Callable[[int], CodeLocation], *, word: int = 8) -> None:
        """``place_of`` says what stands at a return address of ``word`` bytes."""
        self._memory, self._place_of, self._word = memory, place_of, word
        self._found: list[tuple[int, int]] = []
        """Return addresses and stack pointers."""

    def beyond(self, out: NativeStack, found: Cursor, high: int | None, deadline: float = math.inf) -> Cursor:
        """``found``, or the end of its recursion up to ``high`` (None: not followed), added to ``out``."""
        pointer = found.registers["rsp"]
        self._found.append((found.registers["rip"], pointer))
        del self._found[: -_SURE * _LONGEST_PERIOD - 1]
        period = next((one for one in range(1, _LONGEST_PERIOD + 1) if self._repeats(one)), None)
        if period is None or high is None:
            return found
        unit = [(after[0], after[1] - before[1]) for before, after in pairwise(self._found[-period - 1 :])]
        words = [(following.to_bytes(self._word, "little"), following, size) for following, size in unit]
        rip, turn, listed = found.registers["rip"], 0, found.listed
        low, data = pointer, b""
        places: list[CodeLocation] = []
        pointers: list[int] = []
        while time.monotonic() <= deadline:
            word, following, size = words[turn]
            at = pointer - low
            if at + size > len(data):
                low, at = pointer, 0
                data = self._memory.some(low, max(min(max(_WINDOW, size), high - low), 0))
            if size <= 0 or data[at + size - self._word : at + size] != word:
                break
            if not listed:
                places.append(self._place_of(rip))
                pointers.append(pointer)
            listed = False
            rip, pointer, turn = following, pointer + size, (turn + 1) % period
            if len(places) >= _AT_ONCE:
                out.extend(places, pointers, "scan")
                places, pointers = [], []
        out.extend(places, pointers, "scan")
        if pointer != found.registers["rsp"]:
            out.recover(len(out), "scan")
            return Cursor({**found.registers, "rip": rip, "rsp": pointer}, listed=False)
        return found

    def _repeats(self, period: int) -> bool:
        """Whether the last frames came again and again after so many, with the same sizes."""
        last = self._found[-_SURE * period - 1 :]
        if len(last) <= _SURE * period:
            return False
        frames = [(after[0], after[1] - before[1]) for before, after in pairwise(last)]
        return frames[period:] == frames[:-period]


# The contents of a full stack that could not be unwound: return addresses that repeat are a recursion.
#
# Code without unwind tables and without frame pointers leaves nothing that leads from frame to frame. But each level of
# a recursion has pushed the same return addresses, and on a full stack there are very many levels.
FEWEST = 64
"""Levels: fewer may be chance."""
_MOST = 8 << 20
"""Bytes of the stack that are read, from its end."""
_LONGEST_RAW_PERIOD = 16
_EVEN = 0.9
"""Share of the levels that have to be equally large, where an address comes once in each."""


def recursion_in(
    memory: Memory, stack: Stack, is_return_address: Callable[[int], bool], place_of: Callable[[int], CodeLocation]
) -> tuple[Folded, ...]:
    """The recursion that fills more than half of ``stack``; nothing where no return address comes so often."""
    if stack.low is None or stack.high is None:
        return ()
    low = max(stack.low, stack.pointer or 0) + 7 & ~7
    data = memory.some(low, max(min(stack.high - low, _MOST), 0))
    words = array("Q", data[: len(data) & ~7])
    often = [(value, count) for value, count in Counter(words).most_common(_LONGEST_RAW_PERIOD * 8) if count >= FEWEST]
    first = next(((value, count) for value, count in often if is_return_address(value)), None)
    if first is None:
        return ()
    at = [index for index, value in enumerate(words) if value == first[0]]
    (distance, even), *_ = Counter(later - earlier for earlier, later in pairwise(at)).most_common(1)
    if even < _EVEN * (len(at) - 1) or even * distance * 16 < len(data):
        return ()
    # All addresses that come once at the same place of each level.
    level = words[at[len(at) // 2] : at[len(at) // 2] + distance]
    following = words[at[len(at) // 2] + distance : at[len(at) // 2] + 2 * distance]
    unit = [one for one, again in zip(level, following, strict=False) if one == again and is_return_address(one)]
    if not 0 < len(unit) <= _LONGEST_RAW_PERIOD:
        return ()
    places = [place_of(value) for value in unit]
    fold = Fold(
        period=len(unit),
        times=len(at),
        functions=tuple(place.function or nameless(place) for place in places),
        bytes_per_period=float(distance * 8),
        modules=tuple(place.module for place in places),
    )
    return (Folded(fold, 0),)
