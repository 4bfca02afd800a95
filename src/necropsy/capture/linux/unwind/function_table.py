"""The functions of a stack as rows: frames of each are counted, and what its code says is set beside them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import msgspec

from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.native_stack import LARGE_FRAME, NativeStack
from necropsy.capture.process.python_stacks import ENTRY, EVALUATOR
from necropsy.errors import InputError
from necropsy.formats import frame_sizes
from necropsy.model import FoundBy, Frame, StackFunction

Function = tuple[str | None, str | None]
"""Name and module."""
_MOST_ROWS = 8
"""Rows whose functions are looked up in their files."""


class FrameTally(NativeStack):
    """Counts the frames of each function, and their bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.times: Counter[CodeLocation] = Counter()
        self.bytes: Counter[CodeLocation] = Counter()
        self.end = 0
        """The stack pointer after the last frame that was counted."""
        self.large: list[tuple[CodeLocation, int, int]] = []
        """Frames that are larger than most stacks' recursions make them: where each begins and ends."""
        self._open: tuple[CodeLocation, int] | None = None

    def extend(self, places: Sequence[CodeLocation], pointers: Sequence[int], found_by: FoundBy | None = None) -> None:
        """As ``NativeStack.extend``."""
        super().extend(places, pointers, found_by)
        for place, pointer in zip(places, pointers, strict=True):
            self.close(pointer)
            self._open = place, pointer

    def multiply(self, times: int, end: int) -> None:
        """All of it is there so many times, up to ``end``."""
        for place in self.times:
            self.times[place] *= times
            self.bytes[place] *= times
        self.end = end

    def name(self, of: Callable[[CodeLocation], CodeLocation]) -> None:
        """Count by what ``of`` gives for each place."""
        self.times = Counter({of(place): count for place, count in self.times.items()})
        self.bytes = Counter({of(place): size for place, size in self.bytes.items()})

    def close(self, end: int) -> None:
        """The last frame ends here."""
        self.end = end
        if self._open is None:
            return
        place, begin = self._open
        self._count(place, 1, end - begin)
        if end - begin > LARGE_FRAME:
            self.large.append((place, begin, end))

    def repeat(self, count: int, times: int, size: int) -> None:
        """As ``NativeStack.repeat``."""
        places, pointers = self.places.tail[-count:], self.pointers.tail[-count:]
        sizes = [after - before for before, after in pairwise(pointers)]
        for place, one in zip(places, [*sizes, size - sum(sizes)], strict=True):
            self._count(place, times, one * times)
        super().repeat(count, times, size)
        if self._open is not None:
            self._open = self._open[0], self._open[1] + times * size
            self.end = self._open[1]

    def _count(self, place: CodeLocation, times: int, octets: int) -> None:
        self.times[place] += times
        self.bytes[place] += octets


def rows_seen(tally: FrameTally, python: Sequence[Frame], *, is_all: bool) -> list[StackFunction]:
    """The frames of a stack that was seen; those of Python's evaluator by what they evaluated, where that is known."""
    times: Counter[Function] = Counter()
    octets: Counter[Function] = Counter()
    for place, count in tally.times.items():
        times[place.function, place.module] += count
        octets[place.function, place.module] += tally.bytes[place]
    rows: list[StackFunction] = []
    for function, size in octets.items():
        count = times[function]
        each = size / count
        if function[0] == EVALUATOR:
            entered = [frame for frame in python if frame.evaluated_by == ENTRY][:count]
            lines = Counter((frame.function, frame.source, frame.line) for frame in entered)
            for (name, file), n in Counter((frame.function, frame.source) for frame in entered).items():
                line = next(one[2] for one, _ in lines.most_common() if one[:2] == (name, file))
                rows.append(_seen((name, function[1]), n, round(n * each), is_all=is_all, file=file, line=line))
            count -= len(entered)
        if count:
            rows.append(_seen(function, count, round(count * each), is_all=is_all))
    return sorted((row for row in rows if row.bytes > 0), key=lambda row: -row.bytes)


def _seen(
    function: Function, times: int, size: int, *, is_all: bool, file: str | None = None, line: int | None = None
) -> StackFunction:
    return StackFunction(
        function=function[0],
        module=function[1],
        file=file,
        line=line,
        frame_bytes=round(size / times),
        times=times,
        bytes=size,
        how="seen",
        partial=not is_all,
    )


def with_static_sizes(
    rows: Iterable[StackFunction], places: Iterable[CodeLocation], files: MappedFiles
) -> tuple[StackFunction, ...]:
    """The rows; the first ones with the bytes of stack that the code of their functions takes at least."""
    place_of = {(place.function, place.module): place for place in places}
    told = []
    for index, row in enumerate(rows):
        place = place_of.get((row.function, row.module)) if row.file is None else None
        size = static_size(place.pc - 1, files) if place is not None and index < _MOST_ROWS else None
        told.append(msgspec.structs.replace(row, static_bytes=size) if size is not None else row)
    return tuple(told)


def static_size(address: int, files: MappedFiles) -> int | None:
    """The bytes of stack that the code of the function at ``address`` takes at least; None where it does not tell."""
    file = files.at(address)
    bias = file.bias if file is not None else None
    if file is None or bias is None or file.elf is None:
        return None
    with contextlib.suppress(InputError, ImportError):
        return frame_sizes.of_function(file.elf, address - bias)
    return None
