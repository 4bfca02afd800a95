"""Faults that a program's own handlers took: which are kept, and which handlers still run.

While a handler runs, its signal frame is on the stack, with the interrupted stack pointer and program counter side by
side (``struct sigcontext`` of the kernel). A handler that has returned may leave the same bytes behind, so without
other proof that the program died of the fault, the signal must still be blocked, as it is while its handler runs, or
the thread must be on another stack than the interrupted code.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.crash_context import FirstChance
from necropsy.capture.linux.supervise.ptrace import HERE
from necropsy.capture.linux.supervise.traced_processes import status_of

KEPT = 16
"""Faults of one thread that are kept, as ``KEPT_CHANCES`` of csrc/signals.c."""
_STUCK_S = 1.0
"""A handler that has run for so long does not come back: those that repair something take microseconds."""
_REACH = 256 * 1024
"""How far above the stack pointer of a handler's callee its signal frame is looked for, in bytes."""
_WORD = struct.Struct("<Q")

Chances = Mapping[int, tuple[FirstChance, ...]]
"""By thread, the last one first."""


def remembered(before: tuple[FirstChance, ...], new: FirstChance) -> tuple[FirstChance, ...]:
    """What is kept of a thread after one more fault.

    After a fault at the stack pointer of an earlier one, the interrupted code runs again: that handler has returned. Of
    too many, those are dropped whose handlers have returned, and then the last one: the first of them count.
    """
    pointer = _at(new, HERE.pointer)
    kept = tuple(one for one in before if _at(one, HERE.pointer) != pointer)
    if len(kept) >= KEPT:
        try:
            with contextlib.closing(_Memory(new.tid)) as memory:
                kept = tuple(one for one, _ in _unfinished(memory, pointer, kept))
        except OSError:
            kept = ()
    return (new, *kept[1 if len(kept) >= KEPT else 0 :])


def unfinished(pid: int, dying_tid: int, chances: Chances, stopped: Collection[int]) -> FirstChance | None:
    """The fault before a fatal signal: the dying thread's own, else a stopped thread's; the first that is certain."""
    for tid in (dying_tid, *(tid for tid in chances if tid != dying_tid)):
        found = _first(pid, tid, chances.get(tid, ()), proved=False) if tid in stopped else None
        if found is not None:
            return found
    return None


def left_by(pid: int, tid: int, chances: Chances) -> FirstChance | None:
    """The fault whose handler ends the process: ``tid`` stands in its exit_group(2), called by that handler."""
    if tid not in chances:
        return None
    try:
        registers = ptrace.getregset(tid)
    except OSError:
        return None
    if len(registers) != ptrace.REGISTERS_SIZE or HERE.in_call(registers) != HERE.calls["exit_group"]:
        return None
    found = _first(pid, tid, chances[tid], proved=True) or _told(pid, chances[tid])
    return None if found is None else replace(found, is_why=True)


def _told(pid: int, kept: tuple[FirstChance, ...]) -> FirstChance | None:
    """The fault that a Java virtual machine names in its error file."""
    from necropsy.capture.linux.inspect import jvm_error_file  # few programs end after a handled fault

    place = jvm_error_file.fault_of(pid)
    return next((one for one in kept if place is not None and _at(one, HERE.counter) == place), None)


def stuck(pid: int, chances: Chances, stopped: Collection[int]) -> FirstChance | None:
    """The fault whose handler does not come to an end."""
    for tid, kept in chances.items():
        found = _first(pid, tid, kept, proved=True) if tid in stopped else None
        if found is not None and time.monotonic() > found.at + _STUCK_S:
            return replace(found, is_why=True)
    return None


def _is_fault(chance: FirstChance) -> bool:
    """The processor raised it (``si_code`` above 0); a handler that passes it on to another one sends it."""
    return int(struct.unpack_from("<i", chance.siginfo, 8)[0]) > 0


def number_of(chance: FirstChance) -> int:
    """The signal."""
    return int(struct.unpack_from("<i", chance.siginfo)[0])


# ---------------------------------------------------------------- signal frames


class _Memory:
    def __init__(self, pid: int) -> None:
        self._handle = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        os.close(self._handle)

    def above(self, pointer: int) -> bytes:
        try:
            return os.pread(self._handle, _REACH, pointer)
        except (OSError, OverflowError):
            return b""


def _at(chance: FirstChance, name: str) -> int:
    return HERE.word(chance.registers, name) if len(chance.registers) == ptrace.REGISTERS_SIZE else 0


def _unfinished(
    memory: _Memory, pointer: int, kept: tuple[FirstChance, ...]
) -> Iterator[tuple[FirstChance, tuple[int, int]]]:
    """The faults whose signal frames are on the stack, above later ones'; their stack pointers and blocked signals."""
    stack = memory.above(pointer)
    for one in kept:
        if len(one.registers) != ptrace.REGISTERS_SIZE:
            continue
        place = stack.find(_WORD.pack(_at(one, HERE.pointer)) + _WORD.pack(_at(one, HERE.counter)))
        if place < 0:
            continue
        mask = stack[max(place + HERE.to_mask, 0) :][:8]
        yield one, (pointer, _WORD.unpack(mask)[0] if len(mask) == _WORD.size else 0)
        pointer = _at(one, HERE.pointer)
        stack = memory.above(pointer)


def _first(pid: int, tid: int, kept: tuple[FirstChance, ...], *, proved: bool) -> FirstChance | None:
    try:
        registers = ptrace.getregset(tid)
        if len(registers) != ptrace.REGISTERS_SIZE:
            return None
        pointer, counter = HERE.word(registers, HERE.pointer), HERE.word(registers, HERE.counter)
        # The instruction was repeated. It says nothing of a signal that was sent: raise() sends each at one place.
        if not proved and kept and _is_fault(kept[0]) and counter == _at(kept[0], HERE.counter):
            return kept[0]
        with contextlib.closing(_Memory(pid)) as memory:
            live = list(_unfinished(memory, pointer, kept))
    except OSError:
        return None
    found: FirstChance | None = None
    blocked = int(status_of(tid).get("SigBlk", "0"), 16) if live else 0
    for one, (inside, mask) in live:
        if blocked >> (number_of(one) - 1) & 1 or not _on_one_stack(pid, inside, _at(one, HERE.pointer)):
            found, blocked = one, mask
        elif not proved and (found is None or not _is_fault(found)):
            found = one
    return found


def _on_one_stack(pid: int, one: int, other: int) -> bool:
    """Both addresses are in one mapping, or it is not known."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as maps:  # noqa: PTH123 - a file of thousands of lines, read in part
            for line in maps:
                low, _, high = line.split(b" ", 1)[0].partition(b"-")
                holds = [int(low, 16) <= address < int(high, 16) for address in (one, other)]
                if any(holds):
                    return all(holds)
    except (OSError, ValueError):
        pass
    return True
