"""What ARM64 code does with the link register, as far as unwinding needs it.

A call (``BL``) puts the return address into x30. A function that calls others saves it first, with the frame pointer
(``STP x29, x30``), and loads it again before it returns. Encodings: Arm Architecture Reference Manual, C4.1 and C6.2.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Literal

_LINK = 30
_MOST = 256
"""Instructions that are looked at."""
_PAIR, _STORED_PAIR, _LOADED_PAIR = 0xFE400000, 0xA8000000, 0xA8400000
"""``STP`` and ``LDP`` of 64 bits, with an offset or a new base; the two bits between are the kind."""
_SINGLE = 0xFFC00000
_STORE, _LOAD = 0xF9000000, 0xF9400000
"""``STR`` and ``LDR`` of 64 bits with an unsigned offset."""
_INDEXED, _STORE_INDEXED, _LOAD_INDEXED = 0xFFE00400, 0xF8000400, 0xF8400400

Link = Literal["live", "saved"]


def link(code: Callable[[int], bytes], pc: int) -> Link | None:
    """Where the return address of the function at ``pc`` is; None where the code does not show it.

    ``live``: in x30, because the frame is set up only later or the function returns without loading it. ``saved``: on
    the stack, as it is loaded before the return or a call overwrites x30. ``code`` returns four bytes, or fewer.
    """
    ways, seen = [pc], set[int]()
    while ways and len(seen) < _MOST:
        pc = ways.pop()
        while len(seen) < _MOST and pc not in seen:
            seen.add(pc)
            data = code(pc)
            if len(data) < 4:
                break
            word = int.from_bytes(data, "little")
            told = _of(word)
            if told is not None:
                return told
            if word & 0xFC000000 == 0x14000000:  # B
                pc += _distance(word, 26)
                continue
            if word & 0xFE000000 == 0xD6000000 or word & 0xFFE00000 == 0xD4200000 or not word >> 16:
                break  # BR, which a switch uses too; BRK; UDF
            if word & 0xFF000000 == 0x54000000 or word & 0x7E000000 == 0x34000000:  # B.cond, CBZ, CBNZ
                ways.append(pc + _distance(word >> 5, 19))
            elif word & 0x7E000000 == 0x36000000:  # TBZ, TBNZ
                ways.append(pc + _distance(word >> 5, 14))
            pc += 4
    return None


def kept_since(code: Callable[[int], bytes], begin: int, pc: int) -> bool:
    """Whether a function that was entered at ``begin`` has its return address in x30 at ``pc``, a little further on.

    That is: between the two there is no call, and nothing that saves or loads x30. ``code`` returns up to four bytes.
    """
    if not 0 <= pc - begin <= 4 * _MOST:
        return False
    words = [code(at) for at in range(begin, pc, 4)]
    return all(len(word) == 4 and _of(int.from_bytes(word, "little")) is None for word in words)


def call_target(word: int, at: int) -> int | None:
    """Where the ``BL`` at ``at`` goes; None for another instruction."""
    return at + _distance(word, 26) if word & 0xFC000000 == 0x94000000 else None


def _distance(word: int, bits: int) -> int:
    """Distance of a jump in bytes: the lowest ``bits`` of ``word`` are signed and count instructions."""
    number = word & (1 << bits) - 1
    return 4 * (number - (number >> bits - 1 << bits))


def _of(word: int) -> Link | None:
    first, second = word & 31, word >> 10 & 31
    if word & 0xFFC003FF == 0x910003FD:  # ADD x29, sp, #...: the frame begins here
        return "live"
    if word & _PAIR in {_STORED_PAIR, _LOADED_PAIR} and _LINK in {first, second}:
        return "live" if word & _PAIR == _STORED_PAIR else "saved"
    if first == _LINK:
        if word & _SINGLE == _STORE or word & _INDEXED == _STORE_INDEXED:
            return "live"
        if word & _SINGLE == _LOAD or word & _INDEXED == _LOAD_INDEXED:
            return "saved"
    if word & 0xFFFFFC1F == 0xD65F0000:
        return "live" if word >> 5 & 31 == _LINK else None
    if word in {0xD65F0BFF, 0xD65F0FFF}:  # RETAA, RETAB
        return "live"
    is_call = word & 0xFC000000 == 0x94000000 or word & 0xFEFFF000 == 0xD63F0000
    return "saved" if is_call else None


# ``ARM64_NT_CONTEXT`` as registers. Layout: winnt.h (Windows SDK), and Breakpad's older form of it.
#
# Windows: ContextFlags and Cpsr of 32 bits each, then x0 to x28, fp, lr, sp and pc. Breakpad's older form
# (``MDRawContextARM64_Old``) has flags of 64 bits and puts Cpsr behind pc; the numbers between lie at the same place.
_NAMES = (*(f"x{number}" for number in range(29)), "fp", "lr", "sp", "pc")
_AT = 8
_OLD = 0x80000000
"""In the flags of Breakpad's older form."""


def context_registers(context: bytes) -> dict[str, int] | None:
    """``x0`` to ``x28``, ``fp``, ``lr``, ``sp``, ``pc`` and ``cpsr``; None where the context is cut off before."""
    if len(context) < _AT + 8 * len(_NAMES) + 4:
        return None
    values = dict(zip(_NAMES, struct.unpack_from(f"<{len(_NAMES)}Q", context, _AT), strict=True))
    flags, cpsr = struct.unpack_from("<II", context)
    if flags & _OLD:
        (cpsr,) = struct.unpack_from("<I", context, _AT + 8 * len(_NAMES))
    return values | {"cpsr": cpsr}
