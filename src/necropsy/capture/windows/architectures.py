"""What the processors differ in whose stacks are followed by frame pointers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """How a processor's calls lie on the stack. ``word``: bytes of an address; the rest are names of registers.

    A frame pointer points to the caller's frame pointer, the return address lies above it. ``link``: where a call puts
    the return address; None where it lies on the stack.
    """

    name: str
    word: int
    counter: str
    pointer: str
    frame: str
    link: str | None = None

    @property
    def mask(self) -> int:
        """What an address has room for."""
        return (1 << 8 * self.word) - 1


X86 = Architecture("x86", 4, "eip", "esp", "ebp")
X64 = Architecture("x64", 8, "rip", "rsp", "rbp")
ARM64 = Architecture("ARM64", 8, "pc", "sp", "fp", "lr")
