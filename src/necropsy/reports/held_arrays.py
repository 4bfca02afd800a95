"""Arrays that the function held which was running as memory rose, in one line; and those of a line of a program."""

from __future__ import annotations

from collections.abc import Sequence

from necropsy.model import HeapFrame, HeldArray, Process
from necropsy.reports.terminal import clean, size

MOST = 3
"""Arrays that are named; the rest is counted."""


def told(arrays: Sequence[HeldArray]) -> str:
    """``images: float32 [64, 224, 224, 3], 36.8 MiB; labels: int64 [64], 512 B``; empty without any."""
    shown = "; ".join(map(_told, arrays[:MOST]))
    return f"{shown}; and {len(arrays) - MOST} more" if len(arrays) > MOST else shown


def _told(one: HeldArray) -> str:
    shape = ", ".join(map(str, one.shape))
    return clean(f"{one.name}: {one.dtype or one.type} [{shape}]") + (f", {size(one.bytes)}" if one.bytes else "")


def at_line(process: Process, frame: HeapFrame | None) -> tuple[HeldArray, ...]:
    """What was held as memory rose at the line of ``frame``; of several rises, at the largest one."""
    if frame is None or frame.line is None:
        return ()
    marks = [
        one
        for one in process.marks or ()
        if one.arrays and one.python is not None and (one.python.file, one.python.line) == (frame.file, frame.line)
    ]
    return max(marks, key=lambda one: (one.kind == "step", one.bytes or 0)).arrays if marks else ()
