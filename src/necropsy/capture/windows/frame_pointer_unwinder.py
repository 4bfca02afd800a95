"""Stacks without unwind tables: of x86, of ARM64, and of dumps whose images are not read (Linux, macOS).

Frame pointers lead from frame to frame: each is above the one before, within the thread's stack, and beside it a
return address, in executable memory, behind a call where the code is available. Where they end, the next such return
address on the stack is taken. The innermost function may have no frame yet, or none any more: its own instructions show
how it returns.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from necropsy.capture.process.native_stack import LARGE_FRAME, Cursor
from necropsy.capture.process.recursion_skip import RecursionSkip
from necropsy.capture.windows import epilogue
from necropsy.capture.windows.call_sites import CallSites
from necropsy.capture.windows.modules import ModuleImages
from necropsy.capture.windows.symbolizer import Symbolizer
from necropsy.capture.windows.target import MemoryRegions
from necropsy.capture.windows.unwinder import WalkedStack
from necropsy.formats import arm64_code
from necropsy.model import FoundBy, Stack

_OUTERMOST = frozenset({"RtlUserThreadStart", "_RtlUserThreadStart", "__RtlUserThreadStart"})
_STARTERS = frozenset({"ntdll.dll", "kernel32.dll", "kernelbase.dll"})
_PROBES = frozenset({"___chkstk_ms", "__chkstk", "_chkstk", "_alloca_probe", "__alloca_probe"})
_MOST_AT_ONCE = 64 << 20
_INNERMOST = 64
"""Frames among which the caller of the innermost one is."""
_UNKNOWN_STACK = 1 << 20
"""Bytes that are read of a stack whose end is not known."""
_SCANNED_WORDS = 4096
_MOST_GUESSES = 256
_NEAR_TOP = 1024
_BETWEEN_LOOKS = 64
_LARGEST_ARRAY = 1 << 31


class _At(NamedTuple):
    """A frame: its program counter, stack pointer and frame pointer (None: unknown), and how it was found."""

    pc: int
    sp: int
    fp: int | None
    found_by: FoundBy = "registers"


class _Bottom:
    """The last frame was not called."""


_BOTTOM: Final = _Bottom()


class FramePointerUnwinder:
    """Walks the stacks of one process by frame pointers."""

    def __init__(
        self,
        abi: Architecture,
        images: ModuleImages,
        names: Symbolizer,
        regions: MemoryRegions | None = None,
        *,
        on_windows: bool = True,
    ) -> None:
        """``regions``: which memory is executable, where that is known.

        Where not ``on_windows`` the images are not read: only a word that is known to point to executable memory is a
        return address.
        """
        self._abi, self._images, self._names, self._memory = abi, images, names, images.memory
        self._sites = CallSites(images, regions, arm64=abi.link is not None, mask=abi.mask)
        self._on_windows = on_windows
        self._layout = struct.Struct("<Q" if abi.word == 8 else "<I")
        self._ways: dict[int, epilogue.Way] = {}
        self._data, self._low, self._high = b"", 0, 0

    def walk(self, registers: Mapping[str, int], stack: Stack | None, deadline: float) -> WalkedStack:
        """The stack to its first frame, or ``deadline`` (monotonic, s); nothing is looked for beyond its ``high``."""
        abi, out = self._abi, WalkedStack()
        at = _At(registers.get(abi.counter, 0), registers.get(abi.pointer, 0), registers.get(abi.frame))
        self._read(at.sp, None if stack is None else stack.high)
        self._add(out, at, exact=True)
        self._follow(out, at, registers, deadline)
        if abi.link is None:
            self._note_probe(out, registers)
        return out

    def _follow(self, out: WalkedStack, at: _At, registers: Mapping[str, int], deadline: float) -> None:
        repeats = self._repeats()
        guesses, left = 0, _BETWEEN_LOOKS
        found = self._first(at, registers) or self._caller(at, out)
        while True:
            if isinstance(found, _Bottom) or (found is None and self._at_top(out, at)):
                out.complete = True
                return
            if found is None:
                out.why = "no caller was found for the last frame"
                return
            at = found
            self._add(out, at)
            if out.places[-1].function in _OUTERMOST:
                out.complete = True
                return
            if at.found_by == "scan":
                guesses += 1
                if guesses > _MOST_GUESSES:
                    out.why = "too many callers had to be guessed"
                    return
                at = self._beyond(out, at, repeats)
            elif guesses:
                repeats = self._repeats()
            left -= 1
            if not left:
                left = _BETWEEN_LOOKS
                if time.monotonic() > deadline:
                    out.why = "the time for reading it was used up"
                    return
            found = self._caller(at, out)

    def _repeats(self) -> RecursionSkip:
        return RecursionSkip(self._memory, lambda pc: self._names.at(pc, False)[-1], word=self._abi.word)

    def _add(self, out: WalkedStack, at: _At, *, exact: bool = False) -> None:
        places = self._names.at(at.pc, exact)
        out.extend(places, [at.sp] * len(places), None if exact else at.found_by)

    def _beyond(self, out: WalkedStack, at: _At, repeats: RecursionSkip) -> _At:
        """The end of a recursion without frame pointers, where ``at`` belongs to one."""
        # `repeats` lists those before the one that it returns.
        end = repeats.beyond(out, Cursor({"rip": at.pc, "rsp": at.sp}), self._high)
        if end.registers["rsp"] == at.sp:
            return at
        moved = _At(end.registers["rip"], end.registers["rsp"], at.fp, "scan")
        self._add(out, moved)
        return moved

    # -- the innermost frame ------------------------------------------------------------------------------------------

    def _first(self, at: _At, registers: Mapping[str, int]) -> _At | None:
        """The caller of the innermost frame, where it is found by other than its frame pointer."""
        called = self._sites.executable(at.pc) is False
        if self._abi.link is not None:
            return self._by_link(at, registers.get(self._abi.link, 0), called=called)
        if called:
            # Nothing ran there: the call that led there has just pushed its return address.
            return self._returned(at, epilogue.Return(0, self._abi.word), "scan")
        way = self._way(at.pc)
        return self._returned(at, way, "scan") if isinstance(way, epilogue.Return) else None

    def _way(self, pc: int) -> epilogue.Way:
        """How the function at ``pc`` returns, where its code is available; cached for each place."""
        if pc not in self._ways:
            self._ways[pc] = epilogue.ahead(self._memory.some, pc, wide=self._abi.word == 8)
        return self._ways[pc]

    def _returned(self, at: _At, way: epilogue.Return, found_by: FoundBy) -> _At | None:
        value = self._word(at.sp + way.at)
        if value is None or not self._may_return_to(value):
            return None
        frame = at.fp if way.frame is None else self._word(at.sp + way.frame)
        return _At(value, at.sp + way.after, frame, found_by)

    def _by_link(self, at: _At, link: int, *, called: bool) -> _At | None:
        """The link register holds the return address until a function saves it, and after it has loaded it again.

        Between, it holds where the last call of the function returned to, which is in the function itself.
        """
        link = self._plain(link)
        if not link or not self._may_return_to(link):
            return None
        way = "live" if called else arm64_code.link(lambda pc: self._memory.some(pc, 4), at.pc)
        if way is None and self._images.at(at.pc) is not self._images.at(link):
            way = "live"
        return _At(link, at.sp, at.fp, "registers") if way == "live" else None

    # -- callers ------------------------------------------------------------------------------------------------------

    def _caller(self, at: _At, out: WalkedStack) -> _At | _Bottom | None:
        if self._abi.link is None and len(out) > 1:
            way = self._way(at.pc)
            found = self._returned(at, way, "scan") if isinstance(way, epilogue.Return) else None
            if found is not None and self._sites.returns_to(found.pc):
                return found
        by_frame = self._by_frame(at, out)
        if by_frame is None:
            return self._scanned(at)
        if isinstance(by_frame, _Bottom) or by_frame.sp - at.sp <= LARGE_FRAME or self._sites.returns_to(by_frame.pc):
            return by_frame
        return self._scanned(at) or by_frame

    def _by_frame(self, at: _At, out: WalkedStack) -> _At | _Bottom | None:
        fp, word = at.fp, self._abi.word
        if fp is None or fp % word or not at.sp <= fp <= self._high - 2 * word:
            return _BOTTOM if fp == 0 and self._may_be_first(out, at) else None
        saved, value = self._word(fp), self._word(fp + word)
        if saved is None or value is None:
            return None
        if not saved and not value:
            return _BOTTOM if self._may_be_first(out, at) else None
        value = self._plain(value)
        if not self._may_return_to(value):
            return None
        if not fp < saved < self._high and saved and not self._sites.returns_to(value):
            return None  # what is there is no frame pointer, and nothing shows that the other is a return address
        return _At(value, fp + 2 * word, saved, "frame-pointer")

    def _scanned(self, at: _At) -> _At | None:
        found = self._sites.returning(self._words(at.sp), None, self._images.at(at.pc))
        if found is None:
            return None
        where, value = found
        frame = at.fp if at.fp is not None and where < at.fp < self._high else None
        if frame is None and self._abi.link is None:
            # Beside the return address lies the caller's frame pointer, if the function had a frame.
            saved = self._word(where - self._abi.word) if where > at.sp else None
            frame = saved if saved is not None and where < saved < self._high else None
        return _At(value, where + self._abi.word, frame, "scan")

    def _words(self, pointer: int) -> Iterator[tuple[int, int]]:
        word = self._abi.word
        start = -(-pointer // word) * word
        first = max(start - self._low, 0)
        data = self._data[first : first + _SCANNED_WORDS * word]
        for index, (value,) in enumerate(self._layout.iter_unpack(data[: len(data) // word * word])):
            plain = self._plain(value)
            if self._on_windows or self._sites.executable(plain - 1):
                yield self._low + first + index * word, plain

    def _may_return_to(self, value: int) -> bool:
        return value > 0 and self._sites.may_return_to(value)

    def _may_be_first(self, out: WalkedStack, at: _At) -> bool:
        """On Windows a thread begins in ntdll.dll. Elsewhere a chain ends with zeros, if it is one.

        Code without frame pointers keeps other things in their register, which may be zero or lead to zeros.
        """
        if not self._on_windows:
            return at.found_by == "frame-pointer"
        return (out.places[-1].module or "").casefold() in _STARTERS

    def _at_top(self, out: WalkedStack, at: _At) -> bool:
        """Without the image of ntdll.dll: the last frame is in it, called kernel32.dll, at the top of the stack."""
        names = [(place.module or "").casefold() for place in out.outermost(2)]
        return len(out) > 1 and names == ["kernel32.dll", "ntdll.dll"] and 0 <= self._high - at.sp <= _NEAR_TOP

    # -- words --------------------------------------------------------------------------------------------------------

    def _read(self, pointer: int, high: int | None) -> None:
        low = pointer & -self._abi.word
        size = _UNKNOWN_STACK if high is None else min(max(high - low, 0), _MOST_AT_ONCE)
        self._data, self._low = self._memory.some(low, size), low
        self._high = low + len(self._data)

    def _word(self, address: int) -> int | None:
        offset = address - self._low
        if not 0 <= offset <= len(self._data) - self._abi.word:
            return None
        return int(self._layout.unpack_from(self._data, offset)[0])

    def _plain(self, value: int) -> int:
        """A return address without its signature: ARM64 puts one into the bits that no address has (PAC)."""
        if self._abi.link is None or value <= self._code_mask or self._images.at(value) is not None:
            return value
        return value & self._code_mask

    @cached_property
    def _code_mask(self) -> int:
        """As wide as the addresses of the modules are."""
        highest = max((one.high for one in self._images.modules), default=0)
        return (1 << highest.bit_length()) - 1 if highest else self._abi.mask

    def _note_probe(self, out: WalkedStack, registers: Mapping[str, int]) -> None:
        """What a frame was about to take when its stack was probed page by page: it is not laid out yet."""
        caller = next((at for at, one in enumerate(out.places.first(_INNERMOST)[1:], 1) if not one.inline), None)
        if caller is None or out.places[0].function not in _PROBES or out.pointers[caller] <= out.pointers[0]:
            return
        pointer, wide = out.pointers[0], self._abi.word == 8
        if out.places[0].function == "___chkstk_ms":
            size = self._word(pointer)  # MinGW's pushes the size last
        else:
            # Microsoft's counts down to what the stack pointer is to become, which ecx holds.
            size = registers.get("rax") if wide else max(pointer - registers.get("ecx", pointer), 0)
        measured = out.stack_bytes(caller) or 0
        if size and size < _LARGEST_ARRAY:
            out.taking[caller] = measured + size


@dataclass(frozen=True)
class Architecture:
    """How a processor's calls use the stack. ``word``: bytes of an address; the rest are names of registers.

    A frame pointer points to the caller's frame pointer, and the return address is above it. ``link``: the register
    of the return address; None where it is on the stack.
    """

    name: str
    word: int
    counter: str
    pointer: str
    frame: str
    link: str | None = None

    @property
    def mask(self) -> int:
        """What an address has room for."""
        return (1 << 8 * self.word) - 1


X86 = Architecture("x86", 4, "eip", "esp", "ebp")
X64 = Architecture("x64", 8, "rip", "rsp", "rbp")
ARM64 = Architecture("ARM64", 8, "pc", "sp", "fp", "lr")
