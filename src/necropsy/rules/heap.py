"""What the heap rules share: glibc's words on a destroyed heap, sorted by what they prove.

The texts are those of glibc 2.36 (malloc/malloc.c) and of macOS' libmalloc and of Microsoft's debugging heap. They tell where the damage was noticed, never who did it.
"""

from __future__ import annotations

import re
from typing import Literal

from necropsy.lazy_re import regex
from necropsy.model import Crash, Fix, Message
from necropsy.predicates import messages, on_windows

Damage = Literal[
    "double-free", "maybe-double-free", "bad-pointer", "bad-header", "overrun", "freed-block-written", "list-broken"
]

_SORTS: tuple[tuple[Damage, re.Pattern[str]], ...] = (
    ("double-free", regex(r"[Dd]ouble free (?:detected|of|for)|double free or corruption \(fasttop\)")),
    ("maybe-double-free", regex(r"double free or corruption \((?:!prev|top)\)")),
    ("bad-pointer", regex(r"invalid pointer|chunk is not page|pointer being (?:freed|realloc'd)")),
    ("bad-header", regex(r"free\(\): invalid size|double free or corruption \(out\)")),
    (
        "overrun",
        regex(
            r"invalid next size|corrupted size vs|corrupted top size|invalid old size|HEAP CORRUPTION DETECTED: after|invalid size \(unsorted\)|mismatching next->prev_size|top chunk"
        ),
    ),
    (
        "freed-block-written",
        regex(
            r"memory corruption|unaligned (?:fastbin|tcache)|too many chunks|invalid fastbin|unaligned chunk|after being freed|freed object"
        ),
    ),
    ("list-broken", regex(r".")),
)

MEANS: dict[Damage, str] = {
    "double-free": "a block was freed that had been freed already",
    "maybe-double-free": "a block was freed twice, or the bookkeeping of its neighbour was overwritten",
    "bad-pointer": "what was freed is not a block of malloc: a pointer that malloc never returned (into a block, to the stack, "
    "from another allocator), or a block whose header was overwritten",
    "bad-header": "the header of the block that was freed is destroyed, as by a write past the end of the block before it, "
    "or what was freed points into a block, where no header is",
    "overrun": "the header behind a block is overwritten, as by a write past that block's end",
    "freed-block-written": "a block was written to after it had been freed, or its neighbour's write ran into it",
    "list-broken": "the lists of free blocks are destroyed, by a write to freed memory or past a block's end",
}
"""What each complaint can mean. glibc sees the damage only: where two causes leave the same, both are named."""

CHECK_EVERY_BLOCK = Fix(
    text="Or let glibc look at every block, which moves the crash nearer to its cause.",
    command="LD_PRELOAD=libc_malloc_debug.so.0 MALLOC_CHECK_=3 python ...",
)
GUARD = Fix(
    text="Without a rebuild: let necropsy put buffers against pages that may not be used, so that an access beyond one "
    "dies where it is made.",
    command="necropsy run --guard python ...",
)
EXPERIMENTS = (
    GUARD,
    Fix(
        text="AddressSanitizer names the guilty write itself, with the block that it missed: rebuild the native code with it and run once.",
        command="g++ -g -O1 -fsanitize=address -fno-omit-frame-pointer ...",
    ),
    CHECK_EVERY_BLOCK,
)


NOT_IN_USE = "8"
"""``heap_failure_block_not_busy``: what Windows' heap calls a block that is freed and is not in use."""

ON_WINDOWS = (
    Fix(
        text="Let Windows put a guard page behind every block: then the guilty write itself is what crashes.",
        command="gflags /p /enable python.exe /full",
    ),
    Fix(
        text="Reinstall the packages into a fresh environment: two versions of one library free what the other allocated."
    ),
    Fix(
        text="Your own native code: AddressSanitizer names the guilty write, with the block that it missed.",
        command="cl /fsanitize=address /Zi ...",
    ),
)


def ways_to_find(crash: Crash) -> tuple[Fix, ...]:
    """How the guilty write is found where it died: nothing on the stack names it."""
    return ON_WINDOWS if on_windows(crash) else EXPERIMENTS


def complaint(crash: Crash) -> Message | None:
    """The C library's last complaint about the heap: glibc's or that of macOS."""
    found = messages(crash, "glibc-abort", "malloc-complaint")
    return found[-1] if found else None


def damage(message: Message) -> Damage:
    """What the complaint proves."""
    text = message.fields.get("what", message.text)
    return next(sort for sort, pattern in _SORTS if pattern.search(text))
