"""A thread's stack as it was unwound, before it becomes frames of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from necropsy.capture.process.place import Place
from necropsy.model import Address, FoundBy, Frame

KEPT = 256
"""Frames kept at either end of a stack."""
LARGE_FRAME = 64 << 10
"""Bytes of one frame beyond which a frame pointer alone is not believed."""


class Window:
    """A piece of a stack as words; ``low`` and ``high`` are its bounds."""

    def __init__(self, data: bytes, low: int) -> None:
        whole = len(data) & ~7
        self.words = memoryview(data)[:whole].cast("Q")
        self.low, self.high = low, low + whole


@dataclass(frozen=True)
class At:
    """A frame to go on from.

    ``exact``: it stands at its program counter; otherwise that is where a call returns to. ``listed``: it is in the
    list of frames already.
    """

    registers: Mapping[str, int]
    exact: bool = False
    listed: bool = True


@dataclass
class Unwound:
    """A thread's whole stack, innermost first: per frame its place and its stack pointer."""

    places: list[Place] = field(default_factory=list)
    pointers: list[int] = field(default_factory=list)
    recovered: dict[int, FoundBy] = field(default_factory=dict)
    """How a frame was found that the unwinder did not find."""
    complete: bool = False
    why: str | None = None
    """Why it is not complete."""
    switched: set[int] = field(default_factory=set)
    """Frames whose caller's frame lies on another stack: the distance between the two is no size."""

    def __len__(self) -> int:
        return len(self.places)

    def add(self, places: Iterable[Place], pointer: int) -> None:
        """The frames at one program counter, those inlined there first."""
        before = len(self.places)
        self.places.extend(places)
        self.pointers.extend([pointer] * (len(self.places) - before))

    def stack_bytes(self, index: int) -> int | None:
        """The distance to the caller's frame; None for an inlined call, which has no frame of its own."""
        if self.places[index].inline or index + 1 >= len(self.pointers) or index in self.switched:
            return None
        size = self.pointers[index + 1] - self.pointers[index]
        return size if size >= 0 else None

    def left_at(self) -> tuple[int, ...]:
        """Where the stacks that were left for another one go on."""
        return tuple(self.pointers[index + 1] for index in sorted(self.switched) if index + 1 < len(self.pointers))

    def frame(self, index: int) -> Frame:
        """One frame as the model says it."""
        place = self.places[index]
        return Frame(
            index=index,
            kind="native",
            function=place.function,
            module=place.module,
            module_offset=None if place.offset is None else Address(place.offset),
            address=Address(place.pc),
            source=place.source,
            line=place.line,
            stack_bytes=self.stack_bytes(index),
            found_by=self._found_by(index),
        )

    def _found_by(self, index: int) -> FoundBy:
        if index in self.recovered:
            return self.recovered[index]
        if index == 0 or (self.places[index - 1].inline and self.pointers[index] == self.pointers[0]):
            return "registers"
        callee = self.places[index - 1]
        return "cfi" if callee.unwinds is not False and callee.module is not None else "frame-pointer"

    def kept(self) -> tuple[Frame, ...]:
        """The first and the last ``KEPT`` frames."""
        total = len(self)
        if total <= 2 * KEPT:
            return tuple(self.frame(index) for index in range(total))
        ends = (*range(KEPT), *range(total - KEPT, total))
        return tuple(self.frame(index) for index in ends)

    def largest(self, count: int = 5) -> tuple[Frame, ...]:
        """The frames with the most stack bytes, largest first."""
        sizes = [after - before for before, after in pairwise(self.pointers)]
        for index in self.switched & set(range(len(sizes))):
            sizes[index] = 0
        best: list[int] = []
        for size in sorted(set(sizes), reverse=True)[:count]:
            at = -1
            while size > 0 and len(best) < count:
                try:
                    at = sizes.index(size, at + 1)
                except ValueError:
                    break
                best.append(at)
        return tuple(self.frame(index) for index in best)

    def distinct(self) -> Iterator[Place]:
        """Each place once, in the order of its innermost frame."""
        return iter(dict.fromkeys(self.places))
