"""Where a thread's stack begins and ends, and whether it is used up.

A thread's own block (TEB) has ``StackBase`` at 8, ``StackLimit`` at 16 (the lowest committed address) and
``DeallocationStack`` at 0x1478, where its reserved memory begins. What a dump lacks of that is in the list of memory
regions, else only the part in the dump is known. Windows keeps the last pages of a stack for itself: the exception is
raised when one is touched (Microsoft Learn, *Thread Stack Size*).
"""

from __future__ import annotations

import struct

import msgspec

from necropsy.capture.windows.target import ProcessSnapshot
from necropsy.formats.minidump_records import ThreadRecord
from necropsy.formats.windows_exits import ACCESS_VIOLATION, STACK_OVERFLOW
from necropsy.model import Address, Stack

PAGE = 4096
_TEB = struct.Struct("<QQ")
_BASE_AT, _DEALLOCATION_AT = 8, 0x1478
_BASE_AT_32, _DEALLOCATION_AT_32, _SELF_AT_32 = 4, 0xE0C, 0x18
"""Of the block of 32-bit code; ``Self`` is its own address."""
_SECOND_BLOCK = 0x2000
_LARGEST = 1 << 40
_GUARDED = 16 * PAGE
"""At the lower end: the guard pages (one or two, more with SetThreadStackGuarantee) and the one that stays reserved."""
_GRANULARITY = 64 << 10
"""Windows reserves memory in multiples of it."""
_PROBE = 16 * PAGE
"""How far below the stack pointer ``__chkstk`` touches pages before it is moved."""


def of_thread(
    stopped: ProcessSnapshot, thread: ThreadRecord, pointer: int | None, *, narrow: bool = False
) -> Stack | None:
    """The stack of a thread by its stack pointer, or None; ``narrow``: it runs 32-bit code."""
    by_block = _by_block_of_32_bits if narrow else _by_block
    found = by_block(stopped, thread, pointer) or _by_regions(stopped, pointer)
    if found is None and thread.stack is not None and _inside(pointer, thread.stack.address, thread.stack.size):
        # The dump brings what was in use: where it ends, nobody says.
        found = None, thread.stack.address + thread.stack.size
    if found is None:
        return None
    low, high = found
    return Stack(
        low=Address(low) if low is not None else None,
        high=Address(high),
        size=high - low if low is not None else None,
        used=high - pointer if pointer is not None and pointer <= high else None,
        pointer=Address(pointer) if pointer is not None else None,
        is_main=thread.tid == stopped.main_tid,
    )


def _inside(pointer: int | None, low: int, size: int) -> bool:
    return pointer is None or low <= pointer <= low + size


def _by_block(stopped: ProcessSnapshot, thread: ThreadRecord, pointer: int | None) -> tuple[int | None, int] | None:
    """From the thread's own block, where it is in the dump and fits the stack pointer."""
    if not thread.teb or (stopped.system is not None and stopped.system.architecture not in {None, "x64", "ARM64"}):
        return None
    data = stopped.memory.exactly(thread.teb + _BASE_AT, _TEB.size)
    if data is None:
        return None
    high, limit = _TEB.unpack(data)
    low = stopped.memory.u64(thread.teb + _DEALLOCATION_AT)
    if low is None or not low <= limit < high:
        low = _reserved(stopped, limit)
    start = low if low is not None else limit
    if not 0 < high - start < _LARGEST or (pointer is not None and not start - _PROBE <= pointer <= high):
        return None  # it runs on another stack, a fiber's perhaps
    return low, high


def _by_block_of_32_bits(
    stopped: ProcessSnapshot, thread: ThreadRecord, pointer: int | None
) -> tuple[int | None, int] | None:
    """As ``_by_block``, from the block that 32-bit code knows.

    A 64-bit process has a second one (WOW64): the first word of its own points to it, two pages behind.
    """
    memory = stopped.memory
    is_own = stopped.system is not None and stopped.system.architecture == "x86"
    places = [thread.teb] if is_own else [memory.u32(thread.teb) or 0, thread.teb + _SECOND_BLOCK]
    for teb in places if thread.teb else ():
        data = memory.exactly(teb + _BASE_AT_32, 8)
        if data is None or (not is_own and memory.u32(teb + _SELF_AT_32) != teb):
            continue
        high, limit = struct.unpack("<II", data)
        low = memory.u32(teb + _DEALLOCATION_AT_32)
        if low is None or not low <= limit < high:
            low = _reserved(stopped, limit)
        start = low if low is not None else limit
        if high - start > 0 and (pointer is None or start - _PROBE <= pointer <= high):
            return low, high
    return None


def _reserved(stopped: ProcessSnapshot, address: int) -> int | None:
    """Where the memory begins that was reserved at once with that at ``address``."""
    one = stopped.regions.at(address) if stopped.regions is not None else None
    return one.allocation_base if one is not None and 0 < one.allocation_base <= address else None


def _by_regions(stopped: ProcessSnapshot, pointer: int | None) -> tuple[int | None, int] | None:
    """The reserved memory around the stack pointer: from its beginning to the end of its last piece."""
    regions = stopped.regions
    one = regions.at(pointer) if regions is not None and pointer is not None else None
    if regions is None or one is None or not one.allocation_base:
        return None
    low, high = one.allocation_base, one.base + one.size
    for _ in range(64):
        following = regions.at(high)
        if following is None or following.allocation_base != low:
            break
        high = following.base + following.size
    return (low, high) if 0 < high - low < _LARGEST else None


def judged(stack: Stack, code: int, address: int | None) -> Stack:
    """The crashed thread's stack, with ``guard_hit``: it was used up when exception ``code`` came, at ``address``."""
    low, pointer = stack.low, stack.pointer
    if code == STACK_OVERFLOW:
        return _full(stack, address)
    if code != ACCESS_VIOLATION or address is None or low is None or pointer is None:
        return stack
    near = low - _PROBE <= address < low + _GUARDED and pointer - _PROBE <= address
    return _full(stack, address) if near else msgspec.structs.replace(stack, guard_hit=False)


def by_header(stack: Stack, reserve: int | None, address: int | None) -> Stack:
    """A full stack with an unknown lower end, by its executable's ``reserve``, where the touched address fits."""
    if stack.low is not None or stack.high is None or not stack.guard_hit or not reserve or address is None:
        return stack
    size = -(-reserve // _GRANULARITY) * _GRANULARITY
    low = stack.high - size
    if not 0 < low <= address < low + _GUARDED:
        return stack
    return _full(msgspec.structs.replace(stack, low=Address(low), size=size), address)


def _full(stack: Stack, address: int | None) -> Stack:
    """What is below the touched page is the system's, and nothing that the stack could have grown into."""
    low, guard = stack.low, None
    if address is not None and low is not None and low <= address < low + _GUARDED:
        end = (address // PAGE + 1) * PAGE
        low, guard = Address(end), end - low
    return msgspec.structs.replace(stack, low=low, guard=guard, guard_hit=True)
