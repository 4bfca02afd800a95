"""What the rules say of a block that the guard allocator watched over (`necropsy run --guard`)."""

from __future__ import annotations

from necropsy.frame_filter import file_name, section_of
from necropsy.model import Confidence, Crash, Culprit, Evidence, Frame, GuardedBlock, Misuse
from necropsy.predicates import bare_name
from necropsy.rule import Found
from necropsy.rules.culprit import innermost
from necropsy.rules.wording import short, size

_PAGE = 4096
_WHERE = "record of the guard allocator"
_SHOWN = 3
"""Functions of a stack that are named."""


def guarded_block(crash: Crash, *misuses: Misuse) -> GuardedBlock | None:
    """The block that was misused in one of these ways."""
    block = crash.guarded_block
    return block if block is not None and block.misuse in misuses else None


def how_sure(block: GuardedBlock) -> Confidence:
    """An address far from any block may have been meant for another one, unless a register points into this one."""
    beyond = block.distance or 0
    if block.misuse == "freed" and block.offset is not None:
        beyond = max(-block.offset, block.offset - block.size + 1, 0)
    return "certain" if beyond < _PAGE or block.pointer is not None else "likely"


def evidence_of(block: GuardedBlock) -> Found:
    """The access, the block, and who allocated and freed it."""
    found = [Evidence(claim=_CLAIMS[block.misuse], seen=_seen(block), where=_WHERE)]
    for claim, frames, thread in (
        ("where it was allocated", block.allocated, block.allocated_by),
        ("where it was freed", block.freed, block.freed_by),
    ):
        if frames:
            where = f"{_WHERE}, thread {thread}" if thread is not None else _WHERE
            found.append(Evidence(claim=claim, seen=_named(frames), where=where))
    if block.pointer is not None:
        seen = f"{block.pointer} holds an address inside it"
        found.append(Evidence(claim="the pointer is one to this block", seen=seen, where="registers"))
    return tuple(found)


_CLAIMS: dict[Misuse, str] = {
    "after-end": "the access was past the end of a block",
    "before-start": "the access was before the start of a block",
    "freed": "the access was to a block that had been freed",
    "freed-twice": "the block had been freed already",
    "freed-inside": "what was freed is not the start of a block",
    "overwritten-after": "bytes past the end of a block were overwritten; seen when it was freed",
    "overwritten-before": "bytes before the start of a block were overwritten; seen when it was freed",
}


def _seen(block: GuardedBlock) -> str:
    what = f"a block of {size(block.size)} at {block.address}"
    if block.misuse in {"freed", "freed-inside"}:
        return f"byte {block.offset:,} of {what}"
    if block.distance is None:
        return what
    side = "past the end" if block.misuse in {"after-end", "overwritten-after"} else "before the start"
    count = f"{block.overwritten:,} bytes, " if block.overwritten is not None else ""
    return f"{count}{_distance(block.distance)} {side} of {what}"


def _distance(distance: int) -> str:
    return size(distance) if distance else "directly"


def side_of(block: GuardedBlock, culprit: Culprit | None = None) -> str:
    """As the end of a sentence whose subject is ``culprit``: which memory was accessed instead of the block."""
    side = "past the end" if block.misuse in {"after-end", "overwritten-after"} else "before the start"
    which = f"{_distance(block.distance or 0)} {side}"
    allocator = _shown(block.allocated)
    if allocator is not None and culprit is not None and culprit.function == allocator.function:
        return f"{which} of a block of {size(block.size)} that it had allocated itself"
    return f"{which} of a block of {size(block.size)}{_by(block.allocated, ' that ', ' had allocated')}"


def _by(frames: tuple[Frame, ...] | None, before: str, after: str) -> str:
    frame = _shown(frames)
    return f"{before}{short(frame.function)}{after}" if frame is not None and frame.function else ""


def freed_block(block: GuardedBlock) -> str:
    """As the end of a sentence: the block, and who freed it."""
    return f"a block of {size(block.size)}{_by(block.freed, ' that ', ' had freed')}"


def allocator_in_words(block: GuardedBlock) -> str:
    """`` in `make` (op.cc:12)``; empty where it is not known."""
    return _place(block.allocated)


def releaser_in_words(block: GuardedBlock) -> str:
    """The same of who freed it."""
    return _place(block.freed)


def _place(frames: tuple[Frame, ...] | None) -> str:
    frame = _shown(frames)
    return f" in {_name(frame)}" if frame is not None else ""


def _shown(frames: tuple[Frame, ...] | None) -> Frame | None:
    """Who wanted the block, or no longer wanted it: not the functions that only passed that on."""
    wanting = [one for one in frames or () if not (one.function and _passes_on(bare_name(one.function)))]
    return innermost(tuple(wanting)) or innermost(frames or ())


def _passes_on(name: str) -> bool:
    return section_of(name, "allocating_frames.txt") is not None


def _named(frames: tuple[Frame, ...]) -> str:
    """The first functions from the one that is not the allocator's own on."""
    first = _shown(frames)
    start = first.index if first is not None else 0
    return ", called by ".join(_name(frame) for frame in frames[start : start + _SHOWN])


def _name(frame: Frame) -> str:
    if frame.function is None:
        return f"{file_name(frame.module)}+{frame.module_offset}" if frame.module is not None else f"{frame.address}"
    line = f":{frame.line}" if frame.line is not None else ""
    place = f"{file_name(frame.source)}{line}" if frame.source is not None else file_name(frame.module or "")
    return short(frame.function) + (f" ({place})" if place else "")
