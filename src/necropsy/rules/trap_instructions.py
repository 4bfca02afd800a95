"""Instructions that are put into a program to stop it: no processor lacks them, all refuse them."""

from __future__ import annotations

from necropsy.model import Crash

MNEMONICS = frozenset({"ud2", "ud1", "ud0", "ud2b", "int3", "int1", "icebp", "brk", "udf"})
"""x86: UD0 to UD2, INT3, INT1 (Intel SDM, volume 2); AArch64: BRK, UDF."""


def is_trap(crash: Crash) -> bool:
    """The instruction at the fault is a trap; after ``int3`` the program counter is one byte further."""
    instruction = crash.instruction
    if instruction is not None and instruction.mnemonic in MNEMONICS:
        return True
    return crash.fault is not None and crash.fault.signal == "SIGTRAP"
