"""The general registers of a stopped thread (x86-64)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from necropsy.model import Address

_SHOWN = (
    *("rip", "rsp", "rbp", "rax", "rbx", "rcx", "rdx", "rsi", "rdi"),
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "eflags", "fs_base"),
)


@dataclass(frozen=True)
class Registers:
    """The values by name."""

    values: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.values[name]

    @property
    def rip(self) -> int:
        """The program counter."""
        return self.values["rip"]

    @property
    def rsp(self) -> int:
        """The stack pointer."""
        return self.values["rsp"]

    @property
    def rbp(self) -> int:
        """The frame pointer, where code keeps one."""
        return self.values["rbp"]

    def as_noun(self) -> dict[str, Address]:
        """As the model says it, in the order in which debuggers show them."""
        return {name: Address(self.values[name]) for name in _SHOWN}
