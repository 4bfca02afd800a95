"""Native stacks of x64 Windows, of any depth: by unwind tables, else frame pointers, else a search.

``CfiUnwinder``, which both systems share, follows simple rows (``x64_unwind.UnwindRow``); the others are followed one
by one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal

from necropsy.capture.process.cfi_unwinder import WINDOW, CfiRowStep, CfiUnwinder
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.native_stack import Cursor, NativeStack, StackMemory
from necropsy.capture.process.recursion_skip import RecursionSkip
from necropsy.capture.windows.frame_scan import FrameScan
from necropsy.capture.windows.modules import ModuleImages
from necropsy.capture.windows.symbolizer import Symbolizer
from necropsy.capture.windows.target import MemoryRegions
from necropsy.errors import InputError
from necropsy.formats import x64_context
from necropsy.formats.x64_unwind import REGISTERS, RSP, UnwindRow
from necropsy.model import Frame, Stack

__all__ = ["StackWalker", "WalkedStack"]

OUTERMOST = frozenset({"RtlUserThreadStart", "_RtlUserThreadStart"})
"""The first function of every thread (ntdll.dll)."""
_DISPATCHER = "KiUserExceptionDispatcher"
"""Where the kernel lets a thread go on that has raised an exception (ntdll.dll)."""
_CONTEXT = 1232
"""Bytes of a CONTEXT of x64 (winnt.h)."""
_STARTERS = frozenset({"ntdll.dll", "kernel32.dll", "kernelbase.dll"})
"""A thread or a fiber begins in one of them, where no return address is; elsewhere a zero is none."""
_PROBES = frozenset({"___chkstk_ms", "__chkstk", "_alloca_probe"})
"""They touch the pages of a large frame before it is laid out; rax holds its size."""
_RBP = 5
_LARGEST_ARRAY = 1 << 47
_MOST_GUESSES = 256
_INNERMOST = 64
"""Frames among which the caller of the innermost one is."""
_NEAR_TOP = 1024
"""Bytes at the top of a stack in which its first frame lies."""

Ended = Literal["bottom", "stuck", "late"]
"""Nobody called the last frame; nothing leads to its caller; time is up."""


class StackWalker(CfiUnwinder[UnwindRow]):
    """Walks the stacks of one process."""

    keeps: tuple[str, ...] = ("rbx", "rbp", "rsi", "rdi", "r12", "r13", "r14", "r15")

    def __init__(self, images: ModuleImages, names: Symbolizer, regions: MemoryRegions | None = None) -> None:
        """``regions``: what the address space looks like, where that is known."""
        super().__init__(images.memory)
        self._images, self._names = images, names
        self._guesses = FrameScan(images, regions)
        self._high: int | None = None
        """Where the stack ends that is walked, if that is known."""

    def walk(self, registers: Mapping[str, int], stack: Stack | None, deadline: float) -> WalkedStack:
        """The stack to its first frame, or ``deadline`` (monotonic, s); nothing is looked for beyond its ``high``."""
        out = WalkedStack()
        self.window = StackMemory(b"", 0)
        self._high = None if stack is None else stack.high
        self._walk(out, registers, self._high, deadline)
        self._note_probe(out, registers)
        return out

    def _walk(self, out: WalkedStack, registers: Mapping[str, int], high: int | None, deadline: float) -> None:
        at: Cursor | None = Cursor(dict(registers), exact=True, listed=False)
        guesses = 0
        repeats = RecursionSkip(self.memory, self._place_of)
        seen: set[tuple[int, int]] = set()
        while at is not None:
            where = at.registers.get("rip", 0), at.registers.get("rsp", 0)
            if where in seen:
                out.why = "the chain of frames goes in circles"
                return
            seen.add(where)
            at, ended = self._along(out, at, deadline)
            if ended == "late" or time.monotonic() > deadline:
                out.why = "the time for reading it was used up"
                return
            if ended == "bottom" or self._at_top(out, at, high):
                out.complete = True
                return
            guesses += 1
            if guesses > _MOST_GUESSES:
                out.why = "too many callers had to be guessed"
                return
            called = len(out) == 1 and not self._guesses.executable(at.registers.get("rip", 0))
            at = self._guesses.caller(out, at, high, called=called)
            if at is not None and out.recovered.get(len(out)) == "scan":
                at = repeats.beyond(out, at, high)
        out.why = "no caller was found for the last frame"

    def _place_of(self, pc: int) -> CodeLocation:
        return self.step(pc, exact=False).places[-1]

    def _at_top(self, out: WalkedStack, at: Cursor, high: int | None) -> bool:
        """Without the image of ntdll.dll: the last frame is in it, called kernel32.dll or has nothing called above."""
        names = [(place.module or "").casefold() for place in out.outermost(2)]
        sp = at.registers.get("rsp", 0)
        if at.exact or high is None or names[-1] != "ntdll.dll" or not 0 <= high - sp <= _NEAR_TOP:
            return False
        return names[0] == "kernel32.dll" or not self._guesses.any_between(sp, high)

    def _along(self, out: WalkedStack, at: Cursor, deadline: float) -> tuple[Cursor, Ended]:
        """Append frames as far as tables lead; the last one, and why it is the last."""
        while True:
            at, followed = self.follow(out, at, deadline)
            if followed == "late":
                return at, "late"
            step = self.step(at.registers.get("rip", 0), exact=at.exact)
            if step.places[-1].function in OUTERMOST:
                return at, "bottom"
            caller = self._slowly(out, at, step)
            if caller is None:
                return at, "stuck"
            if not caller.registers["rip"]:
                return at, "bottom" if (out.places[-1].module or "").casefold() in _STARTERS else "stuck"
            if not self._is_code(caller.registers["rip"], exact=caller.exact):
                return at, "stuck"
            at = caller
            if time.monotonic() > deadline:
                return at, "late"

    def _is_code(self, pc: int, *, exact: bool) -> bool:
        return self._guesses.executable(pc if exact else pc - 1) is not False

    # -- one step -----------------------------------------------------------------------------------------------------

    def find(self, pc: int, *, exact: bool) -> CfiRowStep[UnwindRow]:
        """As ``CfiUnwinder.find``."""
        places = self._names.at(pc, exact)
        if not exact and not (pc and self._is_code(pc, exact=False)):
            return CfiRowStep(places, is_code=False)
        row = self._row(pc, exact=exact)
        simple = (
            row is not None
            and not exact
            and row.part == "body"
            and not row.machine
            and row.base in {RSP, _RBP}
            and all(one.base == row.base for one in row.saved)
            and places[-1].function not in {*OUTERMOST, _DISPATCHER}
        )
        if row is None or not simple:
            return CfiRowStep(places, row)
        return CfiRowStep(
            places,
            row,
            leads=True,
            by_frame_pointer=row.base == _RBP,
            returns_at=row.returns_at,
            frame_pointer=next((one.distance for one in row.saved if one.register == _RBP), None),
            saved=tuple((REGISTERS[one.register], one.distance) for one in row.saved),
        )

    def _row(self, pc: int, *, exact: bool) -> UnwindRow | None:
        loaded = self._images.at(pc if exact else pc - 1)
        if loaded is None or loaded.unwinder is None:
            return None
        try:
            return loaded.unwinder.row(pc - loaded.low, exact=exact)
        except InputError:
            return None

    def _slowly(self, out: WalkedStack, at: Cursor, step: CfiRowStep[UnwindRow]) -> Cursor | None:
        """The caller by any row; what its frame was about to take is noted in ``out``."""
        row, pc = step.row, at.registers.get("rip", 0)
        if row is None or (row.part == "leaf" and self._guesses.pushed(pc)):
            return None
        found = self._undone(at, row)
        if found is None or (row.part in {"leaf", "epilogue"} and not self._returns_there(found)):
            # What looked like the end of a function was none, as a jump to a part of it that lies elsewhere.
            row = self._body(pc, exact=at.exact) if row.part == "epilogue" else None
            found = None if row is None else self._undone(at, row)
        if found is not None and row is not None and row.part == "prologue":
            self._note_size(out, at)
        if found is not None and step.places[-1].function == _DISPATCHER:
            return self._interrupted(at, found)
        return found

    def _interrupted(self, at: Cursor, found: Cursor) -> Cursor:
        """What an exception interrupted: at the dispatcher's stack pointer is the CONTEXT, with all registers.

        Wine's tables lead to the right place, but to registers that it has set by itself.
        """
        data = self.memory.some(at.registers.get("rsp", 0), _CONTEXT)
        values = x64_context.registers(data)
        if values is None or any(values[name] != found.registers[name] for name in ("rip", "rsp")):
            return found
        return Cursor(values, exact=True, listed=False)

    def _returns_there(self, caller: Cursor) -> bool:
        rip = caller.registers["rip"]
        return rip == 0 or self._guesses.returns_to(rip) is not False

    def _body(self, pc: int, *, exact: bool) -> UnwindRow | None:
        loaded = self._images.at(pc)
        if loaded is None or loaded.unwinder is None:
            return None
        try:
            return loaded.unwinder.body(pc - loaded.low, exact=exact)
        except InputError:
            return None

    def _undone(self, at: Cursor, row: UnwindRow) -> Cursor | None:
        known = at.registers
        base = known.get(REGISTERS[row.base])
        rip = None if base is None else self.memory.u64(base + row.returns_at)
        if base is None or rip is None:
            return None
        values = {name: known[name] for name in self.keeps if name in known}
        for one in row.saved:
            origin = known.get(REGISTERS[one.base])
            value = None if origin is None else self.memory.u64(origin + one.distance)
            if value is None:
                values.pop(REGISTERS[one.register], None)
            else:
                values[REGISTERS[one.register]] = value
        rsp: int | None = base + row.returns_at + 8
        if row.machine:
            rsp = self.memory.u64(base + row.returns_at + 24)
        if rsp is None or (not row.machine and rsp <= known.get("rsp", 0)):
            return None
        return Cursor({**values, "rip": rip, "rsp": rsp}, exact=row.machine, listed=False)

    def _note_size(self, out: WalkedStack, at: Cursor) -> None:
        """Note the size of a frame that was not laid out yet, by the unwind information."""
        pc = at.registers["rip"]
        loaded = self._images.at(pc)
        if loaded is None or loaded.image is None or loaded.unwinder is None:
            return
        try:
            function = loaded.image.function(pc - loaded.low - (not at.exact))
            size = 0 if function is None else loaded.unwinder.frame_size(function) + 8
        except InputError:
            return
        out.taking[len(out.places) - 1] = size

    def _note_probe(self, out: WalkedStack, registers: Mapping[str, int]) -> None:
        """What an array of variable length was about to take: in rax, when its stack is probed page by page."""
        if len(out) < 2 or out.places[0].function not in _PROBES:
            return
        pointer = out.pointers[0]
        caller = next((at for at, one in enumerate(out.places.first(_INNERMOST)[1:], 1) if not one.inline), None)
        if caller is None or caller in out.taking or out.pointers[caller] <= pointer:
            return
        pushed = out.pointers[caller] - pointer - 8
        # MinGW's pushes rcx and rax, and counts rax down; Microsoft's keeps it.
        is_kept = out.places[0].function != "___chkstk_ms" or pushed != 16
        size = registers.get("rax") if is_kept else self.memory.u64(pointer)
        measured = out.stack_bytes(caller)
        if size is not None and measured is not None and size < _LARGEST_ARRAY:
            out.taking[caller] = measured + size

    def read(self, sp: int, end: int) -> StackMemory:
        """The stack from ``sp`` on, or for a large frame from the last word before ``end``."""
        low = (sp if end - sp < WINDOW else end - 8) & -8
        size = WINDOW if self._high is None else min(self._high - low, WINDOW)
        return StackMemory(self.memory.some(low, size), low)


class WalkedStack(NativeStack):
    """A thread's whole stack."""

    def __init__(self) -> None:
        super().__init__()
        self.taking: dict[int, int] = {}
        """Bytes that a frame was about to take when the thread stopped."""

    def stack_bytes(self, index: int) -> int | None:
        """As ``NativeStack.stack_bytes``; of a frame that was not laid out yet, what it would have taken.

        Compilers touch each page of a large frame (``__chkstk``) before the stack pointer moves: where the stack ends
        there, the frame that it ended for is still small.
        """
        measured = super().stack_bytes(index)
        return max(self.taking[index], measured or 0) if index in self.taking else measured

    def largest(self, count: int = 5) -> tuple[Frame, ...]:
        """The frames with the most stack bytes, largest first."""
        measured = super().largest(count)
        known = {frame.index for frame in measured}
        frames = [
            *measured,
            *(self.frame(index) for index in self.taking if index not in known and self.places.keeps(index)),
        ]
        return tuple(sorted(frames, key=lambda frame: -(frame.stack_bytes or 0))[:count])
