"""The instruction at the fault, of ARM64: what it reads and writes, and at which addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from necropsy.model import Access, Address, Instruction, MemoryOperand

_64_BITS = (1 << 64) - 1
_SIZES = {"b": 1, "h": 2, "sb": 1, "sh": 2, "sw": 4}


def of_arm64(code: bytes, values: Mapping[str, int]) -> Instruction:
    """The instruction in ``code``; names of registers as ``formats/processors.py`` has them.

    ``text`` is None without bytes or for an invalid instruction. Raises ImportError without capstone.
    """
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
        text = _text(one, base, index, operand)
        size = _size_of_arm64(one)
        known = Address(address & _64_BITS) if address is not None else None
        yield MemoryOperand(text=text, access=access, address=known, size=size, registers=used)


def _text(one: Any, base: str, index: str, operand: Any) -> str:
    """``[x0 + x1*8 + 0x10]``, as operands of x86 are spelled."""
    text = base
    if index:
        scale = 1 << operand.shift.value
        text += f" + {index}" + (f"*{scale}" if scale != 1 else "")
    if operand.mem.disp and "], " not in one.op_str:
        text += f" {'-' if operand.mem.disp < 0 else '+'} {abs(operand.mem.disp):#x}"
    return f"[{text}]"


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
