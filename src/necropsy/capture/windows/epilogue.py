"""Where a function of x86 returns to, by the instructions that lead to its return."""

from __future__ import annotations

from typing import Literal, NamedTuple

_LONGEST = 256
"""Bytes that are read on."""
_ENDS = frozenset({"int3", "hlt", "ud2", "int", "retf", "iretd", "iretq"})


class Return(NamedTuple):
    """Distances from the stack pointer, in bytes.

    ``frame``: of the caller's frame pointer; None where its register has it.
    """

    at: int
    """Of the return address."""
    after: int
    """Of the caller's stack pointer."""
    frame: int | None = None


Way = Return | Literal["framed"] | None
"""``framed``: the frame pointer leads to the caller. None: the instructions do not tell."""


def ahead(code: bytes, pc: int, *, wide: bool) -> Way:
    """How the function returns whose instructions at ``pc`` are ``code``; ``wide``: of x86-64.

    They are followed in a row, as if no conditional jump were taken: that is one of the ways that the function may go.
    """
    try:
        import capstone
    except ImportError:
        return None
    path = _Path(8 if wide else 4)
    disassembler = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64 if wide else capstone.CS_MODE_32)
    for _, _, mnemonic, operands in disassembler.disasm_lite(code[:_LONGEST], pc):
        if mnemonic in {"ret", "retn"}:
            return path.returned(operands)
        if mnemonic in _ENDS or mnemonic == "jmp":
            return None
        told = path.take(mnemonic, operands)
        if told is not None:
            return "framed" if told == "framed" else None
    return None


class _Path:
    """What the instructions do to the stack pointer and the frame pointer."""

    def __init__(self, word: int) -> None:
        self._word = word
        self._sp, self._bp = ("rsp", "rbp") if word == 8 else ("esp", "ebp")
        self._at = 0
        """The stack pointer, counted from where it was at first."""
        self._framed_at: int | None = None
        """What it was when the frame pointer was set to it."""
        self._frame: int | None = None

    def take(self, mnemonic: str, operands: str) -> Literal["framed", "unknown"] | None:
        """One instruction."""
        first, _, second = (part.strip() for part in operands.partition(","))
        if mnemonic == "push":
            self._at -= self._word
        elif mnemonic == "pop":
            if first == self._sp:
                return "unknown"
            self._popped(first)
        elif mnemonic == "leave" or (mnemonic == "mov" and (first, second) == (self._sp, self._bp)):
            if self._framed_at is None:
                return "framed"
            self._at = self._framed_at
            if mnemonic == "leave":
                self._popped(self._bp)
        elif mnemonic == "mov" and (first, second) == (self._bp, self._sp):
            self._framed_at = self._at
        elif mnemonic == "call":
            # What the callee takes from the stack is not known; a frame that is set up later makes up for it.
            return None if self._framed_at is not None else "unknown"
        elif mnemonic in {"add", "sub"} and first == self._sp:
            try:
                size = int(second, 0)
            except ValueError:
                return "unknown"
            self._at += size if mnemonic == "add" else -size
        elif first == self._sp and mnemonic not in {"cmp", "test"}:
            # `lea esp, [ebp - 12]` before the pops of a frame.
            return "framed" if self._bp in second and self._framed_at is None else "unknown"
        return None

    def _popped(self, register: str) -> None:
        if register == self._bp:
            self._frame = self._at if self._at >= 0 else None
        self._at += self._word

    def returned(self, operands: str) -> Way:
        try:
            extra = int(operands, 0) if operands else 0
        except ValueError:
            return None
        return Return(self._at, self._at + self._word + extra, self._frame) if self._at >= 0 else None
