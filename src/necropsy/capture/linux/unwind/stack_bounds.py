"""Where a thread's stack begins and ends, and whether it was exhausted.

The kernel knows the stack of the main thread only (``[stack]``). That of another thread is a mapping like any other: it
is found from the thread's own control block, which glibc keeps at its top, and from the guard pages below it. The name
of a mapping decides nothing.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import msgspec

from necropsy.capture.linux.inspect.memory_map import MapEntry, MemoryMap
from necropsy.capture.process.memory import PAGE, Memory, Registers
from necropsy.model import Address, Stack

GAP_PAGES = 256
"""``stack_guard_gap``: what the kernel keeps free below a stack that grows (mm/mmap.c; not readable from outside)."""
_RED_ZONE = 128
_PROBE = 64 << 10
"""How far below the stack pointer a compiler's own probe may touch (``-fstack-check`` probes 3 to 4 pages ahead)."""
_FARTHEST = 1 << 40
"""Bytes below a stack beyond which no frame has moved its pointer, but something has overwritten it."""


def soft_limit(pid: int) -> int | None:
    """The soft RLIMIT_STACK of a process in bytes; -1 for unlimited, None where it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/limits").read_text()
    except OSError:
        return None
    match = re.search(r"^Max stack size\s+(\S+)", text, re.MULTILINE)
    if match is None:
        return None
    return -1 if match[1] == "unlimited" else int(match[1])


def of_thread(
    maps: MemoryMap, memory: Memory, registers: Registers, *, is_main: bool, limit: int | None
) -> Stack | None:
    """The thread's stack; None where not even a mapping under the stack pointer is known.

    ``guard_hit`` is left to ``exhausted``.
    """
    own = of_main(maps, limit, memory.page) if is_main else of_control_block(maps, memory, registers.thread_pointer)
    sp = registers.sp
    under = maps.at(sp)
    if own is not None and own.low is not None and own.high is not None:
        if own.low <= sp <= own.high or not _elsewhere(own, under, registers):
            return _with_pointer(own, sp)
        return Stack(pointer=Address(sp), is_main=is_main, is_alternate=True)
    if under is None or not under.writable:
        # Without a control block (musl, clone by hand): a large frame has jumped down from the next stack above.
        above = maps.writable_from(sp)
        return None if above is None else _with_pointer(_from_mapping(maps, above), sp)
    return _with_pointer(_from_mapping(maps, under), sp)


def _with_pointer(stack: Stack, sp: int) -> Stack:
    used = None if stack.high is None else max(stack.high - sp, 0)
    return Stack(
        low=stack.low,
        high=stack.high,
        size=stack.size,
        used=used,
        guard=stack.guard,
        pointer=Address(sp),
        is_main=stack.is_main,
    )


def _elsewhere(own: Stack, under: MapEntry | None, registers: Registers) -> bool:
    """Whether the thread runs on another stack on purpose (a signal's, a coroutine's), not below its own by a jump."""
    if own.low is None or own.high is None:
        return False
    if under is None or not under.writable:
        return False
    jumped = registers.sp < own.low and own.low <= registers.fp < own.high
    return not jumped


def of_main(maps: MemoryMap, limit: int | None, page: int = PAGE) -> Stack | None:
    """The main thread's stack as far as it has grown; ``limit`` is the soft RLIMIT_STACK, see ``soft_limit``."""
    stack = maps.named("[stack]")
    if stack is None:
        return None
    # Pages of the stack that got other permissions (executable stacks, protected pages) are lines of their own.
    low = stack.low
    while (below := maps.at(low - 1)) is not None and below.path == "[stack]":
        low = below.low
    high = max(one.high for one in maps if one.path == "[stack]")
    size = None if limit is None or limit < 0 else limit
    return Stack(low=Address(low), high=Address(high), size=size, guard=GAP_PAGES * page, is_main=True)


def of_control_block(maps: MemoryMap, memory: Memory, thread_pointer: int) -> Stack | None:
    """From ``stackblock``, ``stackblock_size`` and ``guardsize`` of the thread's ``struct pthread`` of glibc.

    These lie next to each other, in glibc 2.17 to 2.41 for x86-64 from 0x690 on; they are recognised, not assumed.
    """
    first, last = memory.processor.control_block
    data = memory.some(thread_pointer + first, last - first + 24)
    words = struct.unpack(f"<{len(data) // 8}Q", data[: len(data) & ~7])
    for block, size, guard in zip(words, words[1:], words[2:], strict=False):
        if not (block < thread_pointer < block + size and 0 < size < 1 << 44 and guard < size):
            continue
        # User-given stacks (pthread_attr_setstack) need not be aligned to pages and have no guard of glibc's.
        if block + size - thread_pointer > 1 << 16 or guard % memory.page:
            continue
        low = block + guard
        if maps.at(low) is None:
            continue
        low = _above_zones(maps, low, thread_pointer)
        return Stack(low=Address(low), high=Address(block + size), size=block + size - low, guard=low - block)
    return around(maps, thread_pointer)


def around(maps: MemoryMap, address: int) -> Stack | None:
    """The mapping around an address on a thread's stack, if it lies above a guard page."""
    holder = maps.at(address)
    if holder is None or not holder.writable or holder.path == "[heap]":
        return None
    guard_map = maps.at(holder.low - 1)
    if guard_map is None or guard_map.permissions[:3] != "---":
        return None
    return _from_mapping(maps, holder)


def _above_zones(maps: MemoryMap, low: int, limit: int) -> int:
    """The lowest byte that may be used: a runtime can protect pages at a stack's end itself (HotSpot)."""
    while (zone := maps.at(low)) is not None and zone.permissions[:3] == "---" and zone.high < limit:
        low = zone.high
    return low


def _from_mapping(maps: MemoryMap, mapping: MapEntry) -> Stack:
    below = maps.at(mapping.low - 1)
    guard = below.high - below.low if below is not None and below.permissions[:3] == "---" else None
    return Stack(
        low=Address(mapping.low),
        high=Address(mapping.high),
        size=mapping.high - mapping.low,
        guard=guard,
        is_main=mapping.path == "[stack]",
    )


def as_at_the_fault(stack: Stack, fault_address: int | None, page_size: int = PAGE) -> Stack:
    """The stack as it was when nothing was mapped at ``fault_address`` (SEGV_MAPERR).

    The kernel lets a main thread's stack grow when another process reads below it, too, and then up to the limit of the
    reader. Only what is within the limit of its own process was there before.
    """
    if fault_address is None or not stack.is_main or stack.low is None or stack.high is None or stack.size is None:
        return stack
    page = fault_address & -page_size
    if not stack.low <= fault_address < stack.high or stack.high - page <= stack.size:
        return stack
    return msgspec.structs.replace(stack, low=Address(page + page_size))


def exhausted(stack: Stack, fault_address: int | None) -> bool | None:
    """Whether the access at ``fault_address`` was to this stack, below its lowest byte; None where unknown.

    Any instruction counts: a ``mov`` overflows a stack as well as a ``call``. An access to the stack is at or above the
    stack pointer (less the red zone, or what a probe of the compiler touches ahead of it).
    """
    if fault_address is None or stack.low is None or stack.pointer is None:
        return None
    if fault_address >= stack.low or stack.low - stack.pointer > _FARTHEST:
        return False
    reach = stack.pointer - _RED_ZONE - 8 - _PROBE
    return fault_address >= reach
