"""Finds the caller by the libraries' own DWARF unwind tables.

``follow`` takes simple rows in few operations a frame. Others (a signal's frame, an expression) are computed in full,
one frame at a time. Code without tables is left to ``FrameScan``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import ClassVar, Literal

from necropsy.capture.linux.inspect import modules as mapped
from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.process.cfi_unwinder import WINDOW, CfiRowStep, CfiUnwinder, Followed
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.memory import PAGE, Memory
from necropsy.capture.process.native_stack import Cursor, NativeStack, StackMemory
from necropsy.errors import InputError
from necropsy.formats.call_rules import CallRules
from necropsy.formats.eh_frame import KEPT_BY_CALLS, RBP, RETURN, RSP, CfiRow, UnwindTables
from necropsy.formats.elf import ElfFile

_ALL = ("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", *(f"r{number}" for number in range(8, 16)), "rip")
"""By their DWARF numbers."""
_NAMES = {number: _ALL[number] for number in KEPT_BY_CALLS}
_MOST_RULES = 20_000
"""Places of the code whose rules are kept."""
_WORD = 8

Ended = Literal["bottom", "stuck", "unknown", "late"]
"""Nobody called the last frame; its return address is no code; tables do not tell; time is up."""
_ENDED: dict[Followed, Ended] = {"other": "unknown", "no-code": "stuck", "late": "late"}


class CfiStep(CfiUnwinder[CfiRow]):
    """Walks the stacks of one process as far as the tables lead."""

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
        self.only_simple = True
        """No frame needed more than a simple row."""
        self._maps, self._files, self._places_at = maps, files, places_at
        self._rules: dict[int, CallRules | None] = {}
        self._of_kernel: UnwindTables | None = None

    def walk(self, out: NativeStack, start: Cursor, deadline: float) -> tuple[Cursor, Ended]:
        """Append frames as long as the tables lead on, or until ``deadline``; the last frame, and why it is."""
        while True:
            at, followed = self.follow(out, start, deadline)
            if _is_outermost(self.step(at.registers.get("rip", 0), exact=at.exact)):
                return at, "bottom"
            caller = self._caller(at) if followed == "other" else None
            if caller is None or time.monotonic() > deadline:
                return at, _ENDED[followed]
            start = caller
            self.only_simple = False

    def _caller(self, at: Cursor) -> Cursor | None:
        """The caller of a frame whose row is not simple; None where the tables do not lead to one."""
        pc, sp = at.registers.get("rip", 0), at.registers.get("rsp", 0)
        rules = self._rules_at(pc if at.exact or pc == 0 else pc - 1)
        if rules is None:
            return None
        known = {number: at.registers[name] for number, name in enumerate(_ALL) if name in at.registers}
        try:
            found = rules.caller(known, self.memory.u64, stack_pointer=RSP)
        except InputError:
            return None
        if found is None or found[RETURN] == 0 or (found[RSP] <= sp and not rules.is_signal):
            return None
        if not self._maps.executable_at(found[RETURN] - (not rules.is_signal)):
            return None
        kept = {_ALL[number]: value for number, value in known.items() if number in KEPT_BY_CALLS}
        registers = kept | {_ALL[number]: value for number, value in found.items() if number < len(_ALL)}
        return Cursor(registers, exact=rules.is_signal, listed=False)

    def _rules_at(self, address: int) -> CallRules | None:
        if address not in self._rules:
            if len(self._rules) >= _MOST_RULES:
                self._rules.clear()
            file = self._files.at(address)
            self._rules[address] = self._of_vdso(address) if file is None else file.call_rules(address)
        return self._rules[address]

    def _of_vdso(self, address: int) -> CallRules | None:
        """The rules of the kernel's own library, which is mapped from no file."""
        one = self._maps.at(address)
        if one is None or one.path != "[vdso]":
            return None
        if self._of_kernel is None:
            data = mapped.vdso_image(self._maps, self.memory)
            try:
                self._of_kernel = UnwindTables(ElfFile(data or b""))
            except InputError:
                return None
        return self._of_kernel.rules(address - one.low)

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
