"""How much of its stack a thread ever used, on Windows: the committed part grows page by page, and never shrinks.

``StackBase``, ``StackLimit`` (of the NT_TIB) and ``DeallocationStack`` lie in the thread's own block, which is there
until the thread has ended. Below the committed part are the guard pages; below those, memory that is only reserved.

wine commits all of a stack when the thread is created. Its memory is zero until it is written to, so there the lowest
word that is not zero stands for the lowest page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from necropsy.capture.process.memory import Memory
from necropsy.formats.minidump_records import COMMITTED, GUARD, MemoryInfo
from necropsy.model import StackUse

_STACK_BASE, _STACK_LIMIT, _STACK_LOW = 0x8, 0x10, 0x1478
PAGE = 4096
_CHUNK = 1 << 20
_MOST_PIECES = 64
_LARGEST = 1 << 30


class Regions(Protocol):
    """The address space."""

    def at(self, address: int) -> MemoryInfo | None:
        """The piece that holds ``address``."""


@dataclass(frozen=True)
class StackRange:
    """``[low, high)`` is reserved, ``[committed, high)`` was used, and ``guard`` bytes below that are guard pages."""

    low: int
    committed: int
    high: int
    guard: int | None


def range_of(teb: int, memory: Memory, regions: Regions | None = None) -> StackRange | None:
    """The stack of the thread with this block; None where it cannot be told. ``regions``: where the guard is found."""
    high, limit, low = (memory.u64(teb + at) for at in (_STACK_BASE, _STACK_LIMIT, _STACK_LOW))
    if not high or not limit or not low or not low <= limit < high or high - low > _LARGEST:
        return None
    guard, lowest = None, limit
    at = low
    for _ in range(_MOST_PIECES if regions is not None else 0):
        piece = regions.at(at) if regions is not None and at < high else None
        if piece is None or piece.size <= 0:
            break
        if piece.state == COMMITTED and piece.protect & GUARD:
            guard = piece.size
        elif piece.state == COMMITTED and guard is not None:
            lowest = min(lowest, max(piece.base, low))
            break
        at = piece.base + piece.size
    return StackRange(low, lowest, high, guard)


def lowest_written(stack: StackRange, memory: Memory, until: int | None = None) -> int | None:
    """The lowest page (below ``until``) with a byte that is not zero, where all is committed; None if there is none."""
    at, end = stack.committed, until or stack.high
    while at < end:
        data = memory.some(at, min(_CHUNK, end - at))
        if not data:
            at += PAGE  # a page that nobody may read
            continue
        zeros = len(data) - len(data.lstrip(b"\0"))
        if zeros < len(data):
            return (at + zeros) // PAGE * PAGE
        at += len(data)
    return None


def use_of(tid: int, name: str | None, stack: StackRange | None, lowest: int | None) -> StackUse:
    """As the model says it. ``lowest``: the lowest page that it used."""
    if stack is None:
        return StackUse(tid=tid, name=name)
    peak = stack.high - lowest if lowest is not None else None
    return StackUse(tid=tid, name=name, size=stack.high - stack.low, peak=peak, guard=stack.guard)
