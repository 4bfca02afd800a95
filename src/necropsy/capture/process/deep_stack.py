"""What is kept of a stack that is too deep to be kept whole: its two ends, and counts of the rest.

Its size does not grow with the stack: a recursion may have a hundred million frames, and the reader's memory counts
against the program's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import sub
from typing import Generic, TypeVar

from necropsy.capture.process.python_stacks import EVALUATOR, MOST_FRAMES
from necropsy.formats.fold import Folder, RepeatedRun

HEAD = 2048
TAIL = 1024
"""Frames kept at the inner and the outer end."""
AT_ONCE = 4096
"""Frames that are taken together."""
_MOST_PLACES = 20_000
"""Places that are remembered one by one: a program stands on its stack at hundreds, a generated one at any number."""
_OTHER = chr(0x10FFFF)
"""The letter of all functions beyond that."""
_LARGEST = 8

T = TypeVar("T")


class StackEnds(Generic[T]):
    """A list that forgets its middle: the first ``HEAD`` items, and at least the last ``TAIL``."""

    def __init__(self, items: Iterable[T] = ()) -> None:
        self.head: list[T] = []
        self.tail: list[T] = []
        self.dropped = 0
        """How many were forgotten."""
        self.extend(list(items))

    def __len__(self) -> int:
        return len(self.head) + self.dropped + len(self.tail)

    def __iter__(self) -> Iterator[T]:
        """Those that are kept."""
        yield from self.head
        yield from self.tail

    def __getitem__(self, index: int) -> T:
        """Raises IndexError: there is none, or it was forgotten."""
        at = index + len(self) if index < 0 else index
        if 0 <= at < len(self.head):
            return self.head[at]
        at -= len(self.head) + self.dropped
        if at < 0:
            raise IndexError(f"item {index} was not kept")
        return self.tail[at]

    def first(self, count: int) -> list[T]:
        """The first ``count`` of them, ``HEAD`` at the most."""
        return self.head[:count]

    def since(self, index: int) -> list[T]:
        """All from ``index`` on; none of them is forgotten yet."""
        if index < len(self.head):
            return self.head[index:] + self.tail
        return self.tail[index - len(self.head) - self.dropped :]

    def keeps(self, index: int) -> bool:
        """Whether it is there and was not forgotten."""
        return 0 <= index < len(self.head) or len(self.head) + self.dropped <= index < len(self)

    def append(self, item: T) -> None:
        """One more."""
        (self.tail if self.tail or len(self.head) >= HEAD else self.head).append(item)

    def extend(self, items: Sequence[T]) -> None:
        """More of them."""
        room = 0 if self.tail else max(HEAD - len(self.head), 0)
        self.head.extend(items[:room])
        self.tail.extend(items[room:])

    def forget(self) -> None:
        """All but the ends."""
        passed = max(len(self.tail) - TAIL, 0)
        del self.tail[:passed]
        self.dropped += passed


class DepthCounts:
    """What is counted of a stack while it is unwound: folds, the largest frames, where each function came first."""

    def __init__(self) -> None:
        self.fed = 0
        """Frames so far."""
        self.first: dict[CodeLocation, tuple[int, int]] = {}
        """Index and stack pointer of the innermost frame at each place."""
        self.evaluators: list[int] = []
        """The innermost frames in which CPython evaluates Python code; as many as Python frames are read."""
        self.largest: list[tuple[int, int, CodeLocation, CodeLocation | None]] = []
        """``(-size, index, place, place of the callee)`` of the frames with the most bytes, largest first."""
        self._folder = Folder()
        self._letters: dict[CodeLocation, str] = {}
        self._keys: dict[object, str] = {}
        self._place_of: dict[str, CodeLocation] = {}
        self._evaluating: set[CodeLocation] = set()
        self._last: tuple[CodeLocation | None, CodeLocation, int] | None = None
        """Of the last frame: its callee's place, its own, its pointer."""

    def feed(self, places: list[CodeLocation], pointers: list[int]) -> None:
        """The next frames."""
        if not places:
            return
        letters = self._letters
        if len(letters) < _MOST_PLACES:
            for place in dict.fromkeys(places) if not letters else set(places).difference(letters):
                at = places.index(place)
                self._learn(place, self.fed + at, pointers[at])
        try:
            text = "".join(map(letters.__getitem__, places))
        except KeyError:
            text = "".join([letters.get(place, _OTHER) for place in places])
        self._folder.feed(text, pointers)
        if self._evaluating and len(self.evaluators) <= MOST_FRAMES:
            found = [self.fed + at for at, place in enumerate(places) if place in self._evaluating]
            self.evaluators += found[: MOST_FRAMES + 1 - len(self.evaluators)]
        self._measure(places, pointers)
        self.fed += len(places)

    def _learn(self, place: CodeLocation, index: int, pointer: int) -> None:
        if len(self._letters) >= _MOST_PLACES:
            return
        self.first[place] = index, pointer
        key = place.function or (place.module, place.pc)
        letter = self._keys.get(key)
        if letter is None:
            letter = self._keys[key] = chr(len(self._keys) + 1)
            self._place_of[letter] = place
        self._letters[place] = letter
        if (place.function or "").startswith(EVALUATOR) and not place.inline:
            self._evaluating.add(place)

    def _measure(self, places: list[CodeLocation], pointers: list[int]) -> None:
        """Note the largest of these frames and of the one before; the last one's size is not known yet."""
        start = self.fed
        callee: CodeLocation | None = None
        if self._last is not None:
            callee, last, pointer = self._last
            places, pointers = [last, *places], [pointer, *pointers]
            start -= 1
        least = -self.largest[-1][0] if len(self.largest) >= _LARGEST else 0
        if max(map(sub, islice(pointers, 1, None), pointers), default=0) > least:
            sizes = list(map(sub, pointers[1:], pointers))
            for at in sorted((at for at, size in enumerate(sizes) if size > least), key=lambda at: (-sizes[at], at))[
                :_LARGEST
            ]:
                self.largest.append((-sizes[at], start + at, places[at], places[at - 1] if at else callee))
            self.largest = sorted(self.largest, key=lambda one: one[:2])[:_LARGEST]
        self._last = places[-2] if len(places) > 1 else callee, places[-1], pointers[-1]

    def goes_on(self, count: int) -> bool:
        """Whether the last frames are folded, by a period that divides ``count``."""
        return self._folder.goes_on(count)

    def repeat(self, places: list[CodeLocation], times: int, size: int) -> None:
        """The last frames, at ``places``, come ``times`` more times, ``size`` bytes higher each; ``goes_on`` holds."""
        count = len(places)
        offsets = [at for at, place in enumerate(places) if place in self._evaluating]
        for turn in range(times if offsets else 0):
            if len(self.evaluators) > MOST_FRAMES:
                break
            self.evaluators += [self.fed + turn * count + at for at in offsets]
        del self.evaluators[MOST_FRAMES + 1 :]
        self._folder.repeat(count, times, size)
        if self._last is not None:
            self._last = *self._last[:2], self._last[2] + times * size
        self.fed += count * times

    def runs(self) -> tuple[RepeatedRun, ...]:
        """The folds, the one that covers most frames first; nothing may be fed after it."""
        return self._folder.runs()

    def unit(self, run: RepeatedRun) -> list[CodeLocation]:
        """The places of one period."""
        return [self._place_of[letter] for letter in run.letters if letter in self._place_of]


@dataclass(frozen=True, eq=False)
class CodeLocation:
    """What is known of one program counter: shared by all frames at it."""

    pc: int
    function: str | None
    module: str | None
    offset: int | None
    source: str | None = None
    line: int | None = None
    executable: bool = True
    inline: bool = False
    unwinds: bool | None = None
    """Whether the module's unwind tables cover it; None where that is not known."""
