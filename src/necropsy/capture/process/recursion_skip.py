"""Recursions in code that has no unwind tables, as compilers make it at run time: followed to their end at once.

The caller of each such frame is found by a search. Where the same return addresses came at the same distances, four
times in a row, they are a recursion; as long as it goes on, no search is needed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import pairwise

from necropsy.capture.process.code_location import CodeLocation
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import Cursor, NativeStack

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
        """``found``, or where it belongs to a recursion the end of that, whose frames are added to ``out``.

        ``found`` itself is among them if it was not listed. ``high``: where the stack ends; where that is not known,
        nothing is followed. ``deadline``: monotonic, in seconds.
        """
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
