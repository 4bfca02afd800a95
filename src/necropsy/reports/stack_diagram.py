"""A thread's stack to scale, as blocks of calls; it grows downwards, as on x86-64 and AArch64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from necropsy.model import Frame, Thread
from necropsy.reports.stack import estimated
from necropsy.reports.terminal import size

HEIGHT, _LEAST_HEIGHT, _HEIGHT_EACH = 400.0, 200.0, 60.0
"""Heights of both bars: ``_HEIGHT_EACH`` per block, within these bounds."""
_MOST_BLOCKS = 9
_LABEL = 38.0
"""Two lines of text."""


@dataclass(frozen=True)
class Block:
    """Adjacent calls, or bytes without a known frame; ``octets``: in total; ``frame``: the innermost one's index."""

    kind: Literal["frame", "fold", "group", "unknown"]
    name: str
    detail: str
    octets: float
    frame: int | None = None
    count: int = 1
    y: float = 0.0
    height: float = 0.0
    label_y: float = 0.0


@dataclass(frozen=True)
class Drawing:
    """Two bars: the whole stack (``size`` bytes), and its used part (``used``), magnified.

    ``used_height``: the used part's height in the first bar. ``full``: the stack was used up.
    """

    size: int
    used: float
    full: bool
    blocks: tuple[Block, ...]
    used_height: float
    height: float
    labels_height: float
    magnified: float
    low: str | None = None
    high: str | None = None
    largest: tuple[Block, ...] = field(default=())


def draw(thread: Thread) -> Drawing | None:
    """The drawing of a thread's stack; None where its size, or what was used of it, is not known."""
    stack = thread.stack
    if stack is None or not stack.size or not stack.used:
        return None
    blocks = _blocks(thread, stack.used)
    total = max(float(stack.used), sum(block.octets for block in blocks))
    blocks = _merged(blocks, total)
    height = min(HEIGHT, max(_LEAST_HEIGHT, _HEIGHT_EACH * len(blocks)))
    placed = _placed(blocks, total, height)
    share = 1.0 if stack.guard_hit else min(1.0, total / stack.size)
    return Drawing(
        size=stack.size,
        used=stack.used,
        full=bool(stack.guard_hit),
        blocks=tuple(placed),
        used_height=max(1.0, height * share),
        height=height,
        labels_height=max([height, *(block.label_y + _LABEL / 2 for block in placed)]),
        magnified=1 / share if share else 1.0,
        low=str(stack.low) if stack.low is not None else None,
        high=str(stack.high) if stack.high is not None else None,
        largest=tuple(_frame(frame) for frame in thread.largest if frame.stack_bytes),
    )


def _blocks(thread: Thread, used: int) -> list[Block]:
    """Innermost first, one block per recorded frame and fold."""
    frames = sorted(thread.frames or (), key=lambda frame: frame.index)
    blocks: list[Block] = []
    known = sorted((fold for fold in thread.folds if fold.start is not None), key=lambda fold: fold.start or 0)
    last = -1
    lost = None
    place = 0
    for fold in known:
        start = fold.start or 0
        while place < len(frames) and frames[place].index < start:
            lost = len(blocks) if frames[place].index > last + 1 else lost
            blocks.append(_frame(frames[place]))
            last = frames[place].index
            place += 1
        end = start + fold.period * fold.times
        names = set(fold.functions)
        while place < len(frames) and (frames[place].index < end or frames[place].function in names):
            end = max(end, frames[place].index + 1)
            place += 1
        each = fold.bytes_per_period or 0.0
        name = " > ".join(function or "(no name)" for function in fold.functions[:3])
        if len(fold.functions) > 3:
            name += f" > ... ({len(fold.functions)} functions)"
        detail = f"\N{MULTIPLICATION SIGN} {fold.times:,}" + (f", {size(each)} each" if each else "")
        blocks.append(Block("fold", name, detail, each * fold.times, start, end - start))
        last = end - 1
    for frame in frames[place:]:
        lost = len(blocks) if frame.index > last + 1 else lost
        blocks.append(_frame(frame))
        last = frame.index
    rest = used - sum(block.octets for block in blocks)
    if rest > 0.01 * used and rest >= 16:
        # Frames that were not kept lie between the kept ones; else it is what lies above the thread's first frame.
        blocks.insert(
            lost if lost is not None else len(blocks),
            Block("unknown", _what(thread, lost), _out_of(thread), rest, None, 0),
        )
    return blocks


def _what(thread: Thread, lost: int | None) -> str:
    """What occupies the remaining bytes, as far as known."""
    if lost is not None or not thread.frames:
        return "frames that were not kept"
    if not thread.complete:
        return "frames that could not be read"
    # The kernel puts them there (the ABI's process initialization).
    main = thread.stack is not None and thread.stack.is_main
    return "the program's arguments and environment" if main else "above the thread's first call"


def _out_of(thread: Thread) -> str:
    estimate = thread.frames_estimate
    return f"the stack has {estimated(estimate)}" if estimate is not None else ""


def _frame(frame: Frame) -> Block:
    name = frame.function or (f"{frame.address}" if frame.address is not None else "(no name)")
    module = frame.module.rsplit("/", 1)[-1] if frame.module else ""
    return Block("frame", name, module, float(frame.stack_bytes or 0), frame.index)


def _merged(blocks: Sequence[Block], total: float) -> list[Block]:
    """Merge small neighbours until few enough blocks are left to label."""
    least = 0.02
    merged = list(blocks)
    while True:
        merged = _merge(blocks, least * total)
        if len(merged) <= _MOST_BLOCKS or least >= 1:
            return merged
        least *= 1.5


def _merge(blocks: Sequence[Block], least: float) -> list[Block]:
    merged: list[Block] = []
    for block in blocks:
        small = block.kind == "frame" and block.octets < least
        if not small:
            merged.append(block)
        elif merged and merged[-1].kind == "group":
            before = merged[-1]
            merged[-1] = replace(before, octets=before.octets + block.octets, count=before.count + block.count)
        else:
            merged.append(replace(block, kind="group"))
    return [
        replace(block, name=f"{block.count} calls", detail="small ones, side by side")
        if block.kind == "group" and block.count > 1
        else block
        for block in merged
    ]


def _placed(blocks: Sequence[Block], total: float, whole: float) -> list[Block]:
    """From the top, the outermost call, with labels kept apart."""
    y = 0.0
    placed = []
    for block in reversed(blocks):
        height = whole * block.octets / total if total else 0.0
        placed.append(replace(block, y=y, height=height, label_y=y + height / 2))
        y += height
    floor = _LABEL / 2
    for place, block in enumerate(placed):
        at = max(block.label_y, floor)
        placed[place] = replace(block, label_y=at)
        floor = at + _LABEL
    ceiling = max(whole - _LABEL / 2, _LABEL * (len(placed) - 0.5))
    for place in range(len(placed) - 1, -1, -1):
        at = min(placed[place].label_y, ceiling)
        placed[place] = replace(placed[place], label_y=at)
        ceiling = at - _LABEL
    return placed
