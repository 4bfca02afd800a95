"""Who allocated the memory of a process, for a terminal: the calls that held most of it, by the program's own lines."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.model import HeapFrame, HeapStack, HeapUse, HeldArray, Process
from necropsy.reports.terminal import DIM, Pen, clean, cut, size, wrap

_LESS = (
    "Seen from outside, at each look: a line that was running need not be the one that allocated, and memory that was "
    "freed meanwhile does not show. --heap memray says who allocates."
)
_MOST_ARRAYS = 3
"""Arrays that are named; the rest is counted."""
_ROWS, _OTHERS = 5, 3
"""Rows that are shown of what was alive at the peak, and of each other kind."""
_LEAST_SHARE, _LEAST_OF_ALL = 0.01, 0.05
_FREED = 1.5
"""What was allocated in all is shown by lines where it is so many times what was alive at the peak."""
_LIBRARY = re.compile(r"[/\\](?:site|dist)-packages[/\\]|[/\\]lib[/\\]python\d+\.\d+[/\\]|^<|^$")
"""Files of packages, of Python's own library, and of code that is in no file."""
_ALLOCATOR = re.compile(
    r"(?i)(?<![a-z])(?:\w*(?:malloc|calloc|realloc|alloc_mmap|memalign)|mmap\d*|operator new)"
    r"|new_arena|PyDataMem|allocate_from_new_pool|blas_memory_alloc|Arena(?:Mmap|Malloc)|Allocator\w*(?:<[^()]*>)?::"
)
"""Native functions that allocate for others. The row names the one that called them."""


def lines(process: Process, width: int, pen: Pen) -> list[str]:
    """Nothing where it was not looked for."""
    heap = process.heap
    if heap is None:
        return []
    told = [pen(one, DIM) for one in wrap(_title(heap), width, first="  ", rest="    ")]
    told += _table(_by_line(heap.stacks), heap.peak, (_ROWS, _LEAST_SHARE), width, process)
    told += _kind("Temporary, freed after at most one other allocation", heap.temporaries, heap.allocated, width, pen)
    if (heap.allocated or 0) >= _FREED * (heap.peak or 0):
        told += _kind("Allocated in all, freed memory included", heap.lines, heap.allocated, width, pen)
    told += wrap(_cost(heap) if heap.how == "memray" else _LESS, width, first="  ", rest="    ")
    return told


def _title(heap: HeapUse) -> str:
    at = f", {heap.peak_at:.1f} s after its start" if heap.peak_at is not None else ""
    if heap.how == "sample":
        return f"Memory grew by {size(heap.peak or 0)}; these lines of Python were running then"
    return f"Heap: at most {size(heap.peak)} allocated at one time{at}" if heap.peak is not None else "Heap"


def _kind(title: str, stacks: Sequence[HeapStack], whole: int | None, width: int, pen: Pen) -> list[str]:
    rows = _table(_by_line(stacks), whole, (_OTHERS, _LEAST_OF_ALL), width)
    return [*(pen(one, DIM) for one in wrap(title, width, first="  ")), *rows] if rows else []


@dataclass(frozen=True)
class _Row:
    name: str
    octets: int
    own: HeapFrame | None


def _table(
    rows: Sequence[_Row], whole: int | None, most: tuple[int, float], width: int, process: Process | None = None
) -> list[str]:
    """``most``: how many rows, and the least share of one. ``process``: with what the function held as memory rose."""
    lines: list[str] = []
    told: set[HeapFrame | None] = set()
    for row in [one for one in rows if whole and one.octets >= most[1] * whole][: most[0]]:
        lines.append(cut(f"    {size(row.octets):>9} {row.octets / (whole or 1):>6.1%}  {row.name}", width))
        arrays = held_at(process, row.own) if process is not None and row.own not in told else ()
        lines += [cut(f"{' ' * 10}held {held_in_words(arrays)}", width)] if arrays else []
        told.add(row.own)
    return lines


def _by_line(stacks: Sequence[HeapStack]) -> list[_Row]:
    sums: dict[tuple[str, HeapFrame | None], int] = {}
    for one in stacks:
        key = _place(one.frames), own_line(one.frames)
        sums[key] = sums.get(key, 0) + one.bytes
    return sorted((_Row(name, octets, own) for (name, own), octets in sums.items()), key=lambda one: -one.octets)


def own_line(frames: Sequence[HeapFrame]) -> HeapFrame | None:
    """The innermost line of the program itself."""
    return next((one for one in reversed(frames) if not _LIBRARY.search(one.file or "")), None)


def _place(frames: Sequence[HeapFrame]) -> str:
    """The innermost line of the program itself, else of Python, and the function that it called if that allocated."""
    if not frames:
        return "not known"
    allocated = _allocated(frames)
    own = own_line(frames) or next((one for one in reversed(frames) if one.file), None)
    if own is None or own is allocated:
        return _named(allocated)
    return f"{_named(own)}, in {_named(allocated)}"


def _allocated(frames: Sequence[HeapFrame]) -> HeapFrame:
    """The innermost function; of native ones, one that is no allocator, if there is one below the line of Python."""
    native = list(itertools.takewhile(lambda one: not one.file, reversed(frames)))
    return next((one for one in native if not _ALLOCATOR.search(one.function)), frames[-1])


def _named(frame: HeapFrame) -> str:
    where = os.path.basename(frame.file) if frame.file else ""  # noqa: PTH119 - a name of another system's may have both
    return clean(f"{frame.function} ({where}:{frame.line})" if where and frame.line else frame.function)


def _cost(heap: HeapUse) -> str:
    whole = f", {size(heap.allocated)} in all" if heap.allocated is not None else ""
    text = f"memray recorded {heap.count or 0:,} allocations{whole}. It ran inside the process: the times, the threads"
    if heap.recorded is not None:
        text += f", and the resident memory above include its own (the recording has {size(heap.recorded)})."
    return (
        f"{text} The process did not end by itself: the last allocations may be missing." if not heap.complete else text
    )


def held_in_words(arrays: Sequence[HeldArray]) -> str:
    """``images: float32 [64, 224, 224, 3], 36.8 MiB; labels: int64 [64], 512 B``; empty without any."""
    shown = "; ".join(map(_array, arrays[:_MOST_ARRAYS]))
    return f"{shown}; and {len(arrays) - _MOST_ARRAYS} more" if len(arrays) > _MOST_ARRAYS else shown


def _array(one: HeldArray) -> str:
    together = " together" if one.count is not None else ""
    return clean(one.described) + (f", {size(one.bytes)}{together}" if one.bytes else "")


def held_at(process: Process, frame: HeapFrame | None) -> tuple[HeldArray, ...]:
    """What was held as memory rose at the line of ``frame``; of several rises, at the largest one."""
    if frame is None or frame.line is None:
        return ()
    marks = [
        one
        for one in process.marks or ()
        if one.arrays and one.python is not None and (one.python.file, one.python.line) == (frame.file, frame.line)
    ]
    return max(marks, key=lambda one: (one.kind == "step", one.bytes or 0)).arrays if marks else ()
