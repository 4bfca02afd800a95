"""A thread's stack where it is not its own: a signal's alternate one, or a coroutine's.

The stack pointer alone cannot tell: a function whose frame is too large for the thread's own stack leaves the pointer
in foreign memory too. But its caller's frame is on the thread's own stack, with only a call between the two. From a
signal's stack the way back leads through the kernel's record of the interrupted code. A coroutine's stack leads nowhere
else: its first frame has no tables, and the frame pointer there is an old one.
"""

from __future__ import annotations

from necropsy.capture.linux.inspect.memory_map import MapEntry, MemoryMap
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import NativeStack
from necropsy.model import Address, Stack

_TO_SIZE = 16
"""From ``ss_sp`` to ``ss_size`` in ``stack_t``."""
_LARGEST = 1 << 40


def watch(maps: MemoryMap, stack: Stack | None, unwound: NativeStack) -> None:
    """Have ``unwound`` note what ``ran_on`` will ask for; before its first frame is added."""
    region = None if stack is None else _region(maps, stack)
    if region is not None:
        unwound.watch(region.low, region.high)


def _region(maps: MemoryMap, stack: Stack) -> MapEntry | None:
    """The mapping of a stack that the thread's pointer is on instead of ``stack``."""
    pointer = stack.pointer
    if pointer is None or (stack.low is not None and stack.high is not None and stack.low <= pointer <= stack.high):
        return None
    region = maps.writable_from(pointer)
    if region is None or (stack.low is not None and region.low <= stack.low < region.high):
        return None
    return region


def ran_on(maps: MemoryMap, memory: Memory, stack: Stack, unwound: NativeStack) -> Stack:
    """``stack``, or the one that the thread had been moved to; ``unwound`` then knows where it was moved.

    ``stack`` is what ``stack_bounds.of_thread`` found; its ``guard_hit`` is left to ``exhausted`` there either way.
    """
    pointer, region, stay = stack.pointer, _region(maps, stack), unwound.stay
    if pointer is None or region is None or stay is None:
        return stack
    returns = memory.processor.returns_from_signal
    interrupted = memory.exactly(stay.place.pc, len(returns)) == returns
    # AArch64's coroutines begin in a function with tables (``__start_context``), which takes nothing of their stack.
    beyond = stay.following is not None and stay.following != region.high
    called = beyond and not stay.recovered and stay.place.unwinds is not False
    if not interrupted and (called or stay.end == 0 or "scan" in unwound.guesses):
        return stack
    unwound.switched.add(stay.end)
    at = stay.pointer
    low, high = _given(memory, at) if interrupted else (0, 0)
    if not (high - low < _LARGEST and region.low <= low <= at < high <= region.high):
        # A mapping may hold more than this stack above it, and it begins where the outermost frame is.
        low, high = region.low, min(at + memory.page - 1 & -memory.page, region.high)
    return Stack(
        low=Address(low),
        high=Address(high),
        size=high - low,
        used=max(high - pointer, 0),
        pointer=Address(pointer),
        is_main=stack.is_main,
        is_alternate=True,
    )


def _given(memory: Memory, context: int) -> tuple[int, int]:
    """The arguments of ``sigaltstack``, by the kernel's record at ``context``; 0, 0 where it cannot be read.

    ``context`` is the stack pointer when the handler has returned.
    """
    at = context + memory.processor.to_signal_stack
    low, size = memory.u64(at), memory.u64(at + _TO_SIZE)
    return (low, low + size) if low and size else (0, 0)
