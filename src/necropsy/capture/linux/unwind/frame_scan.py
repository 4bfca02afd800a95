"""The way to the caller where no table says it: the chain of frame pointers, else the next return address."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

from necropsy.capture.linux.inspect.memory_map import MapEntry, MemoryMap
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import LARGE_FRAME, Cursor, NativeStack
from necropsy.capture.process.registers import Registers
from necropsy.model import Stack

OUTERMOST = frozenset({"_start", "clone", "clone3", "__clone", "__clone3", "_dl_start_user", "start_thread"})
"""Functions that nobody called."""
_SCANNED_WORDS = 4096
_CLONES = frozenset({56, 435})
"""The numbers of clone(2) and clone3(2) on x86-64."""
_SYSCALL = bytes.fromhex("0f05")


class FrameScan:
    """Walks the stacks of one process."""

    def __init__(self, maps: MemoryMap, memory: Memory, fits: Callable[[NativeStack, int], bool] | None = None) -> None:
        """``fits`` says whether the call before a return address can have led to the frame that was found last."""
        self._maps, self._memory, self._fits = maps, memory, fits

    def innermost(
        self,
        out: NativeStack,
        registers: Registers,
        stack: Stack | None,
        places: Callable[[int, bool], Sequence[CodeLocation]],
    ) -> Cursor | None:
        """The frame at which the thread stands; where no code is, its caller, and it is added to ``out`` itself."""
        if self._maps.executable_at(registers.rip):
            return Cursor(dict(registers.values), exact=True, listed=False)
        out.add(places(registers.rip, True), registers.rsp)
        return self.caller(out, registers.values, stack, called=True)

    def caller(
        self, out: NativeStack, state: Mapping[str, int], stack: Stack | None, *, called: bool = False
    ) -> Cursor | None:
        """The caller, where nothing says how to unwind: by frame pointer, or by a return address, as noted in ``out``.

        ``called``: the thread is at an address where there is no code.
        """
        pointer, frame_pointer = state.get("rsp", 0), state.get("rbp", 0)
        high = stack.high if stack is not None and stack.high is not None else pointer + (1 << 20)
        index = len(out)
        if called:
            # Nothing ran at the bad address: the call that led there has just pushed its return address.
            value = self._memory.u64(pointer)
            if value is not None and self.is_return_address(value):
                out.recover(index, "scan")
                return _found({**state, "rip": value, "rsp": pointer + 8})
        # Code that keeps no frame pointer leaves there that of a caller, who may be far away.
        by_pointer = None if called else self._by_frame_pointer(pointer, frame_pointer, high)
        if by_pointer is not None and frame_pointer - pointer <= LARGE_FRAME:
            out.recover(index, "frame-pointer")
            return by_pointer
        for at, value in self._words(pointer, high):
            if self.is_return_address(value) and (self._fits is None or self._fits(out, value)):
                out.recover(index, "scan")
                return _found({"rip": value, "rsp": at + 8, "rbp": frame_pointer if frame_pointer > at else 0})
        if by_pointer is not None:
            out.recover(index, "frame-pointer")
        return by_pointer

    def _by_frame_pointer(self, pointer: int, frame_pointer: int, high: int) -> Cursor | None:
        if not pointer <= frame_pointer < high or frame_pointer % 8:
            return None
        saved, value = self._memory.u64(frame_pointer), self._memory.u64(frame_pointer + 8)
        if saved is None or value is None or not self.is_return_address(value):
            return None
        return _found({"rip": value, "rsp": frame_pointer + 16, "rbp": saved})

    def _words(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        one = self._maps.at(low) or self._maps.above(low)
        # Where the stack is used up, its pointer is below the lowest page of it.
        low = (low if one is None else max(low, one.low)) + 7 & ~7
        high = min(high, self._end_of_alike(one, low + _SCANNED_WORDS * 8))
        data = self._memory.some(low, max(min(_SCANNED_WORDS * 8, high - low), 0))
        for index in range(len(data) // 8):
            yield low + index * 8, struct.unpack_from("<Q", data, index * 8)[0]

    def _end_of_alike(self, one: MapEntry | None, most: int) -> int:
        """Where the memory that ``one`` begins ends; a coroutine's stack may be right below a library's variables."""
        end = most
        while one is not None and (end := one.high) < most:
            after = self._maps.at(end)
            one = after if after is not None and after.path == one.path else None
        return end

    def is_return_address(self, value: int) -> bool:
        """Whether a call instruction stands right before it, in executable memory."""
        if not self._maps.executable_at(value - 1):
            return False
        code = self._memory.exactly(value - 7, 7)
        if code is None:
            return False
        if code[2] == 0xE8:
            return True
        return any(code[at] == 0xFF and code[at + 1] >> 3 & 7 == 2 for at in (5, 4, 3, 1, 0))


def is_outermost(out: NativeStack, registers: Registers, memory: Memory) -> bool:
    """Nobody called the last frame: its name says so, or the thread stands behind the clone(2) that made it."""
    if len(out) and out.places[-1].function in OUTERMOST:
        return True
    is_new = registers.values.get("orig_rax") in _CLONES and registers["rax"] == 0
    return is_new and len(out) == 1 and memory.exactly(registers.rip - 2, 2) == _SYSCALL


def _found(registers: Mapping[str, int]) -> Cursor:
    return Cursor(registers, listed=False)
