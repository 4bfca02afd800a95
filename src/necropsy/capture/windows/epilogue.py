"""Where a function of x86 returns to, by the instructions that lead to its return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

_MOST = 400
"""Instructions that are looked at."""
_AT_ONCE = 64
"""Bytes of code that are read at once."""
_LONGEST_CALLEE = 160
"""Instructions of a function that are looked through for what it takes from the stack."""
_ENDS = frozenset({"int3", "hlt", "ud2", "int", "retf", "iretd", "iretq"})
_RETURNS = frozenset({"ret", "retn"})

Code = Callable[[int, int], bytes]
"""Up to so many bytes from an address on."""


class Return(NamedTuple):
    """Offsets from the stack pointer in bytes; ``frame``: the caller's frame pointer's, None if in its register."""

    at: int
    """Of the return address."""
    after: int
    """Of the caller's stack pointer."""
    frame: int | None = None


Way = Return | Literal["framed"] | None
"""``framed``: the frame pointer leads to the caller. None: the instructions do not tell."""


def ahead(code: Code, pc: int, *, wide: bool) -> Way:
    """How the function at ``pc`` returns; ``wide``: of x86-64.

    What holds at ``pc`` holds on each way from there: the first that shows it is taken.
    """
    try:
        import capstone
    except ImportError:
        return None
    disassembler = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64 if wide else capstone.CS_MODE_32)
    return _Search(code, disassembler, wide=wide).way(pc)


class _Search:
    def __init__(self, code: Code, disassembler: Any, *, wide: bool) -> None:
        self._code, self._disassembler, self._wide = code, disassembler, wide
        self._seen: set[int] = set()

    def way(self, pc: int) -> Way:
        ways: list[tuple[int, _State]] = [(pc, _State(8 if self._wide else 4))]
        while ways:
            at, state = ways.pop()
            found = self._follow(at, state, ways)
            if found is not None:
                return found
        return None

    def _follow(self, at: int, state: _State, ways: list[tuple[int, _State]]) -> Way:
        while at not in self._seen and len(self._seen) < _MOST:
            start = at
            for address, size, mnemonic, operands in self._disassembler.disasm_lite(self._code(at, _AT_ONCE), at):
                if address in self._seen or len(self._seen) >= _MOST:
                    return None
                self._seen.add(address)
                at = address + size
                if mnemonic in _RETURNS:
                    return state.returned(operands)
                if mnemonic in _ENDS:
                    return None
                if mnemonic[0] == "j":
                    target = _number(operands)
                    if mnemonic == "jmp":
                        if target is None:
                            return None  # of a switch, or of an import
                        at = target
                        break
                    if target is not None:
                        ways.append((target, replace(state)))
                    continue
                taken = self._taken_by(operands) if mnemonic == "call" else None
                told = state.take(mnemonic, operands, taken)
                if told is not None:
                    return None if told == "unknown" else told
            else:
                if at == start:
                    return None  # no code, or none that is known
        return None

    def _taken_by(self, operands: str) -> int | None:
        """What the called function pops off the stack when it returns; None where unknown."""
        target = _number(operands)
        if self._wide or target is None:
            return 0 if self._wide else None
        at = target
        for _ in range(_LONGEST_CALLEE):
            one = next(iter(self._disassembler.disasm_lite(self._code(at, 15), at, 1)), None)
            if one is None or one[2] in _ENDS:
                return None
            _, size, mnemonic, rest = one
            if mnemonic in _RETURNS:
                return _number(rest) if rest else 0
            if mnemonic == "jmp":
                jumped = _number(rest)
                if jumped is None or jumped <= at:
                    return None
                at = jumped
            else:
                at += size
        return None


@dataclass
class _State:
    """What the instructions have done to the stack pointer, counted from where it was at first."""

    word: int
    at: int = 0
    frame: int | None = None
    """Offset of the caller's frame pointer; None: in its register."""
    called: bool = False
    """A call was passed: if it does not return, what follows it may belong to another function."""

    def take(self, mnemonic: str, operands: str, taken: int | None) -> Return | Literal["framed", "unknown"] | None:
        """One instruction; None: it goes on. ``taken``: what a call pops off the stack, None where unknown."""
        sp, bp = ("rsp", "rbp") if self.word == 8 else ("esp", "ebp")
        first, _, second = (part.strip() for part in operands.partition(","))
        if mnemonic == "push":
            self.at -= self.word
        elif mnemonic == "pop":
            if first == sp:
                return "unknown"
            if first == bp:
                self.frame = self.at if self.at >= 0 else None
            self.at += self.word
        elif mnemonic == "leave" or (mnemonic in {"mov", "lea"} and first == sp and bp in second):
            return "framed"
        elif mnemonic == "mov" and (first, second) == (bp, sp):
            # The frame begins here: the caller's frame pointer has just been pushed, above it lies the return address.
            if self.called or self.at < -self.word:
                return "unknown"
            return Return(self.at + self.word, self.at + 2 * self.word, self.frame)
        elif mnemonic == "call":
            if taken is None:
                return "unknown"
            self.at += taken
            self.called = True
        elif mnemonic in {"add", "sub"} and first == sp:
            size = _number(second)
            if size is None:
                return "unknown"
            self.at += size if mnemonic == "add" else -size
        elif first == sp and mnemonic not in {"cmp", "test"}:
            return "unknown"
        return None

    def returned(self, operands: str) -> Return | None:
        extra = _number(operands) if operands else 0
        if extra is None or self.at < 0:
            return None
        return Return(self.at, self.at + self.word + extra, self.frame)


def _number(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None
