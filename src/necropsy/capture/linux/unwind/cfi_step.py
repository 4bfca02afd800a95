"""The way to the caller by the libraries' own unwind tables of DWARF, as far as simple rows lead.

What is of another kind (a signal's frame, an expression, code without tables) is left to others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal

from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.process.cfi_unwinder import WINDOW, CfiRowStep, CfiUnwinder, Followed
from necropsy.capture.process.code_location import CodeLocation
from necropsy.capture.process.memory import PAGE, Memory
from necropsy.capture.process.native_stack import Cursor, NativeStack, StackMemory
from necropsy.formats.eh_frame import RBP, RETURN, RSP, CfiRow

_NAMES = {3: "rbx", 6: "rbp", 12: "r12", 13: "r13", 14: "r14", 15: "r15"}
"""Registers that calls keep, by their DWARF numbers."""
_WORD = 8

Ended = Literal["bottom", "stuck", "unknown", "late"]
"""Nobody called the last frame; its return address is no code; tables do not tell; time is up."""
_ENDED: dict[Followed, Ended] = {"other": "unknown", "no-code": "stuck", "late": "late"}


class CfiStep(CfiUnwinder[CfiRow]):
    """Walks the stacks of one process as far as simple rows lead."""

    keeps: ClassVar[tuple[str, ...]] = tuple(_NAMES.values())

    def __init__(
        self,
        maps: MemoryMap,
        memory: Memory,
        files: MappedFiles,
        places_at: Callable[[int, bool], tuple[CodeLocation, ...]],
    ) -> None:
        """``places_at`` says what stands at a program counter, as ``Places.at`` does."""
        super().__init__(memory)
        self._maps, self._files, self._places_at = maps, files, places_at

    def knows(self, pc: int, *, exact: bool) -> bool:
        """Whether the tables tell how to go on from ``pc``; where not ``exact``, a call returns there."""
        step = self.step(pc, exact=exact)
        return step.leads or _is_outermost(step)

    def walk(self, out: NativeStack, start: Cursor, deadline: float) -> tuple[Cursor, Ended]:
        """Append frames as long as the tables lead on; the last frame, and why it is the last.

        ``deadline``: monotonic, in seconds.
        """
        at, followed = self.follow(out, start, deadline)
        if _is_outermost(self.step(at.registers.get("rip", 0), exact=at.exact)):
            return at, "bottom"
        return at, _ENDED[followed]

    def find(self, pc: int, *, exact: bool) -> CfiRowStep[CfiRow]:
        """As ``CfiUnwinder.find``."""
        places = self._places_at(pc, exact)
        if not places[-1].executable:
            return CfiRowStep(places, is_code=False)
        looked_up = pc if exact or pc == 0 else pc - 1
        file = self._files.at(looked_up)
        row = file.row(looked_up) if file is not None else None
        if row is None or row.outermost:
            return CfiRowStep(places, row)
        saved = dict(row.saved)
        if row.cfa_register not in {RSP, RBP} or saved[RETURN] != -_WORD or max(saved.values()) >= 0:
            return CfiRowStep(places)
        return CfiRowStep(
            places,
            row,
            leads=True,
            by_frame_pointer=row.cfa_register == RBP,
            returns_at=row.cfa_offset - _WORD,
            frame_pointer=row.cfa_offset + saved[RBP] if RBP in saved else None,
            saved=tuple((_NAMES[one], row.cfa_offset + offset) for one, offset in row.saved if one in _NAMES),
        )

    def read(self, sp: int, end: int) -> StackMemory:
        """As ``CfiUnwinder.read``: from the page of ``sp`` on, or for a large frame from the one before ``end``."""
        one = self._maps.at(sp)
        if one is None or not one.readable:
            # Where a stack is used up, its pointer lies below its lowest page.
            one = self._maps.above(sp)
        if one is None or not one.readable or end > one.high:
            return StackMemory(b"", 0)
        low = max(one.low, (sp if end - sp < WINDOW - PAGE else end - 8) & -PAGE)
        return StackMemory(self.memory.some(low, min(one.high - low, WINDOW)), low)


def _is_outermost(step: CfiRowStep[CfiRow]) -> bool:
    return step.row is not None and step.row.outermost
