"""Who allocated, as an icicle: outermost calls at the top, each as wide as the bytes that were allocated below it.

Places and widths are per cent of the picture.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from necropsy.model import HeapFrame, HeapStack
from necropsy.reports.terminal import file_name, size

_ROWS = 20
"""Calls below each other that are drawn; deeper ones are part of the last."""
_LEAST = 0.4
"""Narrower cells are left out, in per cent."""
_NAMED = 7.0
"""So wide must a cell be for its name."""


@dataclass(frozen=True)
class Cell:
    """One call: ``title`` says all of it, ``name`` is empty where it has no room."""

    name: str
    title: str
    octets: int
    python: bool
    row: int
    x: float
    width: float
    marked: bool = False


@dataclass(frozen=True)
class Icicle:
    """``above``: the calls that all allocations have in common, and that are not drawn, outermost first."""

    cells: tuple[Cell, ...]
    rows: int
    octets: int
    above: tuple[str, ...]


@dataclass
class _Node:
    frame: HeapFrame
    octets: int = 0
    count: int = 0
    below: dict[HeapFrame, _Node] = field(default_factory=dict)


def _allocated(octets: int, count: int) -> str:
    return size(octets) + (f", {count:,} allocation{'s' if count != 1 else ''}" if count else "")


def draw(
    stacks: Sequence[HeapStack],
    weighed: Callable[[int, int], str] = _allocated,
    *,
    whole: bool = False,
    marked: Collection[HeapFrame] = (),
    least: float = _LEAST,
) -> Icicle | None:
    """The picture; None where there is nothing to draw.

    ``weighed`` puts the bytes and the count of a cell into words. ``whole``: draw also what all stacks have in common.
    ``marked``: frames whose cells are marked. ``least``: narrower cells are left out, in per cent.
    """
    root = _Node(HeapFrame(function=""))
    for stack in stacks:
        node = root
        for frame in (None, *stack.frames):
            node = node if frame is None else node.below.setdefault(frame, _Node(frame))
            node.octets += stack.bytes
            node.count += stack.count or 0
    above: list[str] = []
    while len(root.below) == 1 and not whole:
        (only,) = root.below.values()
        if len(only.below) != 1:
            break
        above.append(label(only.frame))
        root = only
    cells: list[Cell] = []
    _place(root, _Row(0, 0.0, 100.0), cells, _Style(weighed, frozenset(marked), least))
    if not cells:
        return None
    return Icicle(tuple(cells), max(cell.row for cell in cells) + 1, root.octets, tuple(above))


def label(frame: HeapFrame) -> str:
    """``load, train.py:17``."""
    if frame.file is None:
        return frame.function
    return f"{frame.function}, {file_name(frame.file)}{f':{frame.line}' if frame.line is not None else ''}"


@dataclass(frozen=True)
class _Row:
    number: int
    x: float
    width: float


@dataclass(frozen=True)
class _Style:
    weighed: Callable[[int, int], str]
    marked: frozenset[HeapFrame]
    least: float


def _place(node: _Node, row: _Row, cells: list[Cell], style: _Style) -> None:
    if row.number >= _ROWS:
        return
    x = row.x
    for below in sorted(node.below.values(), key=lambda one: one.octets, reverse=True):
        wide = row.width * below.octets / node.octets if node.octets else 0.0
        if wide < style.least:
            return  # so are all that follow
        name = label(below.frame)
        cells.append(
            Cell(
                name if wide >= _NAMED else "",
                f"{name}: {style.weighed(below.octets, below.count)}",
                below.octets,
                below.frame.line is not None,
                row.number,
                x,
                wide,
                below.frame in style.marked,
            )
        )
        _place(below, _Row(row.number + 1, x, wide), cells, style)
        x += wide
