"""Call graph of an x86-64 library: calls and tail calls whose target can be read from the machine code.

Stubs (an ELF file's procedure linkage table, a DLL's imports) are followed to their function, in the same file or in
another. Calls through a register or a table are only counted: their target is not known before the program runs.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from necropsy.formats.frame_sizes import FrameSizes

_LARGEST_FUNCTION = 1 << 20
STUB = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\xf2?\xff\x25(.{4})", re.DOTALL)
"""A stub, which jumps to where a slot says; the slot is at that signed distance from its end.

endbr64 and bnd are there or not: .plt, .plt.sec and .plt.got of the linkers differ.
"""
_RIP_RELATIVE = re.compile(r"qword ptr \[rip ([+-]) (0x[0-9a-f]+|\d+)\]")


class MachineCode(Protocol):
    """The code of one file, by address."""

    has_leaves: bool
    """A function that the tables do not have takes nothing but its return address."""

    def some(self, address: int, size: int) -> bytes:
        """``size`` bytes at ``address``; fewer or none where they are not there."""

    def slot(self, address: int) -> tuple[str, int] | None:
        """The function whose address the loader writes to ``address``: its name, and its address in this file or 0."""

    def addresses(self) -> Iterable[int]:
        """Addresses of functions that are in the file's data: virtual functions, and tables of functions."""


@dataclass(frozen=True)
class FunctionCalls:
    """What one function calls: indices into its ``FrameSizes``, and names of functions of other libraries."""

    called: tuple[int, ...] = ()
    jumped: tuple[int, ...] = ()
    """Tail calls, and parts of the same function that the compiler has put elsewhere: the frame is not kept."""
    outside: tuple[str, ...] = ()
    indirect: int = 0
    taken: tuple[int, ...] = ()
    """Functions whose address it takes: callbacks, as a rule."""
    is_dynamic: bool = False
    """It takes memory from the stack whose size is known only when it runs (``alloca``, variable-length arrays)."""


class CallGraph:
    """The calls of one file; each function is disassembled when it is asked for."""

    def __init__(self, code: MachineCode, functions: FrameSizes) -> None:
        """Read ``code``, whose functions are ``functions``. Raises ImportError where capstone is not installed."""
        import capstone

        self._code, self._functions = code, functions
        self._machine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        self._stubs: dict[int, int | str | None] = {}

    def calls(self, index: int) -> FunctionCalls:
        """What the function of this index calls."""
        start, size = self._functions.extent(index)
        code = self._code.some(start, size) if size <= _LARGEST_FUNCTION else b""
        if not code:
            return FunctionCalls(indirect=1)
        called: dict[int, None] = {}
        jumped: dict[int, None] = {}
        outside: dict[str, None] = {}
        taken: dict[int, None] = {}
        indirect, is_dynamic = 0, False
        before = ("", "")
        for address, length, name, operands in self._machine.disasm_lite(code, start):
            if name == "lea" and operands.endswith("]"):
                place = _relative(operands.partition(", ")[2], address + length)
                target = self._functions.beginning_at(place) if place is not None else None
                if target is not None:
                    taken[target] = None
                continue
            if name == "sub" and operands.startswith("rsp, r"):
                # Before a large frame, Windows' compilers call a function that touches its pages: mov eax, size first.
                is_dynamic |= not (operands == "rsp, rax" and before[0] == "mov" and before[1].startswith("eax, 0x"))
                continue
            is_call = name in {"call", "bnd call", "notrack call"}
            if not is_call:
                before = (name, operands)
            if not is_call and not name.startswith(("j", "bnd j", "notrack j")):
                continue
            found = self._target(operands, address + length)
            if found is None:
                # A jump through a register is a switch's as a rule, and one to the middle of a function a loop's.
                indirect += is_call and not (self._code.has_leaves and operands.startswith("0x"))
            elif isinstance(found, str):
                outside[found] = None
            elif is_call:
                called[found] = None
            elif not start <= self._functions.starts[found] < start + size:
                jumped[found] = None
        return FunctionCalls(tuple(called), tuple(jumped), tuple(outside), indirect, tuple(taken), is_dynamic)

    def _target(self, operands: str, after: int) -> int | str | None:
        """A function of this file, one of another library by its name, or None where the target is unknown."""
        if operands.startswith("0x"):
            address = int(operands, 16)
            index = self._functions.beginning_at(address)
            return index if index is not None else self._through_stub(address)
        slot = _relative(operands, after)
        return self._in_slot(slot) if slot is not None else None

    def _through_stub(self, address: int) -> int | str | None:
        if address not in self._stubs:
            match = STUB.match(self._code.some(address, 16))
            self._stubs[address] = (
                self._in_slot(address + match.end() + struct.unpack("<i", match[1])[0]) if match is not None else None
            )
        return self._stubs[address]

    def _in_slot(self, slot: int) -> int | str | None:
        symbol = self._code.slot(slot)
        if symbol is None:
            return None
        name, address = symbol
        index = self._functions.beginning_at(address) if address else None
        return index if index is not None else name

    def in_data(self) -> list[int]:
        """Functions whose address is in the file's data."""
        found = (self._functions.beginning_at(address) for address in self._code.addresses())
        return list(dict.fromkeys(index for index in found if index is not None))


def _relative(operand: str, after: int) -> int | None:
    match = _RIP_RELATIVE.fullmatch(operand) if "rip" in operand else None
    if match is None:
        match = _RIP_RELATIVE.fullmatch(f"qword ptr {operand}") if operand.startswith("[rip") else None
    if match is None:
        return None
    distance = int(match[2], 0)
    return after + distance if match[1] == "+" else after - distance
