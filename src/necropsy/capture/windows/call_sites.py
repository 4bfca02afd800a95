"""Where a call may return to: executable memory, with a call right before it where the code is at hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from necropsy.capture.windows.modules import ModuleImages
from necropsy.capture.windows.target import MemoryRegions
from necropsy.formats.minidump_records import COMMITTED, GUARD

_EXECUTE = 0xF0
"""``PAGE_EXECUTE``, ``_READ``, ``_READWRITE``, ``_WRITECOPY``."""
_FIRST_CODE = 0x1000
"""The headers of an image are no code."""
_LONGEST_CALL = 7
_MOST_KNOWN = 1 << 17


class Call(NamedTuple):
    """A call instruction: whether it is one, None where nothing tells; where it leads to, where it says so itself."""

    stands: bool | None
    target: int | None = None


class CallSites:
    """Answers for the memory of one process; each address is asked about once."""

    def __init__(
        self, images: ModuleImages, regions: MemoryRegions | None, *, arm64: bool = False, mask: int = (1 << 64) - 1
    ) -> None:
        """``regions``: which memory is executable, where known; ``arm64``: else x86; ``mask``: of an address."""
        self._images, self._memory, self._regions = images, images.memory, regions
        self._find_call = self._of_arm64 if arm64 else self._of_x86
        self._mask = mask
        self._calls: dict[int, Call] = {}

    def executable(self, address: int) -> bool | None:
        """Whether code lies there; None where nothing tells."""
        loaded = self._images.at(address)
        if loaded is not None and loaded.image is not None:
            section = loaded.image.section_at(address - loaded.low)
            return section is not None and section.executable
        info = self._regions.at(address) if self._regions is not None else None
        if info is not None:
            return info.state == COMMITTED and bool(info.protect & _EXECUTE) and not info.protect & GUARD
        if loaded is None:
            return False
        return None if address - loaded.low >= _FIRST_CODE else False

    def returns_to(self, value: int) -> bool | None:
        """Whether a call stands right before it, in executable memory; None where the code is not at hand."""
        return self.call(value).stands

    def may_return_to(self, value: int) -> bool:
        """Not shown to be wrong: a call stands before it, or the code is not at hand."""
        return self.returns_to(value) is not False

    def call(self, value: int) -> Call:
        """The call before ``value``; asked once for each of the few values that a stack consists of."""
        found = self._calls.get(value)
        if found is None:
            if len(self._calls) > _MOST_KNOWN:
                self._calls.clear()
            executable = self.executable(value - 1)
            found = Call(False) if not executable and executable is not None else self._find_call(value)
            self._calls[value] = found
        return found

    def returning(self, words: Iterator[tuple[int, int]], begin: int | None, here: object) -> tuple[int, int] | None:
        """The first of places and words that is a return address, or may be one in a module whose code is missing.

        Old return addresses stay in unused parts of the stack. A call that names its target leads to that function, or
        to a jump, as imports are called: others are taken only where there is nothing else. ``here``: the module of the
        called function, which begins at ``begin``; None where unknown.
        """
        other: tuple[int, int] | None = None
        for at, value in words:
            call = self.call(value)
            if call.stands is False:
                continue
            target = call.target
            if target is None or here is None or (self._images.at(target) is here and begin in {None, target}):
                return at, value
            other = other or (at, value)
        return other

    def _of_x86(self, value: int) -> Call:
        code = self._memory.exactly(value - _LONGEST_CALL, _LONGEST_CALL)
        if code is None:
            return Call(None)
        if code[2] != 0xE8:
            return Call(any(_is_indirect(code[at:]) for at in (5, 4, 3, 1, 0)))
        target = value + int.from_bytes(code[3:], "little", signed=True) & self._mask
        if self.executable(target) is False:
            return Call(False)
        first = self._memory.some(target, 3)
        jumps = not first or first[:1] in {b"\xe9", b"\xeb"} or first[:2] == b"\xff\x25" or first == b"\x48\xff\x25"
        return Call(True, None if jumps else target)

    def _of_arm64(self, value: int) -> Call:
        """``BL`` names its target, ``BLR`` and its kinds with pointer authentication do not (Arm ARM, C6.2)."""
        code = None if value & 3 else self._memory.exactly(value - 4, 4)
        if code is None:
            return Call(False if value & 3 else None)
        word = int.from_bytes(code, "little")
        if word & 0xFC000000 != 0x94000000:
            return Call(word & 0xFEFFF000 == 0xD63F0000)
        distance = (word & 0x3FFFFFF ^ 0x2000000) - 0x2000000
        target = value - 4 + 4 * distance & self._mask
        first = int.from_bytes(self._memory.some(target, 4), "little")
        # What is imported is called through a jump, which begins with B, or with ADRP of x16.
        jumps = not first or first & 0xFC000000 == 0x14000000 or first & 0x9F00001F == 0x90000010
        return Call(True, None if jumps else target)


def _is_indirect(code: bytes) -> bool:
    """``code`` is ``FF /2`` and its operand, 2 to 7 bytes in all, and nothing more (Intel SDM, 2.1.5)."""
    if code[0] != 0xFF or code[1] >> 3 & 7 != 2:
        return False
    kind, register = code[1] >> 6, code[1] & 7
    size = 2 + (0, 1, 4, 0)[kind]
    if kind != 3 and register == 4:
        size += 1
        if kind == 0 and code[2:3] and code[2] & 7 == 5:
            size += 4
    if kind == 0 and register == 5:
        size += 4
    return size == len(code)
