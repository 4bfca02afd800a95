"""A thread's stack as it was unwound, before it becomes frames of the model."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from necropsy.capture.process.deep_stack import AT_ONCE, TAIL, CodeLocation, DepthCounts, StackEnds
from necropsy.capture.process.memory import Memory
from necropsy.formats.fold import RepeatedRun
from necropsy.model import Address, FoundBy, Frame

KEPT = 256
"""Frames told of at either end of a stack."""
LARGE_FRAME = 64 << 10
"""Bytes of one frame beyond which a frame pointer alone is not believed."""


class StackMemory:
    """A piece of a stack as words; ``low`` and ``high`` are its bounds."""

    def __init__(self, data: bytes, low: int) -> None:
        whole = len(data) & ~7
        self.words = array("Q", data if whole == len(data) else data[:whole])
        self.low, self.high = low, low + whole


@dataclass(frozen=True)
class Cursor:
    """A frame to go on from; ``exact``: interrupted at its program counter, not returned to; ``listed`` already."""

    registers: Mapping[str, int]
    exact: bool = False
    listed: bool = True


@dataclass(frozen=True)
class Stay:
    """The frames of a thread on one of several stacks: the first and the last one's index, the last one's place.

    ``pointer`` is the last one's; ``following`` that of the frame after it, or None; ``recovered``: that one was not
    found by the unwinder.
    """

    first: int
    end: int
    place: CodeLocation
    pointer: int
    following: int | None = None
    recovered: bool = False


@dataclass(frozen=True)
class KernelFrame:
    """A frame of a kernel's ``Compute``: the class, and the memory in which the kernel's address may be, in bytes."""

    kernel: str
    low: int
    high: int


class NativeStack:
    """A thread's whole stack, innermost first: places and stack pointers; ``DepthCounts`` for a deep one's middle."""

    def __init__(self, places: Iterable[CodeLocation] = (), pointers: Iterable[int] = ()) -> None:
        self.places: StackEnds[CodeLocation] = StackEnds(places)
        self.pointers: StackEnds[int] = StackEnds(pointers)
        self.recovered: dict[int, FoundBy] = {}
        """How a frame was found that the unwinder did not find; of frames that are kept."""
        self.guesses: set[FoundBy] = set()
        """All the ways in which any frame was."""
        self.complete = False
        self.plain = False
        """By the stack pointer alone it was followed to its first frame: the return addresses on it decide all."""
        self.why: str | None = None
        """Why it is not complete."""
        self.switched: set[int] = set()
        """Frames whose caller's frame lies on another stack: the distance between the two is no size."""
        self.outer: NativeStack | None = None
        """The outer end of it, where the frames between the two were not read."""
        self.estimate: int | None = None
        """About how many frames it has, where not all were read."""
        self._stay: Stay | None = None
        self._watched: tuple[int, int] | None = None
        self._depths = DepthCounts()
        self._runs: tuple[RepeatedRun, ...] | None = None

    def __len__(self) -> int:
        return len(self.places)

    def told(self) -> int:
        """How many frames were read, those of the outer end among them."""
        return len(self) + (len(self.outer) if self.outer is not None else 0)

    def recover(self, index: int, found_by: FoundBy) -> None:
        """The frame at ``index`` was found so."""
        self.recovered[index] = found_by
        self.guesses.add(found_by)

    def add(self, places: Sequence[CodeLocation], pointer: int) -> None:
        """The frames at one program counter, those inlined there first."""
        self.extend(places, [pointer] * len(places))

    def extend(self, places: Sequence[CodeLocation], pointers: Sequence[int], found_by: FoundBy | None = None) -> None:
        """More frames, and their stack pointers; ``found_by`` says how, where it was not the unwinder."""
        if found_by is not None:
            self.recovered.update(dict.fromkeys(range(len(self), len(self) + len(places)), found_by))
            self.guesses.add(found_by)
        self.places.extend(places)
        self.pointers.extend(pointers)
        if len(self.places.tail) >= TAIL + AT_ONCE:
            self._forget()

    def _forget(self) -> None:
        self._feed()
        self.places.forget()
        self.pointers.forget()
        if len(self.recovered) > TAIL:
            self.recovered = {index: how for index, how in self.recovered.items() if self.places.keeps(index)}

    def _feed(self) -> None:
        fed = self._depths.fed
        places, pointers = self.places.since(fed), self.pointers.since(fed)
        if self._watched is not None:
            self._look(fed, pointers)
        self._depths.feed(places, pointers)

    def may_repeat(self, count: int) -> bool:
        """Whether ``repeat`` may be called with this ``count``: the last ``TAIL`` frames are kept, and are folded."""
        self._feed()
        return len(self.places.tail) >= TAIL and self._depths.goes_on(count)

    def repeat(self, count: int, times: int, size: int) -> None:
        """Add the last ``count`` frames ``times`` more times, ``size`` bytes apart; needs ``may_repeat``."""
        self._forget()
        self._depths.repeat(self.places.tail[-count:], times, size)
        self.pointers.tail = [one + times * size for one in self.pointers.tail]
        self.places.dropped += count * times
        self.pointers.dropped += count * times

    def outermost(self, count: int) -> list[CodeLocation]:
        """The places of the last frames."""
        return [self.places[index] for index in range(max(len(self) - count, 0), len(self))]

    # ------------------------------------------------------------ on one stack among others

    def watch(self, low: int, high: int) -> None:
        """Note in ``stay`` which frames lie in this memory; before the first frame is added."""
        self._watched = low, high

    @property
    def stay(self) -> Stay | None:
        """The first frames that lie in the memory that was asked for by ``watch``."""
        self._feed()
        return self._stay

    def _look(self, fed: int, pointers: list[int]) -> None:
        low, high = self._watched or (0, 0)
        for index, pointer in enumerate(pointers, fed):
            inside, stay = low <= pointer < high, self._stay
            if inside:
                self._stay = Stay(index if stay is None else stay.first, index, self.places[index], pointer)
            elif stay is not None:
                self._stay = replace(stay, following=pointer, recovered=index in self.recovered)
                self._watched = None
                return

    # ------------------------------------------------------------ as the model says it

    def stack_bytes(self, index: int) -> int | None:
        """The distance to the caller's frame; None for an inlined call, which has no frame of its own."""
        if self.places[index].inline or index + 1 >= len(self.pointers) or index in self.switched:
            return None
        size = self.pointers[index + 1] - self.pointers[index]
        return size if size >= 0 else None

    def left_at(self) -> tuple[int, ...]:
        """Where the stacks that were left for another one go on."""
        stay = self.stay
        return (
            (stay.following,) if stay is not None and stay.following is not None and stay.end in self.switched else ()
        )

    def frame(self, index: int) -> Frame:
        """One frame as the model says it. Raises IndexError where it was not kept."""
        place = self.places[index]
        callee = self.places[index - 1] if index and self.places.keeps(index - 1) else None
        at_first = bool(index) and self.pointers[index] == self.pointers[0]
        return self._frame(index, place, self.stack_bytes(index), self._found_by(index, callee, at_first=at_first))

    @staticmethod
    def _frame(index: int, place: CodeLocation, size: int | None, found_by: FoundBy | None) -> Frame:
        return Frame(
            index=index,
            kind="native",
            function=place.function,
            module=place.module,
            module_offset=None if place.offset is None else Address(place.offset),
            address=Address(place.pc),
            source=place.source,
            line=place.line,
            stack_bytes=size,
            found_by=found_by,
        )

    def _found_by(self, index: int, callee: CodeLocation | None, *, at_first: bool) -> FoundBy | None:
        if index in self.recovered:
            return self.recovered[index]
        if index == 0 or (callee is not None and callee.inline and at_first):
            return "registers"
        if callee is None:
            return None
        return "cfi" if callee.unwinds is not False and callee.module is not None else "frame-pointer"

    def kept(self) -> tuple[Frame, ...]:
        """The first and the last ``KEPT`` frames."""
        total = len(self)
        if self.outer is not None:
            inner = tuple(self.frame(index) for index in range(min(total, KEPT)))
            outer = self.outer.kept()[-KEPT:]
            return inner + tuple(msgspec.structs.replace(frame, index=frame.index + total) for frame in outer)
        if total <= 2 * KEPT:
            return tuple(self.frame(index) for index in range(total))
        ends = (*range(KEPT), *range(total - KEPT, total))
        return tuple(self.frame(index) for index in ends)

    def largest(self, count: int = 5) -> tuple[Frame, ...]:
        """The frames with the most stack bytes, largest first."""
        self._feed()
        found = [one for one in self._depths.largest if one[1] not in self.switched and one[0] < 0]
        return tuple(
            self.frame(index)
            if self.places.keeps(index) and self.places.keeps(index + 1)
            else self._frame(index, place, -size, self._found_by(index, callee, at_first=False))
            for size, index, place, callee in found[:count]
        )

    def distinct(self) -> Iterator[CodeLocation]:
        """Each place once, in the order of its innermost frame."""
        self._feed()
        return iter(sorted(self._depths.first, key=lambda place: self._depths.first[place][0]))

    def first_at(self, place: CodeLocation) -> tuple[int, int]:
        """Index and stack pointer of the innermost frame at a place of ``distinct``."""
        self._feed()
        return self._depths.first[place]

    def evaluators(self) -> list[int]:
        """The innermost frames in which CPython evaluates Python code, as many as there are Python frames at most."""
        self._feed()
        return self._depths.evaluators

    def runs(self) -> tuple[RepeatedRun, ...]:
        """Its folds, the one that covers most frames first; no frames may be added after it."""
        if self._runs is None:
            self._feed()
            self._runs = self._depths.runs()
        return self._runs

    def unit(self, run: RepeatedRun) -> list[CodeLocation]:
        """The places of one period of a fold."""
        if all(self.places.keeps(index) for index in run.unit):
            return [self.places[index] for index in run.unit]
        return self._depths.unit(run)


def call_target(memory: Memory, value: int) -> int | None:
    """The target of the direct call (x86-64) in front of the return address ``value``; None if it is no such call."""
    code = memory.exactly(value - 5, 5)
    return value + int.from_bytes(code[1:], "little", signed=True) if code is not None and code[0] == 0xE8 else None
