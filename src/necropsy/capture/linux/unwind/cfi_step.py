"""Finds the caller by the libraries' own DWARF unwind tables.

``follow`` takes simple rows in few operations a frame. Others (a signal's frame, an expression) are computed in full,
one frame at a time. Code without tables is left to ``FrameScan``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

from necropsy.capture.linux.inspect import modules as mapped
from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.process.cfi_unwinder import WINDOW, CfiRowStep, CfiUnwinder, Followed
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import Cursor, NativeStack, StackMemory
from necropsy.errors import InputError
from necropsy.formats.call_rules import CallRules
from necropsy.formats.eh_frame import CfiRow, UnwindTables
from necropsy.formats.elf import ElfFile

_MOST_RULES = 20_000
"""Places of the code whose rules are kept."""
_WORD = 8

Ended = Literal["bottom", "stuck", "unknown", "late"]
"""Nobody called the last frame; its return address is no code; tables do not tell; time is up."""
_ENDED: dict[Followed, Ended] = {"other": "unknown", "no-code": "stuck", "late": "late"}


class CfiStep(CfiUnwinder[CfiRow]):
    """Walks the stacks of one process as far as the tables lead."""

    def __init__(
        self,
        maps: MemoryMap,
        memory: Memory,
        files: MappedFiles,
        places_at: Callable[[int, bool], tuple[CodeLocation, ...]],
    ) -> None:
        """``places_at`` says what stands at a program counter, as ``Places.at`` does."""
        super().__init__(memory)
        self._processor = memory.processor
        self._kept_names = {number: self._processor.numbered[number] for number in self._processor.kept_by_calls}
        self.keeps = tuple(self._kept_names.values())
        self.only_simple = True
        """No frame needed more than a simple row."""
        self.crosses_signals = True
        """What a signal interrupted is a caller of its handler."""
        self._maps, self._files, self._places_at = maps, files, places_at
        self._rules: dict[int, CallRules | None] = {}
        self._of_kernel: UnwindTables | None = None

    def walk(self, out: NativeStack, start: Cursor, deadline: float) -> tuple[Cursor, Ended]:
        """Append frames as long as the tables lead on, or until ``deadline``; the last frame, and why it is."""
        while True:
            at, followed = self.follow(out, start, deadline)
            if _is_outermost(self.step(at.registers.get(self._processor.counter, 0), exact=at.exact)):
                return at, "bottom"
            caller = self._caller(at) if followed == "other" else None
            if caller is None or time.monotonic() > deadline:
                return at, _ENDED[followed]
            start = caller
            self.only_simple = False

    def ends_a_handler(self, pc: int) -> bool:
        """Whether a signal handler returns to ``pc``: to the code that restores what was interrupted."""
        rules = self._rules_at(pc - 1)
        return rules is not None and rules.is_signal

    def _caller(self, at: Cursor) -> Cursor | None:
        """The caller of a frame whose row is not simple; None where the tables do not lead to one."""
        cpu = self._processor
        pc, sp = at.registers.get(cpu.counter, 0), at.registers.get(cpu.pointer, 0)
        if cpu.to_interrupted is not None and (interrupted := self._interrupted(pc, sp + cpu.to_interrupted)):
            return interrupted
        rules = self._rules_at(pc if at.exact or pc == 0 else pc - 1)
        if rules is None or (rules.is_signal and not self.crosses_signals):
            return None
        names = cpu.numbered
        known = {number: at.registers[name] for number, name in enumerate(names) if name in at.registers}
        try:
            found = rules.caller(known, self.memory.u64, stack_pointer=cpu.stack_column)
        except InputError:
            return None
        if found is None:
            return None
        returns_to = found.get(cpu.return_column)
        # A leaf function leaves its return address in the register, and need not take anything from the stack.
        is_leaf = returns_to is None and at.exact and cpu.link is not None
        if is_leaf:
            returns_to = known.get(cpu.return_column)
        if not returns_to or (found[cpu.stack_column] < sp + (not is_leaf) and not rules.is_signal):
            return None
        returns_to &= cpu.link_mask or -1
        if not self._maps.executable_at(returns_to - (not rules.is_signal)):
            return None
        kept = {names[number]: value for number, value in known.items() if number in cpu.kept_by_calls}
        registers = kept | {names[number]: value for number, value in found.items() if number < len(names)}
        return Cursor(registers | {cpu.counter: returns_to}, exact=rules.is_signal, listed=False)

    def _interrupted(self, pc: int, saved_at: int) -> Cursor | None:
        """Where a signal interrupted, if ``pc`` is where its handler returns to."""
        cpu = self._processor
        if self.memory.exactly(pc, len(cpu.returns_from_signal)) != cpu.returns_from_signal:
            return None
        raw = self.memory.exactly(saved_at, cpu.size)
        registers = None if raw is None else cpu.parse(raw)
        if registers is None or not self._maps.executable_at(registers[cpu.counter]):
            return None
        return Cursor(registers, exact=True, listed=False)

    def with_stack_pointer(self, at: Cursor) -> Cursor:
        """A frame that was found by its frame pointer, which need not be at its top: with the right stack pointer."""
        cpu = self._processor
        pc, frame = at.registers.get(cpu.counter, 0), at.registers.get(cpu.frame, 0)
        file = self._files.at(pc - 1)
        row = file.row(pc - 1) if file is not None and cpu.link is not None else None
        saved = dict(row.saved) if row is not None else {}
        if row is None or row.cfa_register != cpu.stack_column or cpu.frame_column not in saved:
            return at
        pointer = frame - saved[cpu.frame_column] - row.cfa_offset
        if not at.registers.get(cpu.pointer, 0) <= pointer <= frame:
            return at
        return Cursor({**at.registers, cpu.pointer: pointer}, exact=at.exact, listed=at.listed)

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
        saved, cpu = dict(row.saved), self._processor
        returns_at = saved[cpu.return_column]
        odd = returns_at != -_WORD if cpu.link is None else returns_at % _WORD
        if row.cfa_register not in {cpu.stack_column, cpu.frame_column} or odd or max(saved.values()) >= 0:
            return CfiRowStep(places)
        names = self._kept_names
        return CfiRowStep(
            places,
            row,
            leads=True,
            by_frame_pointer=row.cfa_register == cpu.frame_column,
            returns_at=row.cfa_offset + returns_at,
            frame_pointer=row.cfa_offset + saved[cpu.frame_column] if cpu.frame_column in saved else None,
            saved=tuple((names[one], row.cfa_offset + offset) for one, offset in row.saved if one in names),
            above=-returns_at,
        )

    def read(self, sp: int, end: int) -> StackMemory:
        """As ``CfiUnwinder.read``: from the page of ``sp`` on, or for a large frame from the one before ``end``."""
        one = self._maps.at(sp)
        if one is None or not one.readable:
            # Where a stack is used up, its pointer lies below its lowest page.
            one = self._maps.above(sp)
        if one is None or not one.readable or end > one.high:
            return StackMemory(b"", 0)
        low = max(one.low, (sp if end - sp < WINDOW - self.memory.page else end - 8) & -self.memory.page)
        return StackMemory(self.memory.some(low, min(one.high - low, WINDOW)), low)


def _is_outermost(step: CfiRowStep[CfiRow]) -> bool:
    return step.row is not None and step.row.outermost
