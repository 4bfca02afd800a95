"""What lies on a full stack that could not be unwound: return addresses that come again and again are a recursion.

Code without unwind tables and without frame pointers leaves nothing that leads from frame to frame. But each level of a
recursion has pushed the same return addresses, and on a full stack there are very many levels.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

from necropsy.capture.process.code_location import CodeLocation
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.recursion_folds import Folded, nameless
from necropsy.model import Fold, Stack

FEWEST = 64
"""Levels: fewer may be chance."""
_MOST = 8 << 20
"""Bytes of the stack that are read, from its end."""
_LONGEST_PERIOD = 16
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
    often = [(value, count) for value, count in Counter(words).most_common(_LONGEST_PERIOD * 8) if count >= FEWEST]
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
    if not 0 < len(unit) <= _LONGEST_PERIOD:
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
