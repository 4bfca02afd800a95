"""How much of its stack each thread ever used, read from the pages that it touched."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from necropsy.capture.linux.inspect import memory_map, registers, resident_pages
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.unwind import stack_bounds
from necropsy.capture.process.memory import Memory
from necropsy.model import Stack, StackUse


def stack_use(pid: int, tids: Sequence[int]) -> tuple[StackUse, ...]:
    """The high-water mark of each ptrace-stopped thread's stack in bytes, None where it could not be read.

    A stack's pages stay until its thread ends, so the lowest one that is present or swapped out shows its greatest
    depth, to a page (``/proc/PID/pagemap``, Documentation/admin-guide/mm/pagemap.rst). The top holds what the kernel or
    the C library put there before the first frame (arguments and environment; a thread's control block), a few KiB.
    """
    try:
        mappings, limit = memory_map.read(pid), stack_bounds.soft_limit(pid)
        with ProcessMemory(pid) as memory:
            return tuple(_of_thread(pid, tid, mappings, memory, limit) for tid in tids)
    except OSError:
        return tuple(StackUse(tid=tid, name=_name(pid, tid)) for tid in tids)


def _of_thread(pid: int, tid: int, mappings: memory_map.MemoryMap, memory: Memory, limit: int | None) -> StackUse:
    name = _name(pid, tid)
    try:
        values = registers.read(tid)
    except OSError:
        return StackUse(tid=tid, name=name)
    stack = stack_bounds.of_thread(mappings, memory, values, is_main=tid == pid, limit=limit)
    if stack is None or stack.is_alternate:
        return StackUse(tid=tid, name=name)
    return StackUse(tid=tid, name=name, size=stack.size, peak=_peak(pid, stack))


def _peak(pid: int, stack: Stack) -> int | None:
    if stack.low is None or stack.high is None:
        return None
    try:
        lowest = next(resident_pages.ranges(pid, stack.low, stack.high), None)
    except (OSError, resident_pages.TooLargeError):
        return None
    return None if lowest is None else stack.high - max(lowest[0], stack.low)


def peak_rss(pid: int) -> int | None:
    """The most memory that the process had resident at once (``VmHWM``), in bytes."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
    except OSError:
        return None
    match = re.search(r"^VmHWM:\s+(\d+) kB", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _name(pid: int, tid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/task/{tid}/comm").read_text(errors="replace").rstrip("\n") or None
    except OSError:
        return None
