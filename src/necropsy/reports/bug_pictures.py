"""Pictures of one bug: its deaths by day as a small line, and the stacks of its deaths as one flame graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from necropsy.model import BugGroup, HeapFrame, HeapStack, MergedFrame
from necropsy.reports import icicle
from necropsy.reports.icicle import Icicle
from necropsy.reports.stack import fit_name
from necropsy.reports.terminal import clean, file_name

SPARK_WIDTH, SPARK_HEIGHT = 96, 22
_POINTS = 48
"""A longer period is summed up: a point is then several days."""
_DEEPEST, _NARROWEST, _NAME = 12, 2.0, 60
"""Calls, width in per cent and length of a name in the flame graph: its page has hundreds of them."""


def spark(by_day: Sequence[int], top: int | None = None) -> str:
    """The points of an SVG polyline, ``SPARK_WIDTH`` by ``SPARK_HEIGHT``. ``top``: the value at the upper edge."""
    values = binned(by_day, _POINTS)
    if not values:
        return ""
    high = max(top or max(values), 1)
    step = SPARK_WIDTH / max(len(values) - 1, 1)
    points = [
        (place * step, SPARK_HEIGHT - 1 - (SPARK_HEIGHT - 3) * value / high) for place, value in enumerate(values)
    ]
    if len(points) == 1:
        points.append((SPARK_WIDTH, points[0][1]))
    return " ".join(f"{x:.0f},{y:.1f}" for x, y in points)


def binned(by_day: Sequence[int], most: int) -> list[int]:
    """The counts in at most ``most`` sums of equally many days, the last one of the last days."""
    days = -(-len(by_day) // most) if by_day else 1
    first = len(by_day) % days
    head = [sum(by_day[:first])] if first else []
    return head + [sum(by_day[place : place + days]) for place in range(first, len(by_day), days)]


def flame(group: BugGroup, most: int = 200) -> Icicle | None:
    """The stacks with the innermost call at the top; calls that all stacks have are marked.

    ``most``: the number of cells; the narrowest are left out.
    """
    stacks = [
        HeapStack(bytes=one.count, frames=tuple(_frame(frame) for frame in one.frames[:_DEEPEST]))
        for one in group.stacks
        if one.count > 0 and one.frames
    ]
    if not stacks:
        return None
    common = frozenset(stacks[0].frames).intersection(*(one.frames for one in stacks))
    drawn = icicle.draw(stacks, _deaths, whole=True, marked=common, least=_NARROWEST)
    if drawn is None or len(drawn.cells) <= most:
        return drawn
    # No cell is wider than the one above it, so that what is kept hangs together.
    kept = sorted(drawn.cells, key=lambda cell: (-cell.width, cell.row, cell.x))[:most]
    return replace(drawn, cells=tuple(kept), rows=max(cell.row for cell in kept) + 1)


@lru_cache(maxsize=8192)
def _short(function: str) -> str:
    return fit_name(clean(function), _NAME)


def _deaths(count: int, _unused: int) -> str:
    return f"{count:,} death{'s' if count != 1 else ''}"


def _frame(one: MergedFrame) -> HeapFrame:
    """A frame of Python by its file and line; a native one by its line or else by its library, as its file."""
    if one.python:
        file, _, number = (one.line or "").rpartition(":")
        line = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 0
        return HeapFrame(function=_short(one.function), file=file_name(file or one.line or "?"), line=line)
    return HeapFrame(function=_short(one.function), file=(one.line or one.module or "")[:_NAME] or None)
