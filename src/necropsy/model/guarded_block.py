"""A block of memory that the guard allocator watched over (`necropsy run --guard`)."""

from __future__ import annotations

from typing import Literal

from necropsy.model.base import Address, Noun
from necropsy.model.stacks import Frame

Misuse = Literal[
    "after-end", "before-start", "freed", "freed-twice", "freed-inside", "overwritten-after", "overwritten-before"
]
"""An access past the end or before the begin, or to a freed block; a second free, or that of an address inside a block;
bytes around a block that were found overwritten when it was freed."""


class GuardedBlock(Noun, frozen=True, kw_only=True):
    """The block that a program misused, by the record that the guard allocator kept of it.

    ``distance``: bytes between the block and the nearest byte that was accessed or overwritten: 0 is the byte next to
    it. None of an access or a free of the block itself; ``offset`` is then where in it that was.
    """

    misuse: Misuse
    address: Address
    size: int
    alignment: int
    distance: int | None = None
    offset: int | None = None
    """Of the access from the block's first byte; None of a second free."""
    overwritten: int | None = None
    """How many bytes were found overwritten, from the first to the last one."""
    pointer: str | None = None
    """The register that holds an address inside the block; None where the block is only the nearest one."""
    allocated: tuple[Frame, ...] | None = None
    """The functions that asked for it, innermost first; those that the kept piece of the stack leads to."""
    allocated_by: int | None = None
    """The thread."""
    freed: tuple[Frame, ...] | None = None
    """The functions that freed it (first), innermost first; None of a block that was in use."""
    freed_by: int | None = None
