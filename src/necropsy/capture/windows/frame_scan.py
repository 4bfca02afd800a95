"""The way to the caller where no table says it: by frame pointer, or by the next return address on the stack."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from necropsy.capture.process.native_stack import LARGE_FRAME, Cursor, NativeStack
from necropsy.capture.windows.call_sites import CallSites
from necropsy.capture.windows.modules import ModuleImages
from necropsy.capture.windows.target import MemoryRegions

_SCANNED_WORDS = 4096
_ENDS = frozenset({"jmp", "int3", "hlt", "ud2"})
_LONGEST_HELPER = 256
"""Bytes of a function without tables that are read on to its return."""


class FrameScan(CallSites):
    """Looks for callers in the memory of one process of x64."""

    def __init__(self, images: ModuleImages, regions: MemoryRegions | None) -> None:
        """``regions``: which memory is executable, where that is known."""
        super().__init__(images, regions)
        self._images, self._memory = images, images.memory

    def any_between(self, low: int, high: int) -> bool:
        """Whether something between two places of a stack may be a return address."""
        return any(self.may_return_to(value) for _, value in self._words(low, high) if value)

    # -- callers ------------------------------------------------------------------------------------------------------

    def caller(self, out: NativeStack, at: Cursor, high: int | None, *, called: bool = False) -> Cursor | None:
        """The caller of the last frame in ``out``, where nothing says how to unwind, as noted there.

        ``called``: the thread is at an address where there is no code.
        """
        state, index = at.registers, len(out)
        pointer, frame_pointer = state.get("rsp", 0), state.get("rbp", 0)
        high = pointer + (1 << 20) if high is None else high
        if called or at.exact:
            # Nothing ran at a bad address: the call that led there has just pushed its return address. And small
            # helpers without tables have pushed a few registers, if anything.
            pushed = 0 if called else self.pushed(state.get("rip", 0))
            value = None if pushed is None else self._memory.u64(pointer + pushed)
            if value is not None and pushed is not None and self.returns_to(value):
                out.recover(index, "scan")
                return _found({**state, "rip": value, "rsp": pointer + pushed + 8})
        by_pointer = None if called else self._by_frame_pointer(pointer, frame_pointer, high)
        if by_pointer is not None and frame_pointer - pointer <= LARGE_FRAME:
            out.recover(index, "frame-pointer")
            return by_pointer
        found = self._scanned(state.get("rip", 0), pointer, high)
        if found is not None:
            where, value = found
            out.recover(index, "scan")
            return _found({"rip": value, "rsp": where + 8, "rbp": frame_pointer if frame_pointer > where else 0})
        if by_pointer is not None:
            out.recover(index, "frame-pointer")
        return by_pointer

    def _scanned(self, rip: int, pointer: int, high: int) -> tuple[int, int] | None:
        """The next word that is a return address, or may be one in a module whose code is missing."""
        here = self._images.at(rip)
        return self.returning(self._words(pointer, high), None if here is None else here.begin_of(rip), here)

    def _by_frame_pointer(self, pointer: int, frame_pointer: int, high: int) -> Cursor | None:
        if not pointer <= frame_pointer < high or frame_pointer % 8:
            return None
        saved, value = self._memory.u64(frame_pointer), self._memory.u64(frame_pointer + 8)
        if saved is None or value is None or not self.returns_to(value):
            return None
        return _found({"rip": value, "rsp": frame_pointer + 16, "rbp": saved})

    def pushed(self, rip: int) -> int | None:
        """Distance of the return address by the instructions up to the return: ``___chkstk_ms`` has no table."""
        try:
            import capstone
        except ImportError:
            return 0
        code = self._memory.some(rip, _LONGEST_HELPER)
        distance = 0
        for _, _, mnemonic, operands in capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64).disasm_lite(code, rip):
            if mnemonic.startswith("pop"):
                distance += 8
            elif mnemonic.startswith("push"):
                distance -= 8
            elif mnemonic in {"ret", "retn"}:
                return distance if distance >= 0 else None
            elif mnemonic in {"add", "sub"} and operands.startswith("rsp,"):
                try:
                    size = int(operands.split(",")[1], 0)
                except ValueError:
                    return None
                distance += size if mnemonic == "add" else -size
            elif mnemonic in _ENDS or (operands.startswith("rsp,") and mnemonic not in {"cmp", "test"}):
                return None
        return None

    def _words(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        low = low + 7 & ~7
        data = self._memory.some(low, max(min(_SCANNED_WORDS * 8, high - low), 0))
        for index, (value,) in enumerate(struct.iter_unpack("<Q", data[: len(data) & ~7])):
            yield low + index * 8, value


def _found(registers: dict[str, int]) -> Cursor:
    return Cursor(registers, listed=False)
