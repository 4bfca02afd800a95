"""How the caller's registers are computed where a row of the unwind tables is not simple: DWARF 5, 2.5 and 6.4.

Expressions describe a signal's frame, stubs of the procedure linkage table, and functions that align their stack.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from necropsy.errors import InputError

Kind = Literal["offset", "value-offset", "register", "expression", "value-expression", "undefined", "same"]
Load = Callable[[int], int | None]
"""The word at an address; None where it cannot be read."""
_MASK = (1 << 64) - 1
_MOST_STEPS = 1000
_LEB_CONSTANTS = {0x10: False, 0x11: True}
_FIXED = {0x08: (1, False), 0x09: (1, True), 0x0A: (2, False), 0x0B: (2, True), 0x0C: (4, False), 0x0D: (4, True)}
_BINARY: dict[int, Callable[[int, int], int]] = {
    0x1A: lambda a, b: a & b,
    0x1C: lambda a, b: a - b,
    0x1E: lambda a, b: a * b,
    0x21: lambda a, b: a | b,
    0x22: lambda a, b: a + b,
    0x24: lambda a, b: a << (b & 63),
    0x25: lambda a, b: a >> (b & 63),
    0x29: lambda a, b: int(a == b),
    0x2A: lambda a, b: int(_as_signed(a) >= _as_signed(b)),
    0x2B: lambda a, b: int(_as_signed(a) > _as_signed(b)),
    0x2C: lambda a, b: int(_as_signed(a) <= _as_signed(b)),
    0x2D: lambda a, b: int(_as_signed(a) < _as_signed(b)),
    0x2E: lambda a, b: int(a != b),
}


@dataclass(frozen=True)
class Rule:
    """Where a register's value is: ``number`` is an offset from the CFA or a register, ``code`` an expression."""

    kind: Kind
    number: int = 0
    code: bytes = b""


@dataclass(frozen=True)
class CallRules:
    """What the tables say of one address, in full. ``cfa``: register and offset, or an expression."""

    cfa: tuple[int, int] | bytes
    rules: Mapping[int, Rule] = field(default_factory=dict)
    is_signal: bool = False

    def caller(self, registers: Mapping[int, int], load: Load, *, stack_pointer: int) -> dict[int, int] | None:
        """The caller's registers by DWARF number, or None if one is unknown. Raises InputError if damaged."""
        if isinstance(self.cfa, bytes):
            cfa = evaluate(self.cfa, registers, load)
        else:
            base = registers.get(self.cfa[0])
            cfa = None if base is None else base + self.cfa[1] & _MASK
        if cfa is None:
            return None
        found = {stack_pointer: cfa}
        for register, rule in self.rules.items():
            value = self._value(rule, cfa, registers, load)
            if rule.kind not in {"undefined", "same"}:
                if value is None:
                    return None
                found[register] = value
        return found

    @staticmethod
    def _value(rule: Rule, cfa: int, registers: Mapping[int, int], load: Load) -> int | None:
        if rule.kind in {"offset", "value-offset"}:
            at = cfa + rule.number & _MASK
            return load(at) if rule.kind == "offset" else at
        if rule.kind == "register":
            return registers.get(rule.number)
        if rule.code:
            found = evaluate(rule.code, registers, load, (cfa,))
            return load(found) if found is not None and rule.kind == "expression" else found
        return None


def evaluate(code: bytes, registers: Mapping[int, int], load: Load, stack: tuple[int, ...] = ()) -> int | None:
    """Value of an expression, or None if its input is unknown. Raises InputError if damaged or too unusual."""
    values, at, steps = list(stack), 0, 0
    try:
        while at < len(code) and steps < _MOST_STEPS:
            steps += 1
            op = code[at]
            at += 1
            if 0x30 <= op <= 0x4F:  # DW_OP_lit0 to DW_OP_lit31
                values.append(op - 0x30)
            elif 0x70 <= op <= 0x8F:  # DW_OP_breg0 to DW_OP_breg31
                offset, at = signed_number(code, at)
                if op - 0x70 not in registers:
                    return None
                values.append(registers[op - 0x70] + offset & _MASK)
            elif op in _FIXED:
                size, is_signed = _FIXED[op]
                values.append(int.from_bytes(code[at : at + size], "little", signed=is_signed) & _MASK)
                at += size
            elif op in _LEB_CONSTANTS:
                value, at = (signed_number if _LEB_CONSTANTS[op] else number)(code, at)
                values.append(value & _MASK)
            elif op == 0x06:  # DW_OP_deref
                word = load(values.pop())
                if word is None:
                    return None
                values.append(word)
            elif op == 0x12:  # DW_OP_dup
                values.append(values[-1])
            elif op == 0x23:  # DW_OP_plus_uconst
                value, at = number(code, at)
                values.append(values.pop() + value & _MASK)
            elif op in _BINARY:
                second, first = values.pop(), values.pop()
                values.append(_BINARY[op](first, second) & _MASK)
            else:
                raise InputError(f"operation {op:#x} in unwind tables")
        return values[-1]
    except IndexError as error:
        raise InputError("a damaged expression in unwind tables") from error


def number(data: bytes, at: int) -> tuple[int, int]:
    """ULEB128: the value, and where what follows it begins."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return value, at
        if shift > 63:
            raise InputError("a number of more than 64 bits")


def signed_number(data: bytes, at: int) -> tuple[int, int]:
    """SLEB128."""
    value, after = number(data, at)
    bits = (after - at) * 7
    return (value - (1 << bits) if value >> bits - 1 & 1 else value), after


def _as_signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
