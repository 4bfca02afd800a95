"""``CONTEXT`` of x64 Windows and of 32-bit x86: the bytes as registers. Layouts: winnt.h (Windows SDK)."""

from __future__ import annotations

import struct

_GENERAL_AT = 0x78
_GENERAL = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{number}" for number in range(8, 16)), "rip")
"""``Rax`` to ``Rip``: 17 numbers of 64 bits, in this order."""
_EFLAGS_AT = 0x44
_SIZE = _GENERAL_AT + 8 * len(_GENERAL)
_XMM_AT = 0x1A0
"""``FltSave`` (512 bytes as FXSAVE writes them) lies at 0x100, the SSE registers 0xA0 bytes into it."""
FLAGS_AT = 0x30
"""``ContextFlags``; what the hardware supports is 0x00100000."""

_X86 = struct.Struct("<11I")
_X86_AT = 0x9C
_X86_FLAG, _X64_FLAG = 0x00010000, 0x00100000
_CS_AT = 0x38
_CS_OF_32_BITS = 0x23
"""The code segment in which a processor of x86-64 runs 32-bit code, on Windows (WOW64) and on Linux."""
_X86_NAMES = ("edi", "esi", "ebx", "edx", "ecx", "eax", "ebp", "eip", "cs", "eflags", "esp")


def registers(context: bytes) -> dict[str, int] | None:
    """``rax`` to ``r15``, ``rip`` and ``eflags`` of an x64 ``CONTEXT``; None where it is cut off before their end."""
    if len(context) < _SIZE:
        return None
    values = dict(zip(_GENERAL, struct.unpack_from(f"<{len(_GENERAL)}Q", context, _GENERAL_AT), strict=True))
    (values["eflags"],) = struct.unpack_from("<I", context, _EFLAGS_AT)
    return values


def vectors(context: bytes) -> dict[str, int]:
    """``xmm0`` to ``xmm15`` as numbers of 128 bits; empty where the ``CONTEXT`` ends before them."""
    if len(context) < _XMM_AT + 256:
        return {}
    return {
        f"xmm{number}": int.from_bytes(context[_XMM_AT + 16 * number : _XMM_AT + 16 * number + 16], "little")
        for number in range(16)
    }


def registers_of_x86(context: bytes) -> dict[str, int] | None:
    """``eax`` to ``edi``, ``eip``, ``cs`` and ``eflags`` of a 32-bit ``CONTEXT``; None where it is cut off."""
    if len(context) < _X86_AT + _X86.size:
        return None
    return dict(zip(_X86_NAMES, _X86.unpack_from(context, _X86_AT), strict=True))


def is_of_x86(context: bytes) -> bool:
    """The bytes are a 32-bit ``CONTEXT``: its flags come first, and say so."""
    if len(context) < _X86_AT + _X86.size:
        return False
    first = int.from_bytes(context[:4], "little")
    second = int.from_bytes(context[FLAGS_AT : FLAGS_AT + 4], "little")
    return bool(first & _X86_FLAG) and first < _X64_FLAG and not second & _X64_FLAG


def narrowed(values: dict[str, int], context: bytes) -> dict[str, int]:
    """The registers of an x64 ``CONTEXT`` as 32-bit code knows them, where the thread ran such; else as they are."""
    if int.from_bytes(context[_CS_AT : _CS_AT + 2], "little") != _CS_OF_32_BITS:
        return values
    halves = {name: values.get(f"r{name[1:]}", 0) & 0xFFFFFFFF for name in _X86_NAMES if name[0] == "e"}
    return {**halves, "cs": _CS_OF_32_BITS, "eflags": values["eflags"]}
