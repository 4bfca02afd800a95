"""A treemap: each rectangle as large as its value, and as square as possible.

"Squarified Treemaps", Bruls, Huizing, van Wijk, 2000. Places and sizes are per cent of the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rectangle:
    """Where one value is."""

    x: float
    y: float
    width: float
    height: float


def squarified(values: Sequence[float], *, ratio: float = 1.0) -> list[Rectangle]:
    """A rectangle for each of ``values``, which are positive and in descending order.

    ``ratio``: the width of the picture by its height, for which the rectangles become square.
    """
    whole = sum(values)
    if whole <= 0:
        return []
    area = 100.0 * ratio * 100.0
    found: list[Rectangle] = []
    free = Rectangle(0.0, 0.0, 100.0 * ratio, 100.0)
    left = [value / whole * area for value in values]
    while left:
        side = min(free.width, free.height)
        row = [left[0]]
        while len(row) < len(left) and _worst([*row, left[len(row)]], side) <= _worst(row, side):
            row.append(left[len(row)])
        left = left[len(row) :]
        placed, free = _laid(row, free)
        found += placed
    return [Rectangle(one.x / ratio, one.y, one.width / ratio, one.height) for one in found]


def _worst(row: Sequence[float], side: float) -> float:
    """The largest ratio of the sides of the rectangles in a row along ``side``."""
    total = sum(row)
    if total <= 0 or side <= 0:
        return 0.0
    return max(side * side * max(row) / (total * total), total * total / (side * side * min(row)))


def _laid(row: Sequence[float], free: Rectangle) -> tuple[list[Rectangle], Rectangle]:
    """The rectangles of a row along the shorter side of what is free, and what is free then."""
    total = sum(row)
    placed = []
    if free.width >= free.height:
        thick = total / free.height if free.height else 0.0
        y = free.y
        for value in row:
            high = value / thick if thick else 0.0
            placed.append(Rectangle(free.x, y, thick, high))
            y += high
        return placed, Rectangle(free.x + thick, free.y, max(free.width - thick, 0.0), free.height)
    thick = total / free.width if free.width else 0.0
    x = free.x
    for value in row:
        wide = value / thick if thick else 0.0
        placed.append(Rectangle(x, free.y, wide, thick))
        x += wide
    return placed, Rectangle(free.x, free.y + thick, free.width, max(free.height - thick, 0.0))
