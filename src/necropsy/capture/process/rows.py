"""Stacks by simple rows of unwind tables, in as few operations for a frame as can be.

Whatever the format of the tables, most frames are of one kind: the return address and what the frame saved lie at known
distances from the stack pointer, or from the frame pointer. A place of the code always leads to its caller in the same
way, so a deep recursion is a few such rows, again and again. What is of another kind is left to the system's own
walker, who gets the registers as they are there.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, Literal, TypeVar

from necropsy.capture.process.memory import Memory
from necropsy.capture.process.place import Place
from necropsy.capture.process.unwound import At, Unwound, Window

_BETWEEN_LOOKS = 4096
"""Frames between two looks at the clock."""

Row = TypeVar("Row")
"""What the tables of a format say of one place of the code."""

Followed = Literal["other", "no-code", "late"]
"""The last frame's row is of another kind, or its stack is not at hand; it returns to no code; time is up."""


@dataclass(frozen=True, eq=False, slots=True)
class Step(Generic[Row]):
    """What to do at one program counter; ``leads``: its row is a simple one.

    Offsets in bytes from ``rsp``, or with ``by_frame_pointer`` from ``rbp``: of the return address, of each register
    that the frame saved, and of the caller's ``rbp`` among them (None: it is kept).
    """

    places: tuple[Place, ...]
    row: Row | None = None
    is_code: bool = True
    leads: bool = False
    by_frame_pointer: bool = False
    returns_at: int = 0
    frame_pointer: int | None = None
    saved: tuple[tuple[str, int], ...] = ()


class RowWalker(ABC, Generic[Row]):
    """Walks the stacks of one process as far as simple rows lead."""

    keeps: ClassVar[tuple[str, ...]]
    """The registers that calls keep."""

    def __init__(self, memory: Memory) -> None:
        """Nothing is read yet."""
        self.memory = memory
        self.window = Window(b"", 0)
        self._exact: dict[int, Step[Row]] = {}
        self._returns: dict[int, Step[Row]] = {}

    @abstractmethod
    def find(self, pc: int, *, exact: bool) -> Step[Row]:
        """What the tables say of ``pc``; where not ``exact``, a call returns there. Asked once for code."""

    @abstractmethod
    def read(self, sp: int, end: int) -> Window:
        """The stack around ``sp``, where it reaches up to ``end``; as much as may be read at once."""

    def step(self, pc: int, *, exact: bool) -> Step[Row]:
        """As ``find``, kept."""
        steps = self._exact if exact else self._returns
        found = steps.get(pc)
        if found is None:
            found = self.find(pc, exact=exact)
            if found.is_code:
                steps[pc] = found
        return found

    def follow(self, out: Unwound, start: At, deadline: float) -> tuple[At, Followed]:
        """Append the frame of ``start`` if it is not listed, and callers as far as simple rows lead.

        The last frame, and why it is the last. ``deadline``: monotonic, in seconds.
        """
        pc, sp, bp = (start.registers.get(name, 0) for name in ("rip", "rsp", "rbp"))
        step = self.step(pc, exact=start.exact)
        if not start.listed:
            out.add(step.places, sp)
        last: dict[Step[Row], int] = {}
        """Where the newest frame of each row returns: what it saved is found from there."""
        returns, places, pointers, left = self._returns, out.places, out.pointers, _BETWEEN_LOOKS
        words, low, high = self.window.words, self.window.low, self.window.high
        ended: Followed = "other"
        while step.leads:
            base = bp if step.by_frame_pointer else sp
            where = base + step.returns_at
            if not low <= sp <= where < high or where & 7:
                self.window = self.read(sp, where + 8)
                words, low, high = self.window.words, self.window.low, self.window.high
                if not low <= sp <= where < high or where & 7:
                    break
            caller = words[where - low >> 3]
            saved = step.frame_pointer
            if saved is not None and not low <= base + saved < high - 7:
                break
            following = returns.get(caller)
            if following is None:
                following, left = self.step(caller, exact=False), 1  # it may have taken long: look at the clock
                if not following.is_code:
                    ended = "no-code"
                    break
            if saved is not None:
                bp = words[base + saved - low >> 3]
            last[step] = where
            pc, sp, step = caller, where + 8, following
            if len(step.places) == 1:
                places.append(step.places[0])
                pointers.append(sp)
            else:
                out.add(step.places, sp)
            left -= 1
            if not left:
                left = _BETWEEN_LOOKS
                if time.monotonic() > deadline:
                    ended = "late"
                    break
        if not last:
            return At(start.registers, exact=start.exact), ended
        return At({**self._kept(start.registers, last), "rip": pc, "rsp": sp, "rbp": bp}), ended

    def _kept(self, registers: Mapping[str, int], last: Mapping[Step[Row], int]) -> dict[str, int]:
        """What calls keep, as it is at the last frame: saved by the newest frame that saved it, else as at first."""
        found: dict[str, tuple[int, int]] = {}
        for step, where in last.items():
            base = where - step.returns_at
            for name, offset in step.saved:
                if where > found.get(name, (0, 0))[0]:
                    found[name] = where, base + offset
        values = {name: registers[name] for name in self.keeps if name in registers}
        for name, (_, at) in found.items():
            value = self.memory.u64(at)
            if value is None:
                values.pop(name, None)
            else:
                values[name] = value
        return values
