"""The stack frame of each function of a library for x86-64, without source and without running it.

An ELF file's unwind tables give the size where they follow the stack pointer. For functions with a frame pointer,
nearly all of TensorFlow's, they do not: then the first instructions are read. Sizes include the return address and what
was pushed, so that the frames of a call path add up.
"""

from __future__ import annotations

import contextlib
import re
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cache

from necropsy.errors import InputError
from necropsy.formats.eh_frame import UnwindTables, deepest
from necropsy.formats.elf import PT_LOAD, ElfFile
from necropsy.formats.pe import Image
from necropsy.formats.x64_unwind import Unwinder

_WORD = 8
_PROLOGUE = 96
"""Bytes of a function that are read for its frame: the longest prologues of gcc and clang have some 60."""
_LARGEST = 1 << 40
"""Bytes; what is larger was not understood."""
# push rbp; mov rbp, rsp; pushes; and rsp, -n; then sub rsp, n (of 128 bytes: add rsp, -128), or with
# -fstack-clash-protection lea r11, [rsp - n] and a loop that touches each page. Encodings: "Intel 64 and IA-32
# Architectures Software Developer's Manual", volume 2.
_FRAME_POINTER = re.compile(
    rb"(?:\xf3\x0f\x1e\xfa)?\x55\x48(?:\x89\xe5|\x8b\xec)"
    rb"(?P<pushes>(?:\x41[\x50-\x57]|[\x50-\x57])*)"
    rb"(?:\x48\x83\xe4(?P<align8>[\x80-\xf0])|\x48\x81\xe4(?P<align32>.{4}))?"
    rb"(?:\x48\x83\xec(?P<sub8>.)|\x48\x83\xc4(?P<add8>[\x80-\xff])|\x48\x81\xec(?P<sub32>.{4})|\x4c\x8d\x9c\x24(?P<lea32>.{4}))",
    re.DOTALL,
)
_PUSH = re.compile(rb"\x41?[\x50-\x57]")
_ENDS = frozenset({"call", "jmp", "ret", "ud2", "hlt"})


class FrameSizes:
    """The functions of one file, by address: where each begins and ends, and the bytes of stack that it takes."""

    def __init__(self, frames: Iterable[tuple[int, int, int | None]]) -> None:
        """``frames``: each function's address, its size, and the bytes of its frame, None where these are not known."""
        self.starts, self._ends, self._frames = array("Q"), array("Q"), array("Q")
        self.unknown = 0
        """How many functions take memory from the stack in a way that was not understood."""
        for start, size, bytes_ in sorted(frames, key=lambda one: one[:2]):
            if self.starts and start < self._ends[-1]:
                continue
            if bytes_ is None:
                self.unknown += 1
            self.starts.append(start)
            self._ends.append(start + size)
            self._frames.append(_WORD if bytes_ is None else bytes_)

    def __len__(self) -> int:
        return len(self.starts)

    def holding(self, address: int) -> int | None:
        """The index of the function that holds ``address``."""
        index = bisect_right(self.starts, address) - 1
        return index if index >= 0 and address < self._ends[index] else None

    def beginning_at(self, address: int) -> int | None:
        """The index of the function that begins at ``address``."""
        index = bisect_right(self.starts, address) - 1
        return index if index >= 0 and self.starts[index] == address else None

    def extent(self, index: int) -> tuple[int, int]:
        """First address of a function, and its size in bytes."""
        return self.starts[index], self._ends[index] - self.starts[index]

    def frame(self, index: int) -> int:
        """Bytes of stack that a call takes, including the return address; a minimum if the function uses ``alloca``."""
        return self._frames[index]

    def largest(self, count: int) -> list[int]:
        """The indices of the functions with the largest frames, the largest first."""
        order = sorted(range(len(self._frames)), key=lambda index: (-self._frames[index], index))
        return order[:count]


class _Code:
    """The bytes at ascending addresses: one segment is looked up at a time."""

    def __init__(self, elf: ElfFile) -> None:
        self._elf = elf
        self._segment: tuple[int, int, int] = (0, 0, 0)

    def at(self, address: int, size: int) -> bytes:
        low, high, offset = self._segment
        if not low <= address < high:
            found = next(
                (
                    one
                    for one in self._elf.segments
                    if one.type == PT_LOAD and one.address <= address < one.address + one.file_size
                ),
                None,
            )
            if found is None:
                return b""
            low, high, offset = self._segment = found.address, found.address + found.file_size, found.offset
        try:
            return self._elf.bytes_at(offset + address - low, min(size, high - address))
        except InputError:
            return b""


def of_elf(elf: ElfFile) -> FrameSizes:
    """The functions of an ELF file, by its unwind tables: some 10 us for each."""
    return FrameSizes(_frames(elf, _Code(elf)))


def of_pe(image: Image) -> FrameSizes:
    """The functions in a PE image's exception directory, whose prologue codes say all; leaf functions have no entry."""
    return FrameSizes(_frames_of_pe(image))


def _frames_of_pe(image: Image) -> Iterator[tuple[int, int, int | None]]:
    unwinder = Unwinder(image)
    for one in image.functions():
        taken: int | None = None
        with contextlib.suppress(InputError):
            taken = unwinder.frame_size(one) + _WORD
        yield one.begin, one.end - one.begin, taken


def of_function(elf: ElfFile, address: int) -> int | None:
    """Bytes of stack that a call of the function at ``address`` takes at least; None where that was not understood."""
    found = UnwindTables(elf).program_at(address)
    if found is None:
        return None
    start, size, before, program = found
    return _frame(deepest(before, program), _Code(elf), start, size, _Disassembler)


def _frames(elf: ElfFile, read: _Code) -> Iterator[tuple[int, int, int | None]]:
    """By function: first address, size, bytes of its frame, or None where these were not understood."""
    known: dict[tuple[bytes, bytes], tuple[int, bool] | None] = {}
    by_hand = cache(_Disassembler)
    for start, size, before, program in UnwindTables(elf).programs():
        key = (before, program)
        if key not in known:
            known[key] = deepest(before, program)
        yield start, size, _frame(known[key], read, start, size, by_hand)


def _frame(
    told: tuple[int, bool] | None, read: _Code, start: int, size: int, by_hand: Callable[[], _Disassembler]
) -> int | None:
    """``told``: what its unwind table says, as ``deepest`` gives it."""
    if told is not None and not told[1]:
        return told[0] if told[0] < _LARGEST else None
    code = read.at(start, min(size, _PROLOGUE))
    match = _FRAME_POINTER.match(code)
    if match is not None:
        return _of_prologue(match)
    return max(by_hand().frame(code, start), told[0] if told is not None else _WORD)


def _of_prologue(match: re.Match[bytes]) -> int | None:
    pushed = (2 + len(_PUSH.findall(match["pushes"]))) * _WORD
    if match["sub8"] is not None:
        taken = struct.unpack("<b", match["sub8"])[0]
    elif match["add8"] is not None:
        taken = -struct.unpack("<b", match["add8"])[0]
    elif match["sub32"] is not None:
        taken = struct.unpack("<i", match["sub32"])[0]
    else:
        taken = -struct.unpack("<i", match["lea32"])[0]
    aligned = 0
    if match["align8"] is not None:
        aligned = -struct.unpack("<b", match["align8"])[0]
    elif match["align32"] is not None:
        aligned = -struct.unpack("<i", match["align32"])[0]
    # The stack pointer is a multiple of 16 before each call, so aligning it further skips at most the difference.
    return pushed + taken + max(aligned - 16, 0) if taken >= 0 else None


class _Disassembler:
    """Follows the stack pointer through a function's first instructions, up to the first call or jump."""

    def __init__(self) -> None:
        import capstone

        self._machine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)

    def frame(self, code: bytes, start: int) -> int:
        taken = _WORD
        for _, _, name, operands in self._machine.disasm_lite(code, start):
            if name in _ENDS or (name.startswith("j") and not operands.startswith("rsp")):
                break
            first, _, second = operands.partition(", ")
            if name == "push":
                taken += _WORD
            elif name == "sub" and first == "rsp":
                taken += _value(second)
            elif name == "add" and first == "rsp":
                taken += max(-_value(second), 0)
            elif name == "lea" and first == "r11" and second.startswith("[rsp - "):
                taken += _value(second[7:-1])
                break
            elif name == "and" and first == "rsp":
                taken += max((1 << 64) - _value(second) - 16, 0) if second.startswith("0x") else 0
        return taken if taken < _LARGEST else _WORD


def _value(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0
