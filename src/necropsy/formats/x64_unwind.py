"""How to find the caller from a place in x64 Windows code: UNWIND_INFO, epilogues, leaf functions.

Sources: "x64 exception handling" and "x64 prolog and epilog" (learn.microsoft.com/cpp/build); for version 2 of
UNWIND_INFO and the order of chained entries, Windows' own unwinder as .NET publishes it (coreclr/unwinder/amd64).
A ``UnwindRow`` depends on the place alone, not on registers, so a recursion of 300,000 frames needs a few of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from necropsy.errors import InputError
from necropsy.formats.pe import Image, PeFunction

REGISTERS = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{number}" for number in range(8, 16)))
"""By the numbers that unwind codes and instructions use."""
RSP = 4
LONGEST_CHAIN = 32
"""Chained entries that Windows follows (``UNWIND_CHAIN_LIMIT``)."""
_CHAINED = 4
_LONGEST_EPILOGUE = 64

PUSH, ALLOC_LARGE, ALLOC_SMALL, SET_FRAME, SAVE, SAVE_FAR, EPILOGUE, SPARE, XMM, XMM_FAR, MACHINE = range(11)


class UnwindCode(NamedTuple):
    """One operation of a prologue: ``offset`` is where the instruction ends, ``value`` its bytes or distance."""

    offset: int
    operation: int
    info: int
    value: int = 0


@dataclass(frozen=True)
class UnwindInfo:
    """One UNWIND_INFO. ``codes`` stand in the order of undoing; ``chained``: the entry that goes on."""

    version: int
    flags: int
    prologue: int
    frame_register: int
    frame_offset: int
    codes: tuple[UnwindCode, ...]
    epilogue_size: int = 0
    """Version 2: bytes of each epilogue, from its first pop on."""
    epilogues: tuple[int, ...] = ()
    """Version 2: where they begin, in bytes before the end of the function."""
    chained: PeFunction | None = None


Part = Literal["prologue", "body", "epilogue", "leaf"]
"""Of a function: the way out depends on it."""


class SavedRegister(NamedTuple):
    """The caller's value of ``register`` lies ``distance`` bytes from where the register ``base`` points."""

    register: int
    base: int
    distance: int


class UnwindRow(NamedTuple):
    """Where the caller's state is: distances in bytes from the value of the register ``base``.

    ``machine``: what an interrupt left, so the caller's stack pointer is 24 bytes behind its program counter, and it
    was interrupted there, it did not call.
    """

    base: int
    returns_at: int
    saved: tuple[SavedRegister, ...] = ()
    machine: bool = False
    part: Part = "body"


LEAF = UnwindRow(RSP, 0, part="leaf")
"""A function without an entry has neither moved the stack pointer nor saved anything."""


def unwind_info(image: Image, rva: int) -> UnwindInfo:
    """UNWIND_INFO at ``rva``. Raises InputError where it is missing, or its version or an operation is unknown."""
    head = image.at(rva, 4)
    if head is None:
        raise InputError("unwind information that is not there")
    version, flags = head[0] & 7, head[0] >> 3
    if version not in {1, 2}:
        raise InputError(f"unwind information of version {version}")
    count = head[2]
    size = count + (count & 1)
    slots = struct.unpack(f"<{size}H", _exactly(image, rva + 4, 2 * size))
    chained = None
    if flags & _CHAINED:
        chained = PeFunction(*struct.unpack("<III", _exactly(image, rva + 4 + 2 * size, 12)))
    codes: list[UnwindCode] = []
    epilogue_size, epilogues = 0, []
    index = 0
    while index < count:
        slot = slots[index]
        offset, operation, info = slot & 0xFF, slot >> 8 & 0xF, slot >> 12
        width = _width(operation, info, version)
        if index + width > count:
            raise InputError("an unwind code that is cut off")
        value = _value(operation, info, slots[index + 1 : index + width])
        if operation == EPILOGUE and version == 2:
            if index == 0:
                epilogue_size = offset
                if info & 1:
                    epilogues.append(offset)
            elif offset | info:
                epilogues.append(offset | info << 8)
            # They come in pairs: where their number is odd, a slot without an offset fills up.
            if index + 1 < count and not slots[index + 1]:
                width += 1
        else:
            codes.append(UnwindCode(offset, operation, info, value))
        index += width
    return UnwindInfo(
        version,
        flags,
        head[1],
        head[3] & 0xF,
        (head[3] >> 4) * 16,
        tuple(codes),
        epilogue_size,
        tuple(epilogues),
        chained,
    )


def _exactly(image: Image, rva: int, size: int) -> bytes:
    data = image.at(rva, size)
    if data is None:
        raise InputError("unwind information that is cut off")
    return data


def _width(operation: int, info: int, version: int) -> int:
    if operation in {PUSH, ALLOC_SMALL, SET_FRAME, MACHINE}:
        return 1
    if operation == ALLOC_LARGE and info <= 1:
        return 2 + info
    if operation in {SAVE, XMM}:
        return 2
    if operation in {SAVE_FAR, XMM_FAR}:
        return 3
    if operation == EPILOGUE:
        return 1 if version == 2 else 2  # in version 1 it was SAVE_XMM, which no compiler writes any more
    if operation == SPARE:
        return 3
    raise InputError(f"an unwind code of an unknown kind ({operation})")


def _value(operation: int, info: int, more: tuple[int, ...]) -> int:
    if operation == ALLOC_SMALL:
        return info * 8 + 8
    if operation == ALLOC_LARGE:
        return more[0] * 8 if info == 0 else more[0] | more[1] << 16
    if operation in {SAVE, XMM}:
        return more[0] * (8 if operation == SAVE else 16)
    if operation in {SAVE_FAR, XMM_FAR}:
        return more[0] | more[1] << 16
    return 8 if operation == PUSH else 0


class Unwinder:
    """Answers for one image; each UNWIND_INFO is decoded once."""

    def __init__(self, image: Image, code: Callable[[int, int], bytes] | None = None) -> None:
        """``code`` reads instructions at an RVA where they should not come from the image itself."""
        self._image, self._code = image, code or image.some
        self._infos: dict[int, UnwindInfo] = {}

    def info(self, rva: int) -> UnwindInfo:
        """As ``unwind_info``."""
        found = self._infos.get(rva)
        if found is None:
            found = self._infos[rva] = unwind_info(self._image, rva)
        return found

    def chain(self, function: PeFunction) -> tuple[tuple[PeFunction, UnwindInfo], ...]:
        """The entry and its chain, the function's first part last. Raises InputError where unreadable or circular."""
        found: list[tuple[PeFunction, UnwindInfo]] = []
        one: PeFunction | None = function
        while one is not None:
            if len(found) > LONGEST_CHAIN:
                raise InputError("chained unwind information without an end")
            info = self.info(one.unwind & ~1)
            found.append((one, info))
            one = info.chained
        return tuple(found)

    def primary(self, function: PeFunction) -> PeFunction:
        """The function's first part, which begins where the function does."""
        return self.chain(function)[-1][0]

    def frame_size(self, function: PeFunction) -> int:
        """Bytes that the function's prologue takes of the stack, pushed registers included; its return address not."""
        taking = {PUSH, ALLOC_SMALL, ALLOC_LARGE}
        return sum(code.value for _, info in self.chain(function) for code in info.codes if code.operation in taking)

    def row(self, rva: int, *, exact: bool) -> UnwindRow | None:
        """How to find the caller, or None; ``exact``: interrupted, not returned to. Raises InputError if damaged."""
        function = self._image.function(rva if exact else rva - 1)
        if function is None:
            section = self._image.section_at(rva)
            return LEAF if exact and section is not None and section.executable else None
        chain = self.chain(function)
        if rva >= function.end:
            return _undo(chain, None, "body")  # a call that never returns is the last instruction of its function
        offset = rva - function.begin
        info = chain[0][1]
        if offset < info.prologue:
            return _undo(chain, offset, "prologue")
        epilogue = self._epilogue(rva, function, chain) if exact else None  # nothing is called from an epilogue
        return epilogue or _undo(chain, None, "body")

    def body(self, rva: int, *, exact: bool) -> UnwindRow | None:
        """As ``row``, for the body of the function: where what looks like an epilogue turned out to be none."""
        function = self._image.function(rva if exact else rva - 1)
        return None if function is None else _undo(self.chain(function), None, "body")

    def _epilogue(
        self, rva: int, function: PeFunction, chain: tuple[tuple[PeFunction, UnwindInfo], ...]
    ) -> UnwindRow | None:
        """What an epilogue still has to do; None where ``rva`` is in none."""
        info = chain[0][1]
        if info.version == 2:
            passed = [rva - (function.end - begin) for begin in info.epilogues]
            inside = [one for one in passed if 0 <= one < info.epilogue_size]
            return _rest_of_pops(chain, inside[0]) if inside else None
        code = self._code(rva, _LONGEST_EPILOGUE)
        at, base, offset = 0, RSP, 0
        moved = _stack_move(code, info.frame_register)
        if moved is not None:
            at, base, offset = moved
        saved: list[SavedRegister] = []
        while (popped := _pop(code, at)) is not None:
            at, register = popped
            saved.append(SavedRegister(register, base, offset))
            offset += 8
        leaves = _leaves(code, at)
        if leaves is None:
            return None
        if leaves.jump is not None:
            target = rva + leaves.jump
            # A jump within the function is a loop; one to its beginning is a call of itself in the last place.
            if self._within(target, chain) and not (target == function.begin and len(chain) == 1):
                return None
        return UnwindRow(base, offset, tuple(saved), part="epilogue")

    def _within(self, rva: int, chain: tuple[tuple[PeFunction, UnwindInfo], ...]) -> bool:
        if any(part.begin <= rva < part.end for part, _ in chain):
            return True
        other = self._image.function(rva)
        return other is not None and self.primary(other).begin == chain[-1][0].begin


def _undo(chain: tuple[tuple[PeFunction, UnwindInfo], ...], passed: int | None, part: Part) -> UnwindRow:
    """Undo a prologue; ``passed``: only what its first so many bytes have done."""
    base, offset = RSP, 0
    saved: dict[int, SavedRegister] = {}
    frame = _frame(chain[0][1], passed)
    for number, (_, info) in enumerate(chain):
        within = passed if number == 0 else None
        for code in info.codes:
            if within is not None and within < code.offset:
                continue
            if code.operation == SET_FRAME:
                base, offset = info.frame_register, -info.frame_offset
            elif code.operation == PUSH:
                saved[code.info] = SavedRegister(code.info, base, offset)
                offset += 8
            elif code.operation in {ALLOC_SMALL, ALLOC_LARGE}:
                offset += code.value
            elif code.operation in {SAVE, SAVE_FAR}:
                saved[code.info] = SavedRegister(code.info, frame[0], frame[1] + code.value)
            elif code.operation == MACHINE:
                return UnwindRow(base, offset + 8 * (code.info & 1), tuple(saved.values()), machine=True, part=part)
    return UnwindRow(base, offset, tuple(saved.values()), part=part)


def _frame(info: UnwindInfo, passed: int | None) -> tuple[int, int]:
    """Where saves by a move are counted from: the stack pointer until the prologue has set the frame register."""
    is_set = (
        passed is None
        or info.chained is not None
        or any(one.operation == SET_FRAME and passed >= one.offset for one in info.codes)
    )
    return (info.frame_register, -info.frame_offset) if info.frame_register and is_set else (RSP, 0)


def _rest_of_pops(chain: tuple[tuple[PeFunction, UnwindInfo], ...], passed: int) -> UnwindRow:
    """Version 2: ``passed`` bytes of the epilogue's pops and its return have been executed.

    The stack pointer is back where the prologue's pushes left it, and pops mirror pushes: one byte each, two for r8 to
    r15. Pushed flags are 8 bytes more, and one pop more.
    """
    codes: tuple[UnwindCode, ...] = ()
    for _, info in chain:
        start = next((at for at, one in enumerate(info.codes) if one.operation in {PUSH, MACHINE}), None)
        if start is not None:
            codes = info.codes[start:]
            break
    at = offset = 0
    saved: list[SavedRegister] = []
    for code in codes:
        if code.operation == MACHINE:
            return UnwindRow(RSP, offset + 8 * (code.info & 1), tuple(saved), machine=True, part="epilogue")
        if code.operation != PUSH and not (code.operation == ALLOC_SMALL and code.value == 8):
            break
        if at >= passed:
            if code.operation == PUSH:
                saved.append(SavedRegister(code.info, RSP, offset))
            offset += 8
        at += 2 if code.operation == PUSH and code.info >= 8 else 1
    return UnwindRow(RSP, offset, tuple(saved), part="epilogue")


# -- the instructions of epilogues ------------------------------------------------------------------------------------


def _stack_move(code: bytes, frame: int) -> tuple[int, int, int] | None:
    """``add rsp, n`` or ``lea rsp, [frame + n]`` at the beginning: its length, the base, and the distance from it."""
    if code[:3] == b"\x48\x83\xc4" and len(code) >= 4:
        return 4, RSP, int.from_bytes(code[3:4], "little", signed=True)
    if code[:3] == b"\x48\x81\xc4" and len(code) >= 7:
        return 7, RSP, int.from_bytes(code[3:7], "little", signed=True)
    # 48 or 49 8D; mod 1 or 2 (a distance of 1 or 4 bytes), reg = rsp, and the frame register; r12 takes a SIB byte.
    if len(code) >= 4 and code[0] in {0x48, 0x49} and code[1] == 0x8D and code[2] >> 3 & 7 == RSP and frame:
        mod, low = code[2] >> 6, code[2] & 7
        at, size = 4 if low == RSP else 3, {0: 0, 1: 1, 2: 4}.get(mod)
        if low | (code[0] & 1) << 3 != frame or (low == RSP and code[3] != 0x24) or (mod == 0 and low == 5):
            return None
        if size is None or len(code) < at + size:
            return None
        return at + size, frame, int.from_bytes(code[at : at + size], "little", signed=True)
    return None


def _pop(code: bytes, at: int) -> tuple[int, int] | None:
    """A ``pop`` of a 64-bit register at ``at``: where the next instruction begins, and the register's number."""
    rex = 0
    if len(code) > at and code[at] & 0xF0 == 0x40:
        rex, at = code[at], at + 1
    if len(code) <= at or code[at] & 0xF8 != 0x58:
        return None
    return at + 1, code[at] & 7 | (rex & 1) << 3


class _Leaves(NamedTuple):
    """An instruction by which a function is left; ``jump``: where it goes, from the first byte of the epilogue on."""

    jump: int | None = None


def _leaves(code: bytes, at: int) -> _Leaves | None:
    """A return, or a jump that may be a tail call."""
    if code[at : at + 1] == b"\xf2":
        at += 1  # a prefix of control-flow checks, which changes nothing here
    one = code[at : at + 6]
    if one[:1] in {b"\xc3", b"\xc2"} or one[:2] == b"\xf3\xc3":
        return _Leaves()
    if one[:1] == b"\xeb" and len(one) >= 2:
        return _Leaves(at + 2 + int.from_bytes(one[1:2], "little", signed=True))
    if one[:1] == b"\xe9" and len(one) >= 5:
        return _Leaves(at + 5 + int.from_bytes(one[1:5], "little", signed=True))
    if one[:2] == b"\xff\x25":  # through a pointer, as to what another DLL exports
        return _Leaves()
    # Microsoft's compiler marks a jump through a register that leaves the function by a REX.W that does nothing.
    if len(one) >= 3 and one[0] & 0xF8 == 0x48 and one[1] == 0xFF and one[2] >> 3 & 7 == 4:
        return _Leaves()
    return None
