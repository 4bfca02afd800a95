"""The way to the caller by the libraries' own unwind tables, in as few steps for a frame as can be.

Most frames are of one kind: the caller's stack pointer is this one's, or the frame pointer, and a number; what it needs
lies at known distances from there. A deep recursion is a few such rows, again and again. What is of another kind (a
signal's frame, an expression, code without tables) is left to others, who get the registers as they are there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from necropsy.capture.linux.maps import Maps
from necropsy.capture.linux.modules import MappedFiles
from necropsy.capture.process.memory import PAGE, Memory
from necropsy.capture.process.place import Place
from necropsy.capture.process.unwound import At, Unwound, Window
from necropsy.formats.eh_frame import RBP, RETURN, RSP, Row

_NAMES = {3: "rbx", 6: "rbp", 12: "r12", 13: "r13", 14: "r14", 15: "r15"}
"""Registers that calls keep, by their DWARF numbers."""
_MOST_AT_ONCE = 64 << 20
"""Bytes of a stack that are read at once."""
_WORD = 8
_BETWEEN_LOOKS = 4096
"""Frames between two looks at the clock."""


Ended = Literal["bottom", "stuck", "unknown", "late"]
"""Nobody called the last frame; its return address is no code; tables do not tell; time is up."""


@dataclass(frozen=True, eq=False, slots=True)
class _Step:
    """What to do at one program counter; ``leads``: a simple row leads on from there.

    Offsets in bytes: ``cfa`` from its register, ``frame_pointer`` (where the caller's lies) from the CFA.
    """

    places: tuple[Place, ...]
    row: Row | None = None
    leads: bool = False
    by_frame_pointer: bool = False
    cfa: int = 0
    frame_pointer: int | None = None


class TableWalker:
    """Walks the stacks of one process as far as simple rows lead."""

    def __init__(
        self, maps: Maps, memory: Memory, files: MappedFiles, places_at: Callable[[int, bool], tuple[Place, ...]]
    ) -> None:
        """``places_at`` says what stands at a program counter, as ``Places.at`` does."""
        self._maps, self._memory, self._files, self._places_at = maps, memory, files, places_at
        self._exact: dict[int, _Step] = {}
        self._returns: dict[int, _Step] = {}
        self._window = Window(b"", 0)

    def knows(self, pc: int, *, exact: bool) -> bool:
        """Whether the tables tell how to go on from ``pc``; where not ``exact``, a call returns there."""
        step = self._step(pc, exact=exact)
        return step.leads or _is_outermost(step)

    def _step(self, pc: int, *, exact: bool) -> _Step:
        steps = self._exact if exact else self._returns
        found = steps.get(pc)
        if found is None:
            found = steps[pc] = self._find(pc, exact=exact)
        return found

    def _find(self, pc: int, *, exact: bool) -> _Step:
        places = self._places_at(pc, exact)
        looked_up = pc if exact or pc == 0 else pc - 1
        file = self._files.at(looked_up)
        row = file.row(looked_up) if file is not None and places[-1].executable else None
        if row is None or row.outermost:
            return _Step(places, row)
        saved = dict(row.saved)
        if row.cfa_register not in {RSP, RBP} or saved[RETURN] != -_WORD or max(saved.values()) >= 0:
            return _Step(places)
        return _Step(places, row, True, row.cfa_register == RBP, row.cfa_offset, saved.get(RBP))

    def walk(self, out: Unwound, start: At, deadline: float) -> tuple[At, Ended]:
        """Append frames as long as the tables lead on; the last frame, and why it is the last.

        ``deadline``: monotonic, in seconds.
        """
        pc, sp, bp = (start.registers.get(name, 0) for name in ("rip", "rsp", "rbp"))
        step = self._step(pc, exact=start.exact)
        if not start.listed:
            out.add(step.places, sp)
        last: dict[_Step, int] = {}
        """Where the newest frame of each row ends: what it saved is found from there."""
        returns, places, pointers, left = self._returns, out.places, out.pointers, _BETWEEN_LOOKS
        window = self._window
        words, low, high = window.words, window.low, window.high
        ended: Ended = "unknown"
        while step.leads:
            cfa = (bp if step.by_frame_pointer else sp) + step.cfa
            if not low <= sp < cfa <= high or cfa & 7:
                window = self._window = self._read(sp, cfa)
                words, low, high = window.words, window.low, window.high
                if not low < cfa <= high or cfa <= sp or cfa & 7:
                    break
            caller = words[(cfa - low >> 3) - 1]
            saved = step.frame_pointer
            following = returns.get(caller)
            if following is None:
                following, left = self._step(caller, exact=False), 1  # it may have taken long: look at the clock
            if not following.places[-1].executable or (saved is not None and cfa + saved < low):
                ended = "stuck"
                break
            if saved is not None:
                bp = words[cfa + saved - low >> 3]
            last[step] = cfa
            pc, sp, step = caller, cfa, following
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
        if not step.leads and _is_outermost(step):
            ended = "bottom"
        registers = {**self._kept(start.registers, last), "rip": pc, "rsp": sp, "rbp": bp}
        return At(registers, exact=start.exact and not last), ended

    def _read(self, sp: int, end: int) -> Window:
        """The stack from the page of ``sp`` on, where it reaches up to ``end``."""
        one = self._maps.at(sp)
        if one is None or not one.readable:
            # Where a stack is used up, its pointer lies below its lowest page.
            one = self._maps.above(sp)
        if one is None or not one.readable or end > one.high:
            return Window(b"", 0)
        low = max(one.low, sp & -PAGE)
        return Window(self._memory.some(low, min(one.high - low, _MOST_AT_ONCE)), low)

    def _kept(self, registers: Mapping[str, int], last: Mapping[_Step, int]) -> dict[str, int]:
        """What calls keep, as it is at the last frame: saved by the newest frame that saved it, else as at first."""
        found: dict[str, tuple[int, int]] = {}
        for step, cfa in last.items():
            for register, offset in step.row.saved if step.row is not None else ():
                name = _NAMES.get(register)
                if name is not None and cfa > found.get(name, (0, 0))[0]:
                    found[name] = cfa, cfa + offset
        values = {name: registers[name] for name in _NAMES.values() if name in registers}
        for name, (_, at) in found.items():
            value = self._memory.u64(at)
            if value is not None:
                values[name] = value
        return values


def _is_outermost(step: _Step) -> bool:
    return step.row is not None and step.row.outermost
