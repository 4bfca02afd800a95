"""Which register of a memory operand was the pointer: ``[rax + rcx*4 + 0x10]`` has a base, an index and a displacement.

The pointer that the address was made from decides whether it was null, not the size of the address.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from necropsy.model import MemoryOperand

_OPERAND = re.compile(
    r"\[(?P<base>[a-z]\w*)(?: \+ (?P<index>[a-z]\w*)(?:\*(?P<scale>[1248]))?)?(?: [+-] 0x[0-9a-f]+| [+-] \d+)?\]"
)
"""As ``capture.process.fault_instruction`` and the texts of debuggers spell it; one with a segment register is another matter."""
_MASK = (1 << 64) - 1
_HIGH = 1 << 32
"""Above it lie the addresses of programs, libraries and stacks that are loaded anywhere (PIE); hardly any index."""
_LEAST_CHUNK = 0x20
_FLAGS = 0x7


@dataclass(frozen=True)
class Pointer:
    """A register, its value, and the added signed ``offset`` in bytes; ``sure``: no other register can be it."""

    register: str
    value: int
    offset: int
    sure: bool


def pointer_in(operand: MemoryOperand, address: int | None) -> Pointer | None:
    """The pointer from which ``address`` was made; None if the operand has none, or its value is unknown.

    If base and index are added without a scale, compilers use either order: the one that looks like an address counts.
    """
    match = _OPERAND.fullmatch(operand.text)
    if match is None or match["base"] in {"rip", "eip"}:
        return None
    values = {name.lower(): int(value) for name, value in operand.registers.items()}
    base = values.get(match["base"])
    if base is None:
        return None
    register, value, sure = match["base"], base, True
    index = values.get(match["index"]) if match["index"] else None
    if index is not None and match["scale"] in {None, "1"}:
        sure = False
        pointer_is_index = _looks_like_address(index) and not _looks_like_address(base)
        if pointer_is_index or (index == 0 and -_HIGH < _signed(base) < 0):  # no pointer is negative, many an index is
            register, value = match["index"], index
    return Pointer(register, value, 0 if address is None else _signed(address - value), sure)


def _signed(number: int) -> int:
    number &= _MASK
    return number - (1 << 64) if number >> 63 else number


def _looks_like_address(value: int) -> bool:
    return _HIGH <= value < 1 << 48


def chunk_of_malloc(value: int) -> int | None:
    """Bytes of the block beside which glibc's malloc keeps this number: its size with a flag, ``0x31`` -> 48.

    The size is a multiple of 16, and the lowest bit says that the block before it is in use (malloc/malloc.c).
    """
    size = value & ~_FLAGS
    return size if value & 1 and size >= _LEAST_CHUNK and size % 16 == 0 else None
