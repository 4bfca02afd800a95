"""How much of its stack a thread used, as bars to scale: functions as blocks, with lines for the stacks elsewhere.

Places and widths are per cent of a bar, so that a page can draw them at any width without making the text narrower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from necropsy.data.stack_sizes import stack_sizes
from necropsy.model import Process, StackFunction, StackUse
from necropsy.reports.terminal import file_name, size

MOST_BLOCKS = 6
"""Functions with a block of their own; as many colours has the style."""
_LEAST = 0.02
"""The share of a peak from which on a function has a block of its own."""
_MAGNIFY = 0.3
"""The share of a stack below which the used part is also drawn magnified."""
_TURN = 45.0
"""From where on a label does not fit to the right of its line on a phone, in per cent."""


@dataclass(frozen=True)
class Block:
    """Adjacent bytes of a stack: the frames of one function, of several small ones, or bytes that are not explained."""

    kind: Literal["function", "others", "unknown"]
    name: str
    detail: str
    octets: int
    share: float
    colour: int
    x: float = 0.0
    width: float = 0.0


@dataclass(frozen=True)
class Elsewhere:
    """A line at the size that such a thread's stack usually has on another system."""

    where: str
    octets: int
    x: float
    row: int
    exceeded: bool

    @property
    def to_the_left(self) -> bool:
        """Its label fits only on the left of the line."""
        return self.x > _TURN


@dataclass(frozen=True)
class StackBar:
    """A thread's stack, or those of a pool, of which the one is drawn that came closest to its end.

    ``magnified``: the used part again, as wide as the bar; None where there is no need. ``left``: bytes.
    """

    name: str
    count: int
    stack: StackUse
    share: float | None
    left: int | None
    blocks: tuple[Block, ...]
    magnified: tuple[Block, ...] | None
    elsewhere: tuple[Elsewhere, ...]


def pools(stacks: Sequence[StackUse]) -> list[tuple[str, list[StackUse]]]:
    """Threads that share their name, the size of their stack and what set it; the order is that of ``stacks``."""
    found: dict[tuple[str, int | None, str | None], list[StackUse]] = {}
    for one in stacks:
        found.setdefault((name_of(one), one.size, one.set_by), []).append(one)
    return [(name, pool) for (name, _, _), pool in found.items()]


def name_of(stack: StackUse) -> str:
    """The thread's name, or its number."""
    return stack.python_name or stack.name or f"thread {stack.tid}"


def share_of(stack: StackUse) -> float:
    """The part of its stack that a thread used; 0 where that is not known."""
    return stack.peak / stack.size if stack.peak is not None and stack.size else 0.0


def draw(process: Process) -> list[StackBar]:
    """A bar for each pool of which a peak is known."""
    return [
        _bar(name, pool, main=pool[0].tid == process.pid)
        for name, pool in pools(process.stacks or ())
        if pool[0].peak is not None
    ]


def _bar(name: str, pool: Sequence[StackUse], *, main: bool) -> StackBar:
    one = pool[0]
    peak = one.peak or 0
    whole = max(one.size or peak, peak, 1)
    blocks = _blocks(one, peak)
    share = peak / one.size if one.size else None
    return StackBar(
        name=name,
        count=len(pool),
        stack=one,
        share=share,
        left=max(one.size - peak, 0) if one.size else None,
        blocks=_placed(blocks, whole),
        magnified=_placed(blocks, peak) if share is not None and share < _MAGNIFY and len(blocks) > 1 else None,
        elsewhere=_elsewhere(peak, whole, main=main),
    )


def _blocks(stack: StackUse, peak: int) -> list[Block]:
    """Largest first, then what is small, then what is not explained: together the peak."""
    rows = sorted(stack.functions or (), key=lambda row: row.bytes, reverse=True)
    large = [row for row in rows if row.bytes >= _LEAST * peak][:MOST_BLOCKS]
    small = sum(row.bytes for row in rows) - sum(row.bytes for row in large)
    blocks = [
        Block("function", _function(row), _detail(row), row.bytes, row.bytes / peak, place)
        for place, row in enumerate(large)
    ]
    if small >= _LEAST * peak:
        count = len(rows) - len(large)
        blocks.append(Block("others", f"{count} other function{'s' if count > 1 else ''}", "", small, small / peak, 0))
    rest = peak - sum(block.octets for block in blocks)
    if rest > 0:
        why = "" if stack.functions is None else "large local arrays, or calls that later ones have overwritten"
        what = "used, by which functions is not known" if stack.functions is None else "not explained"
        blocks.append(Block("unknown", what, why, rest, rest / peak, 0))
    return blocks


def _function(row: StackFunction) -> str:
    return row.function or "a function without a name"


def _detail(row: StackFunction) -> str:
    words = [f"{row.times:,} \N{MULTIPLICATION SIGN} {size(row.frame_bytes)}"]
    if row.file is not None:
        words.append(f"{file_name(row.file)}{f':{row.line}' if row.line is not None else ''}")
    elif row.module is not None:
        words.append(file_name(row.module))
    return " \N{MIDDLE DOT} ".join([*words, row.how, *(["partial"] if row.partial else [])])


def _placed(blocks: Sequence[Block], whole: int) -> tuple[Block, ...]:
    placed, x = [], 0.0
    for block in blocks:
        # Rounding, or two chains that overlap, must not draw beyond the bar.
        width = min(100.0 * block.octets / whole, 100.0 - x)
        placed.append(replace(block, x=x, width=width))
        x += width
    return tuple(placed)


def _elsewhere(peak: int, whole: int, *, main: bool) -> tuple[Elsewhere, ...]:
    """The sizes that lie within the bar, largest first, so that no line crosses the label of another."""
    known = [one for one in stack_sizes() if one.holds_for(main=main) and one.bytes < whole]
    known.sort(key=lambda one: one.bytes, reverse=True)
    return tuple(
        Elsewhere(one.where, one.bytes, 100.0 * one.bytes / whole, row, exceeded=peak > one.bytes)
        for row, one in enumerate(known)
    )
