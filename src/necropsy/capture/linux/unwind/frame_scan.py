"""The way to the caller where no table says it: the chain of frame pointers, else the next return address."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

from necropsy.capture.linux.inspect.memory_map import MapEntry, MemoryMap
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.memory import Memory, Registers
from necropsy.capture.process.native_stack import LARGE_FRAME, Cursor, NativeStack, call_target
from necropsy.formats.processors import Processor
from necropsy.model import Stack

OUTERMOST = frozenset({"_start", "clone", "clone3", "__clone", "__clone3", "_dl_start_user", "start_thread"})
"""Functions that nobody called."""
_SCANNED_WORDS = 4096
_SETS_UP = b"\x55\x48\x89\xe5"
"""``push rbp; mov rbp, rsp``"""
_FUNCTIONS_WITHOUT = 16 << 10
"""Bytes of code that have at least one of them where functions keep frame pointers; musl's libc has one in 175,000."""
_SEARCHED_CODE = 4 << 20


class FrameScan:
    """Walks the stacks of one process."""

    def __init__(self, maps: MemoryMap, memory: Memory, fits: Callable[[NativeStack, int], bool] | None = None) -> None:
        """``fits`` says whether the call before a return address can have led to the frame that was found last."""
        self._maps, self._memory, self._fits = maps, memory, fits
        self._processor = memory.processor
        self._mask = memory.processor.link_mask
        self._kept_in: dict[int, bool] = {}

    def innermost(
        self,
        out: NativeStack,
        registers: Registers,
        stack: Stack | None,
        places: Callable[[int, bool], Sequence[CodeLocation]],
    ) -> Cursor | None:
        """The frame at which the thread stands; where no code is, its caller, and it is added to ``out`` itself."""
        if self._maps.executable_at(registers.pc):
            return Cursor(dict(registers.values), exact=True, listed=False)
        out.add(places(registers.pc, True), registers.sp)
        return self.caller(out, Cursor(registers.values, exact=True), stack, called=True)

    def caller(self, out: NativeStack, start: Cursor, stack: Stack | None, *, called: bool = False) -> Cursor | None:
        """The caller, where nothing says how to unwind: by frame pointer, or by a return address, as noted in ``out``.

        ``called``: the thread is at an address where there is no code.
        """
        state, cpu = start.registers, self._processor
        pointer, frame_pointer = state.get(cpu.pointer, 0), state.get(cpu.frame, 0)
        high = stack.high if stack is not None and stack.high is not None else pointer + (1 << 20)
        index = len(out)
        if cpu.link is not None and start.exact and (by_link := self._by_link(state, cpu.link, called=called)):
            out.recover(index, "scan" if called else "frame-pointer")
            return by_link
        if called and cpu.link is None:
            # Nothing ran at the bad address: the call that led there has just pushed its return address.
            value = self._memory.u64(pointer)
            if value is not None and self.is_return_address(value):
                out.recover(index, "scan")
                return _found({**state, cpu.counter: value, cpu.pointer: pointer + 8})
        # Code that keeps no frame pointer leaves there that of a caller, who may be far away.
        by_pointer = None if called else self._by_frame_pointer(pointer, frame_pointer, high)
        if by_pointer is not None and frame_pointer - pointer <= LARGE_FRAME:
            if (nearer := self._below_frame(state.get(cpu.counter, 0), pointer, frame_pointer)) is not None:
                out.recover(index, "scan")
                return nearer
            out.recover(index, "frame-pointer")
            return by_pointer
        for at, value in self._words(pointer, high):
            if self.is_return_address(value) and (self._fits is None or self._fits(out, value)):
                out.recover(index, "scan")
                frame = frame_pointer if frame_pointer > at else 0
                if cpu.link is not None:
                    # It stands in a frame's record, behind the caller's frame pointer.
                    frame = self._memory.u64(at - 8) or 0
                return _found({cpu.counter: value, cpu.pointer: at + 8, cpu.frame: frame})
        if by_pointer is not None:
            out.recover(index, "frame-pointer")
        return by_pointer

    def _by_frame_pointer(self, pointer: int, frame_pointer: int, high: int) -> Cursor | None:
        if not pointer <= frame_pointer < high or frame_pointer % 8:
            return None
        saved, value = self._memory.u64(frame_pointer), self._memory.u64(frame_pointer + 8)
        if value is not None and self._mask is not None:
            value &= self._mask
        if saved is None or value is None or not self._may_return_to(value):
            return None
        cpu = self._processor
        return _found({cpu.counter: value, cpu.pointer: frame_pointer + 16, cpu.frame: saved})

    def _below_frame(self, pc: int, pointer: int, frame_pointer: int) -> Cursor | None:
        """The caller of a function that keeps no frame pointer, so that the chain of them begins at the caller's.

        Files whose functions keep none (musl's libc) are known by their code. Older calls leave return addresses on the
        stack too, so one counts only if the call before it leads into this file.
        """
        cpu, own = self._processor, self._maps.at(pc)
        if cpu.link is not None or own is None or not own.is_file or self._keeps_frame_pointers(own):
            return None
        for at, value in self._words(pointer, frame_pointer):
            if not self.is_return_address(value) or (called := self._maps.at(self._called(value))) is None:
                continue
            if called.path == own.path:
                return _found({cpu.counter: value, cpu.pointer: at + 8, cpu.frame: frame_pointer})
        return None

    def _keeps_frame_pointers(self, one: MapEntry) -> bool:
        if one.low not in self._kept_in:
            code = self._memory.some(one.low, min(one.high - one.low, _SEARCHED_CODE))
            self._kept_in[one.low] = code.count(_SETS_UP) * _FUNCTIONS_WITHOUT >= len(code)
        return self._kept_in[one.low]

    def _called(self, value: int) -> int:
        """Where the call before a return address led (x86-64), through a stub of the linker too; 0: not known."""
        from necropsy.formats.call_graph import STUB

        code = self._memory.exactly(value - 6, 6)
        if code is not None and code[:2] == b"\xff\x15":
            return self._memory.u64(value + struct.unpack("<i", code[2:])[0]) or 0
        target = call_target(self._memory, value)
        if target is None:
            return 0
        stub = STUB.match(self._memory.some(target, 16))
        if stub is None:
            return target
        (distance,) = struct.unpack("<i", stub[1])
        return self._memory.u64(target + stub.end() + distance) or 0

    def _by_link(self, state: Mapping[str, int], link: str, *, called: bool) -> Cursor | None:
        """The caller whose return address is still in its register; None where the function has saved it.

        ``called``: the register is what the call to nowhere left there, unless a return led to it. Where the code
        cannot be read, a return address into another file was not left by a call that this function made.
        """
        cpu = self._processor
        pc, frame = state.get(cpu.counter, 0), state.get(cpu.frame, 0)
        value = state.get(link, 0) & (self._mask or -1)
        if value == pc or not self._may_return_to(value):
            return None
        if not called:
            from necropsy.formats import arm64_code

            def code(at: int) -> bytes:
                return self._memory.some(at, 4)

            where = arm64_code.link(code, pc)
            if where == "saved":
                return None
            if where is None:
                # A function that does not return shows nothing behind `pc`.
                begin = arm64_code.call_target(self._memory.u32(value - 4) or 0, value - 4)
                if begin is not None and arm64_code.kept_since(code, begin, pc):
                    return _found({**state, cpu.counter: value})
                own, other = self._maps.at(pc), self._maps.at(value - 4)
                same = own is not None and other is not None and own.path == other.path
                saved = (self._memory.u64(frame + 8) or 0) & (self._mask or -1)
                if same or saved == value:
                    return None
        return _found({**state, cpu.counter: value})

    def _words(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        one = self._maps.at(low) or self._maps.above(low)
        # Where the stack is used up, its pointer is below the lowest page of it.
        low = (low if one is None else max(low, one.low)) + 7 & ~7
        high = min(high, self._end_of_alike(one, low + _SCANNED_WORDS * 8))
        data = self._memory.some(low, max(min(_SCANNED_WORDS * 8, high - low), 0))
        for index in range(len(data) // 8):
            value: int = struct.unpack_from("<Q", data, index * 8)[0]
            yield low + index * 8, value if self._mask is None else value & self._mask

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
        if self._processor.link is not None:
            return self._behind_a_call_of_arm(value) is True
        code = self._memory.exactly(value - 7, 7)
        if code is None:
            return False
        if code[2] == 0xE8:
            return True
        return any(code[at] == 0xFF and code[at + 1] >> 3 & 7 == 2 for at in (5, 4, 3, 1, 0))

    def _may_return_to(self, value: int) -> bool:
        """As ``is_return_address``, also where the code is not at hand, if only such code leads there (AArch64)."""
        if self._processor.link is None:
            return self.is_return_address(value)
        return self._maps.executable_at(value - 1) and self._behind_a_call_of_arm(value) is not False

    def _behind_a_call_of_arm(self, value: int) -> bool | None:
        """Whether ``BL`` or a form of ``BLR`` stands before; None where the code cannot be read."""
        word = None if value & 3 else self._memory.u32(value - 4)
        if word is None:
            return False if value & 3 else None
        return word & 0xFC000000 == 0x94000000 or word & 0xFEFFF000 == 0xD63F0000


def is_outermost(out: NativeStack, registers: Registers, memory: Memory) -> bool:
    """Nobody called the last frame: its name says so, or the thread stands behind the clone(2) that made it."""
    if len(out) and out.places[-1].function in OUTERMOST:
        return True
    cpu = registers.processor
    is_new = registers.values.get(cpu.call_number) in cpu.clones and registers[cpu.call_result] == 0
    size = len(cpu.system_call)
    return is_new and len(out) == 1 and memory.exactly(registers.pc - size, size) == cpu.system_call


def ends_chain(at: Cursor, processor: Processor) -> bool:
    """A frame pointer of 0 marks the first frame where the processor's calls keep one (AArch64)."""
    return processor.link is not None and not at.exact and at.registers.get(processor.frame) == 0


def _found(registers: Mapping[str, int]) -> Cursor:
    return Cursor(registers, listed=False)
