"""The instruction at the fault: what it reads and writes, at which addresses, and whether this CPU can run it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from necropsy.capture.process.memory import Registers
from necropsy.formats.cpu_features import BY_GROUP, BY_MNEMONIC, processor_flags
from necropsy.formats.processors import AARCH64
from necropsy.model import Access, Address, Instruction, MemoryOperand

_LONGEST = 15
_MASK = (1 << 64) - 1
_SUB_REGISTERS = {
    **{f"{size}{name}": f"r{name}" for name in ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp") for size in ("e", "")},
    **{f"{letter}{half}": f"r{letter}x" for letter in "abcd" for half in "lh"},
    **{f"{name}l": f"r{name}" for name in ("si", "di", "bp", "sp")},
    **{f"r{number}{size}": f"r{number}" for number in range(8, 16) for size in "dwb"},
    "eip": "rip",
}
_STACK_WRITES = {"push", "call", "pushfq", "enter", "pushf"}
_VECTOR_MOVES = ("vmov", "vpcompress", "vcompress")
_STACK_READS = {"pop", "ret", "popfq", "leave", "iretq", "popf"}


def decode(code: bytes, registers: Registers, *, wide: bool = True) -> Instruction:
    """The instruction that ``code`` begins with; ``text`` is None without bytes or for an invalid instruction.

    ``wide``: not 32-bit x86, whose registers have 64-bit names here. Raises ImportError without capstone.
    """
    at = Address(registers.pc)
    if registers.processor.machine == AARCH64.machine:
        from necropsy.capture.process import arm64_instruction

        found = arm64_instruction.of_arm64(code, registers.values)
        return msgspec.structs.replace(found, operands=tuple(map(_untagged, found.operands)))
    if not code:
        return Instruction(address=at)
    import capstone

    disassembler = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64 if wide else capstone.CS_MODE_32)
    disassembler.detail = True
    one = next(disassembler.disasm(code[:_LONGEST], registers.pc, 1), None)
    if one is None:
        return Instruction(address=at)
    feature = _feature(one)
    return Instruction(
        address=at,
        text=f"{one.mnemonic} {one.op_str}".strip(),
        mnemonic=one.mnemonic,
        operands=tuple(_operands(one, registers)),
        registers=_named(one, registers),
        cpu_feature=feature[0] if feature else None,
        cpu_has_feature=_cpu_has(feature[1]) if feature else None,
    )


def untagged(address: int) -> int:
    """What AArch64 makes of an address: it ignores the highest byte, and takes bit 55 for all of it."""
    low = address & (1 << 56) - 1
    return low | (0xFF << 56 if low >> 55 else 0)


def _untagged(operand: MemoryOperand) -> MemoryOperand:
    if operand.address is None:
        return operand
    return msgspec.structs.replace(operand, address=Address(untagged(operand.address)))


BEFORE = 64
"""Bytes of code before the fault that are searched for literals."""
_MOVABS = re.compile(rb"[\x48\x49][\xb8-\xbf]$")


def with_literals(instruction: Instruction, before: bytes) -> Instruction:
    """``instruction``, with the registers whose value is loaded by a ``movabs`` in ``before``, the code ahead of it."""
    values = dict(instruction.registers)
    for operand in instruction.operands:
        values.update(operand.registers)
    found = tuple(name for name, value in values.items() if value >> 32 and _loaded(before, value))
    return msgspec.structs.replace(instruction, literals=found) if found else instruction


def _loaded(before: bytes, value: int) -> bool:
    at = before.rfind(value.to_bytes(8, "little"))
    return at >= 2 and _MOVABS.search(before[:at]) is not None


def _full(name: str) -> str:
    return _SUB_REGISTERS.get(name, name)


def _named(one: Any, registers: Registers) -> dict[str, Address]:
    import capstone.x86_const as x86

    values: dict[str, Address] = {}
    for operand in one.operands:
        if operand.type == x86.X86_OP_REG:
            names: Iterable[int] = (operand.reg,)
        elif operand.type == x86.X86_OP_MEM:
            names = (operand.mem.base, operand.mem.index)
        else:
            names = ()
        for number in names:
            name = _full(one.reg_name(number) or "") if number else ""
            if name in registers.values:
                values[name] = Address(registers[name])
    return values


def _operands(one: Any, registers: Registers) -> Iterable[MemoryOperand]:
    import capstone.x86_const as x86

    name = one.mnemonic.split()[-1]
    if name in {"lea", "nop"} or name.startswith("prefetch"):
        return
    for place, operand in enumerate(one.operands):
        if operand.type == x86.X86_OP_MEM:
            yield _memory(one, operand, registers, is_first=place == 0)
    stack = registers.sp
    if name in _STACK_WRITES:
        yield MemoryOperand(
            text="[rsp - 8]",
            access="write",
            address=Address(stack - 8 & _MASK),
            size=8,
            registers={"rsp": Address(stack)},
        )
    elif name in _STACK_READS:
        base = "rbp" if name == "leave" else "rsp"
        yield MemoryOperand(
            text=f"[{base}]",
            access="read",
            address=Address(registers[base]),
            size=8,
            registers={base: Address(registers[base])},
        )


def _memory(one: Any, operand: Any, registers: Registers, *, is_first: bool) -> MemoryOperand:
    memory = operand.mem
    address: int | None = memory.disp
    used: dict[str, Address] = {}
    for number, scale in ((memory.base, 1), (memory.index, memory.scale)):
        if not number or address is None:
            continue
        name = _full(one.reg_name(number))
        if name == "rip":
            address += one.address + one.size
        elif name in registers.values:
            value = registers[name]
            used[name] = Address(value)
            address += value * scale
        else:
            address = None  # a vector register as the index of a gather
    segment = one.reg_name(memory.segment) if memory.segment else None
    if address is not None and segment in {"fs", "gs"}:
        address += registers[f"{segment}_base"]
    return MemoryOperand(
        text=_text(one, memory),
        access=_access(one, operand, is_first=is_first),
        address=None if address is None else Address(address & _MASK),
        size=operand.size or None,
        registers=used,
    )


def _text(one: Any, memory: Any) -> str:
    parts = [one.reg_name(memory.base)] if memory.base else []
    if memory.index:
        parts.append(one.reg_name(memory.index) + (f"*{memory.scale}" if memory.scale != 1 else ""))
    text = " + ".join(parts)
    if memory.disp or not parts:
        sign = " - " if memory.disp < 0 else " + "
        text = f"{text}{sign}{abs(memory.disp):#x}" if parts else hex(memory.disp & _MASK)
    segment = one.reg_name(memory.segment) + ":" if memory.segment else ""
    return f"{segment}[{text}]"


def _access(one: Any, operand: Any, *, is_first: bool) -> Access | None:
    import capstone

    if one.mnemonic.startswith("call") or one.mnemonic.startswith("j"):
        return "read"
    if one.mnemonic.startswith(_VECTOR_MOVES):
        # capstone 5 calls a masked store (AVX-512, as in glibc's memset) a read. The target stands first.
        return "write" if is_first else "read"
    if operand.access & capstone.CS_AC_WRITE:
        return "write"
    return "read" if operand.access & capstone.CS_AC_READ else None


def _feature(one: Any) -> tuple[str, str] | None:
    name = one.mnemonic.split()[-1]
    if name in BY_MNEMONIC:
        return BY_MNEMONIC[name]
    groups = [one.group_name(group) for group in one.groups]
    found = [BY_GROUP[group] for group in groups if group in BY_GROUP]
    # AVX-512 on short vectors names two groups; the one that the CPU lacks is the one that matters.
    return next((feature for feature in found if _cpu_has(feature[1]) is False), found[0] if found else None)


def _cpu_has(flag: str) -> bool | None:
    flags = processor_flags()
    return None if flags is None else flag in flags


def access(instruction: Instruction | None, address: int | None, rip: int) -> Access | None:
    """Whether the fault at ``address`` was a read, a write, or the fetch of the instruction itself."""
    if address is not None and address == rip:
        return "exec"
    if instruction is None or not instruction.operands:
        return None
    at = [one for one in instruction.operands if one.address is not None and one.access is not None]
    if address is None:
        kinds = {one.access for one in at}
        return kinds.pop() if len(kinds) == 1 else None
    for one in at:
        if one.address is not None and one.address <= address < one.address + max(one.size or 1, 1):
            return one.access
    # String instructions move their pointers as they go; near enough is the operand that it was.
    near = [one for one in at if one.address is not None and abs(one.address - address) < 1 << 12]
    return near[0].access if len(near) == 1 else None
