"""Stretches of a log's bytes that begin and end with rows, and where in the log they stand."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Extent = tuple[int, int, int, int]
"""Rows and bytes before a place, rows and bytes behind it."""
STEP = 1 << 10
"""Bytes between two places in one row that count as two: as many as are shown of such a row."""


@dataclass(frozen=True)
class ByteSpan:
    """Contiguous lines; ``data`` begins in line ``number`` (amid it: ``cut``), ``start`` is its uncoloured offset."""

    start: int
    number: int
    data: bytes
    cut: bool = False


@dataclass
class ByteWindow:
    """A block with its surroundings, in which rows are found around a position."""

    text: bytes
    offset: int
    row: int
    _counted: tuple[int, int] = field(default=(0, 0))

    def around(self, position: int, extent: Extent) -> tuple[int, int]:
        """Begin and end of the rows around ``position``; a row that is longer than the extent is cut."""
        rows_before, bytes_before, rows_behind, bytes_behind = extent
        low = max(0, position - bytes_before)
        parts = self.text[low:position].rsplit(b"\n", rows_before + 1)
        if len(parts) == rows_before + 2:
            start = low + len(parts[0]) + 1
        elif self._is_row_start(low):
            start = low
        else:
            start = low + len(parts[0]) + 1 if len(parts) > 1 else low
        piece = self.text[position : position + bytes_behind]
        parts = piece.split(b"\n", rows_behind + 1)
        if len(parts) == rows_behind + 2:
            return start, position + len(piece) - len(parts[-1])
        if len(parts) > 1 and len(piece) == bytes_behind:
            return start, position + len(piece) - len(parts[-1])
        return start, position + len(piece)

    def _is_row_start(self, position: int) -> bool:
        return self.text[position - 1 : position] == b"\n" if position else not self.offset

    def run(self, start: int, end: int) -> ByteSpan:
        """The rows; quick where ``start`` rises from call to call."""
        counted, number = self._counted if self._counted[0] <= start else (0, 0)
        number += self.text.count(b"\n", counted, start)
        self._counted = (start, number)
        return ByteSpan(self.offset + start, self.row + number, self.text[start:end], not self._is_row_start(start))


@dataclass(frozen=True)
class Snippet:
    """Bytes around one of the last places, which lies at ``at`` in them."""

    run: ByteSpan
    at: int

    def rows(self, extent: Extent) -> ByteSpan:
        """The same, as rows."""
        run = self.run
        window = ByteWindow(run.data, int(run.cut), run.number)
        start, end = window.around(self.at, extent)
        part = window.run(start, end)
        return ByteSpan(run.start + start, part.number, part.data, part.cut)


def first_rows(text: bytes, starts: Sequence[int], most: int) -> tuple[list[int], Sequence[int]]:
    """The first ``most`` of the rising ``starts`` that lie in rows of their own, and those behind them."""
    places: list[int] = []
    edge = 0
    for index, at in enumerate(starts):
        if at < edge:
            continue
        if len(places) == most:
            return places, starts[index:]
        places.append(at)
        # In a row without end the next place is the next one that a piece around this one does not show.
        end = text.find(b"\n", at, at + STEP)
        edge = end if end >= 0 else at + STEP
    return places, ()


def last_rows(text: bytes, starts: Sequence[int], most: int) -> list[int]:
    """The last ``most`` of the rising ``starts`` that lie in rows of their own, rising."""
    places: list[int] = []
    index = len(starts)
    while index and len(places) < most:
        at = starts[index - 1]
        places.append(at)
        start = text.rfind(b"\n", max(0, at - STEP), at)
        index = bisect_left(starts, start if start >= 0 else at - STEP + 1, 0, index - 1)
    return places[::-1]


def joined(intervals: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The same intervals, those that overlap or touch as one, in order."""
    low = reach = -1
    for start, end in sorted(intervals):
        if start <= reach:
            reach = max(reach, end)
            continue
        if reach >= 0:
            yield low, reach
        low, reach = start, end
    if reach >= 0:
        yield low, reach


def merged(runs: Sequence[ByteSpan]) -> Iterator[ByteSpan]:
    """Runs that overlap or touch as one, in order."""
    parts: list[bytes] = []
    first: ByteSpan | None = None
    end = 0
    for run in sorted(runs, key=lambda run: (run.start, -len(run.data))):
        if first is not None and run.start <= end:
            parts.append(run.data[end - run.start :])
        else:
            if first is not None:
                yield ByteSpan(first.start, first.number, b"".join(parts), first.cut)
            first, parts = run, [run.data]
        end = max(end, run.start + len(run.data))
    if first is not None:
        yield ByteSpan(first.start, first.number, b"".join(parts), first.cut)
