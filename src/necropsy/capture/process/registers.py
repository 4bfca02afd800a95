"""The general registers of a stopped thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from necropsy.formats.processors import X86_64, Processor
from necropsy.model import Address


@dataclass(frozen=True)
class Registers:
    """The values by name."""

    values: Mapping[str, int]
    processor: Processor = X86_64

    def __getitem__(self, name: str) -> int:
        return self.values[name]

    @property
    def pc(self) -> int:
        """The program counter."""
        return self.values[self.processor.counter]

    @property
    def sp(self) -> int:
        """The stack pointer."""
        return self.values[self.processor.pointer]

    @property
    def fp(self) -> int:
        """The frame pointer, where code keeps one."""
        return self.values[self.processor.frame]

    @property
    def thread_pointer(self) -> int:
        """Where the thread's own variables are; 0 where a core does not say it."""
        return self.values.get(self.processor.thread_pointer, 0)

    def as_noun(self) -> dict[str, Address]:
        """As the model says it, in the order in which debuggers show them."""
        shown = self.processor.shown
        return {name: Address(self.values[name]) for name in shown if name in self.values}
