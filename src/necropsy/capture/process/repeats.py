"""Recursions in code that has no unwind tables, as compilers make it at run time: followed to their end at once.

The caller of each such frame is found by a search. Where the same return addresses came at the same distances, four
times in a row, they are a recursion; as long as it goes on, no search is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from necropsy.capture.process.memory import Memory
from necropsy.capture.process.place import Place
from necropsy.capture.process.unwound import At, Unwound

_SURE = 4
"""Times that a recursion has to be seen before it is followed."""
_LONGEST_PERIOD = 8


class Repeats:
    """One stack's: what was found by searching so far."""

    def __init__(self, memory: Memory, place_of: Callable[[int], Place], *, word: int = 8) -> None:
        """``place_of`` says what stands at a return address of ``word`` bytes."""
        self._memory, self._place_of, self._word = memory, place_of, word
        self._found: list[tuple[int, int]] = []
        """Return addresses and stack pointers."""

    def beyond(self, out: Unwound, found: At, high: int | None) -> At:
        """``found``, or where it belongs to a recursion the end of that, whose frames are added to ``out``.

        ``high``: where the stack ends; where that is not known, nothing is followed.
        """
        pointer = found.registers["rsp"]
        self._found.append((found.registers["rip"], pointer))
        period = next((one for one in range(1, _LONGEST_PERIOD + 1) if self._repeats(one)), None)
        if period is None or high is None:
            return found
        unit = [(after[0], after[1] - before[1]) for before, after in pairwise(self._found[-period - 1 :])]
        words = [(following.to_bytes(self._word, "little"), following, size) for following, size in unit]
        data = self._memory.some(pointer, max(high - pointer, 0))
        rip, at, turn = found.registers["rip"], 0, 0
        while True:
            word, following, size = words[turn]
            if size <= 0 or data[at + size - self._word : at + size] != word:
                break
            out.places.append(self._place_of(rip))
            out.pointers.append(pointer + at)
            out.recovered[len(out.places)] = "scan"
            rip, at, turn = following, at + size, (turn + 1) % period
        return At({**found.registers, "rip": rip, "rsp": pointer + at}, listed=False)

    def _repeats(self, period: int) -> bool:
        """Whether the last frames came again and again after so many, with the same sizes."""
        last = self._found[-_SURE * period - 1 :]
        if len(last) <= _SURE * period:
            return False
        frames = [(after[0], after[1] - before[1]) for before, after in pairwise(last)]
        return frames[period:] == frames[:-period]
