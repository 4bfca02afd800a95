"""Threads with equal stacks: a pool's idle ones have the same return addresses at the same places of their stacks.

Where the stack pointer alone leads to the callers, these words decide all of it. So one such thread is unwound, and of
the others the words are compared.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import KernelFrame, NativeStack
from necropsy.capture.process.registers import Registers
from necropsy.capture.process.thread_report import ThreadReport

_MOST = 32
"""Different stacks that end at the same instruction."""
_LARGEST = 64 << 10
"""Bytes of a stack that is compared."""
_MOST_FRAMES = 256


@dataclass(frozen=True, slots=True)
class IdenticalStacks:
    """One stack that others may be like: ``words`` are return addresses by their index above the stack pointer.

    ``size`` is where the last one ends, in bytes. ``kernel``: a framework's, as ``framework_op.kernel_frame`` has it.
    """

    pointer: int
    size: int
    words: tuple[tuple[int, int], ...]
    told: ThreadReport
    kernel: KernelFrame | None


class KnownStack:
    """The stacks of one process that were unwound so far."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._at: dict[int, list[IdenticalStacks]] = {}
        self._told: dict[tuple[tuple[int, ...], tuple[int, ...]], ThreadReport] = {}

    def find(self, now: Registers) -> tuple[ThreadReport, KernelFrame | None] | None:
        """The stack of a thread with these registers, if one that was unwound before has the same."""
        known = self._at.get(now.pc)
        if not known:
            return None
        data = self._memory.some(now.sp, max(one.size for one in known))
        words = array("Q", data[: len(data) & ~7])
        for index, one in enumerate(known):
            if one.size <= len(data) and all(words[at] == value for at, value in one.words):
                if index:
                    known.insert(0, known.pop(index))  # the next one is most likely of the same pool
                moved = now.sp - one.pointer
                kernel = one.kernel
                return one.told, kernel and KernelFrame(kernel.kernel, kernel.low + moved, kernel.high + moved)
        return None

    def add(self, now: Registers, unwound: NativeStack, told: ThreadReport, kernel: KernelFrame | None) -> ThreadReport:
        """Remember a stack that was unwound. Returns ``told``, or an equal one that another thread has already."""
        if len(unwound) > _MOST_FRAMES or not unwound.complete:
            return told
        places, pointers = unwound.places.first(_MOST_FRAMES), unwound.pointers.first(_MOST_FRAMES)
        chain = tuple(place.pc for place in places), tuple(pointer - now.sp for pointer in pointers)
        told = self._told.setdefault(chain, told)
        known = self._at.setdefault(now.pc, [])
        size = pointers[-1] - now.sp
        plain = unwound.plain and not unwound.guesses
        if plain and len(known) < _MOST and 0 <= size <= _LARGEST and not size & 7:
            returns = {pointer - 8 - now.sp >> 3: place.pc for place, pointer in zip(places, pointers, strict=True)}
            words = tuple((at, value) for at, value in returns.items() if at >= 0)
            known.append(IdenticalStacks(now.sp, size, words, told, kernel))
        return told
