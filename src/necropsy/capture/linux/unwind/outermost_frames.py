"""The outer end of a stack that could not be read to its end: where it began is worth as much as where it died.

Each word up there that may be a return address is followed, from the lowest upwards; the first that leads to the
thread's first function is taken.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Container, Iterator

from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import Cursor, NativeStack
from necropsy.model import Stack

LATE = "the time for reading it was used up"
LONGEST_S = 1.0
"""What looking for the other end may take, after the time for the stack is over."""
_SEARCHED = 256 << 10
"""Bytes below the end of the stack."""
_MOST_TRIES = 64
_FEWEST = 3
"""Frames that lead to the thread's first function by chance are fewer."""


def read(
    out: NativeStack,
    memory: Memory,
    stack: Stack | None,
    known: Container[int],
    follow: Callable[[NativeStack, Cursor, float], None],
) -> None:
    """Where the time for ``out`` was up: add its outer end, and about how many frames it has in all.

    ``known``: return addresses on the stack; ``follow`` adds a frame and its callers until a deadline (monotonic, s).
    """
    if out.why != LATE or stack is None or stack.high is None or len(out) < 2:
        return
    last, high = out.pointers[-1], stack.high
    if not out.pointers[0] <= last < high:
        return
    deadline = time.monotonic() + LONGEST_S
    for at in _starts(memory, max(last, high - _SEARCHED), high, known):
        found = NativeStack()
        found.recover(0, "scan")
        follow(found, at, deadline)
        if found.complete and len(found) >= _FEWEST:
            out.outer = found
            break
        if time.monotonic() > deadline:
            break
    end = high if out.outer is None else out.outer.pointers[0]
    each = (last - out.pointers[0]) / (len(out) - 1)
    more = len(out.outer) if out.outer is not None else 0
    out.estimate = len(out) + more + (round(max(end - last, 0) / each) if each else 0)


def _starts(memory: Memory, low: int, high: int, known: Container[int]) -> Iterator[Cursor]:
    """Frames that may begin in ``[low, high)``, the innermost first."""
    low = low + 7 & ~7
    data = memory.some(low, max(high - low, 0))
    words = array("Q", data[: len(data) & ~7])
    tries, mask = 0, memory.processor.link_mask
    for index, word in enumerate(words):
        value = word if mask is None else word & mask
        if value not in known:
            continue
        pointer = low + index * 8 + 8
        # Where the callee keeps frame pointers, its caller's lies below the return address.
        below = words[index - 1] if index else 0
        cpu = memory.processor
        registers = {cpu.counter: value, cpu.pointer: pointer}
        if pointer <= below < high:
            registers[cpu.frame] = below
        yield Cursor(registers, listed=False)
        tries += 1
        if tries >= _MOST_TRIES:
            return
