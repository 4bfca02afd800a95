"""The instruction at the fault, of 32-bit x86, and Windows' fast fail; that of x64 and ARM64 is read as on Linux."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from necropsy.capture.process import fault_instruction
from necropsy.capture.process.memory import Registers
from necropsy.model import Address, Instruction, MemoryOperand

_32_BITS = (1 << 32) - 1
_FAST_FAIL_OF_X86 = b"\xcd\x29"
"""``int 0x29``: ecx holds the subcode (winnt.h, ``__fastfail``)."""
_FAST_FAIL_OF_ARM64 = (0xD43E0060).to_bytes(4, "little")
"""``brk #0xF003``: w0 holds it."""


def of_x86(code: bytes, values: Mapping[str, int], teb: int) -> Instruction:
    """The instruction in ``code``, by 32-bit registers. Raises ImportError without capstone."""
    wide = {f"r{name[1:]}": value for name, value in values.items() if len(name) == len("eax") and name[0] == "e"}
    found = fault_instruction.decode(code, Registers({**wide, "fs_base": teb, "gs_base": 0}), wide=False)
    return msgspec.structs.replace(
        found,
        registers={_narrow(name): value for name, value in found.registers.items()},
        operands=tuple(_operand(one) for one in found.operands),
    )


def _narrow(name: str) -> str:
    return f"e{name[1:]}" if name.startswith("r") else name


def _operand(one: MemoryOperand) -> MemoryOperand:
    text, address, size = one.text, one.address, one.size
    if text in {"[rsp - 8]", "[rsp]", "[rbp]"}:
        # What push, call, pop and their like use besides their operands.
        text, size = text.replace("r", "e", 1).replace("8", "4"), 4
        address = Address(address + 4) if address is not None and one.access == "write" else address
    return msgspec.structs.replace(
        one,
        text=text,
        size=size,
        address=Address(address & _32_BITS) if address is not None else None,
        registers={_narrow(name): value for name, value in one.registers.items()},
    )


def subcode(code: bytes, values: Mapping[str, int]) -> int | None:
    """The argument of ``__fastfail``, if the program counter is at its instruction."""
    if code[:4] == _FAST_FAIL_OF_ARM64 and "x0" in values:
        return values["x0"] & _32_BITS
    if code[:2] != _FAST_FAIL_OF_X86:
        return None
    found = values.get("ecx", values.get("rcx"))
    return None if found is None else found & _32_BITS
