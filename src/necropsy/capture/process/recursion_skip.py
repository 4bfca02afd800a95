"""Skips recursions in code that has no unwind tables, as run-time compilers make it.

The caller of each such frame is found by a search. The same return addresses at the same distances, four times in a
row, are a recursion; as long as it goes on, no search is needed.
"""

from __future__ import annotations

import math
import time
from array import array
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import Cursor, NativeStack
from necropsy.capture.process.thread_report import Folded, nameless
from necropsy.model import Fold, Stack

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
