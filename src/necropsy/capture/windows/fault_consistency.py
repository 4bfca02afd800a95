"""Whether a dump's fault and the instruction at its program counter belong together.

They may not: a handler may have unwound a part of the stack before it wrote the dump, and Breakpad on Linux did not
always record why the kernel sent the signal.
"""

from __future__ import annotations

import msgspec

from necropsy.model import Fault, Instruction

_IMPLICIT = frozenset({"xlatb", "maskmovdqu", "vmaskmovdqu", "maskmovq"})
"""Instructions that use memory which capstone does not list."""
_BAD_ADDRESS = frozenset({"SIGSEGV", "SIGBUS"})
_HALVES = frozenset({0, 0x1FFFF})
"""What an address of x86-64 may begin with: bits 47 to 63 are equal."""


def fault_told(fault: Fault | None, read: Instruction | None) -> Fault | None:
    """The fault, without the 0 that Linux gives for a non-canonical address, which x86-64 does not report."""
    if (
        fault is None
        or fault.address != 0
        or fault.code is not None
        or fault.signal not in _BAD_ADDRESS
        or read is None
    ):
        return fault
    used = [one.address for one in read.operands if one.address is not None]
    if fault.signal in _BAD_ADDRESS and used and not any(one >> 47 in _HALVES for one in used):
        return msgspec.structs.replace(fault, address=None, code="SI_KERNEL")
    return fault


def is_strange(fault: Fault | None, read: Instruction | None) -> bool:
    """Data was read or written, and the instruction uses no memory: it is not the one that faulted."""
    return (
        fault is not None
        and fault.signal in _BAD_ADDRESS
        and fault.access in {"read", "write"}
        and read is not None
        and read.text is not None
        and not read.operands
        and read.mnemonic not in _IMPLICIT
    )
