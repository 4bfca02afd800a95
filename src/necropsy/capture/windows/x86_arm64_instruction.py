"""The instruction at the fault, of 32-bit x86 and of ARM64; that of x64 is read as on Linux."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from necropsy.capture.process import fault_instruction
from necropsy.capture.process.registers import Registers
from necropsy.model import Access, Address, Instruction, MemoryOperand

_32_BITS, _64_BITS = (1 << 32) - 1, (1 << 64) - 1
_FAST_FAIL_OF_X86 = b"\xcd\x29"
"""``int 0x29``: ecx holds the subcode (winnt.h, ``__fastfail``)."""
_FAST_FAIL_OF_ARM64 = (0xD43E0060).to_bytes(4, "little")
"""``brk #0xF003``: w0 holds it."""
_SIZES = {"b": 1, "h": 2, "sb": 1, "sh": 2, "sw": 4}


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


def of_arm64(code: bytes, values: Mapping[str, int]) -> Instruction:
    """As ``of_x86``, for ARM64. Raises ImportError without capstone."""
    at = Address(values["pc"])
    if len(code) < 4:
        return Instruction(address=at)
    import capstone

    disassembler = capstone.Cs(capstone.CS_ARCH_ARM64, capstone.CS_MODE_LITTLE_ENDIAN)
    disassembler.detail = True
    one = next(disassembler.disasm(code[:4], values["pc"], 1), None)
    if one is None:
        return Instruction(address=at)
    operands = tuple(_memory_of_arm64(one, values))
    return Instruction(
        address=at,
        text=f"{one.mnemonic} {one.op_str}".strip(),
        mnemonic=one.mnemonic,
        operands=operands,
        registers={name: value for operand in operands for name, value in operand.registers.items()},
    )


def _memory_of_arm64(one: Any, values: Mapping[str, int]) -> Iterator[MemoryOperand]:
    import capstone.arm64_const as arm

    access = _access_of_arm64(one.mnemonic)
    for operand in one.operands:
        if operand.type != arm.ARM64_OP_MEM or access is None:
            continue
        base, index = (_name(one.reg_name(number) or "") for number in (operand.mem.base, operand.mem.index))
        used = {name: Address(values[name]) for name in (base, index) if name in values}
        address = values.get(base)
        # `ldr x0, [x1], #8` uses x1 as it was.
        if address is not None and "], " not in one.op_str:
            address += operand.mem.disp
        if address is not None and operand.mem.index:
            address = None if index not in values or operand.ext else address + (values[index] << operand.shift.value)
        text = one.op_str[one.op_str.find("[") : one.op_str.rfind("]") + 1]
        size = _size_of_arm64(one)
        known = Address(address & _64_BITS) if address is not None else None
        yield MemoryOperand(text=text, access=access, address=known, size=size, registers=used)


def _name(register: str) -> str:
    """As the contexts name it: w8 is the lower half of x8, x29 and x30 have names of their own."""
    name = f"x{register[1:]}" if register[:1] == "w" and register[1:].isdigit() else register
    return {"x29": "fp", "x30": "lr"}.get(name, name)


def _access_of_arm64(mnemonic: str) -> Access | None:
    if mnemonic.startswith(("st", "swp", "cas")):
        return "write"
    # `ldadd` and its like read first, but it is for writing that they ask.
    if mnemonic.startswith(("ldadd", "ldclr", "ldeor", "ldset", "ldsm", "ldum")):
        return "write"
    return "read" if mnemonic.startswith("ld") else None


def _size_of_arm64(one: Any) -> int | None:
    name = one.mnemonic
    for ending, size in _SIZES.items():
        if name.endswith(f"r{ending}"):
            return size
    first = one.op_str.split(",", 1)[0]
    width = {"w": 4, "x": 8, "s": 4, "d": 8, "q": 16}.get(first[:1])
    if width is None:
        return None
    return 2 * width if name.startswith(("ldp", "stp", "ldnp", "stnp")) else width


def subcode(code: bytes, values: Mapping[str, int]) -> int | None:
    """What ``__fastfail`` was given, where the program counter stands at its instruction."""
    if code[:4] == _FAST_FAIL_OF_ARM64 and "x0" in values:
        return values["x0"] & _32_BITS
    if code[:2] != _FAST_FAIL_OF_X86:
        return None
    found = values.get("ecx", values.get("rcx"))
    return None if found is None else found & _32_BITS
