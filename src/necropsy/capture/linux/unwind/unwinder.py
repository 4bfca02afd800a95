"""Native stacks of any depth: by unwind tables, else by what is on the stack.

Code compiled without frame pointers and tables leaves only return addresses on the stack, and those of an earlier call
look the same. So each such frame says how it was found.
"""

from __future__ import annotations

import time

from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.linux.unwind import alternate_stacks, outermost_frames
from necropsy.capture.linux.unwind.cfi_step import CfiStep
from necropsy.capture.linux.unwind.frame_scan import FrameScan, ends_chain, is_outermost
from necropsy.capture.linux.unwind.symbol_tables import SymbolTables
from necropsy.capture.linux.unwind.symbolizer import Symbolizer
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.guarded import Gaps
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import Cursor, NativeStack
from necropsy.capture.process.recursion_skip import RecursionSkip
from necropsy.capture.process.registers import Registers
from necropsy.model import Stack

_MOST_SCANS = 32
"""How many callers of one stack are searched for among the words on it."""


class Unwinder:
    """Unwinds the threads of one stopped process."""

    def __init__(
        self, maps: MemoryMap, memory: Memory, files: MappedFiles, names: Symbolizer | SymbolTables | None = None
    ) -> None:
        """``names``: what is at a program counter; by default, the symbol tables alone decide."""
        self._maps, self._memory = maps, memory
        self._names = names or SymbolTables(maps, memory, files)
        fits = self._names.fits if isinstance(self._names, SymbolTables) else None
        self._scan = FrameScan(maps, memory, fits)
        self._tables = CfiStep(maps, memory, files, self._names.at)

    @property
    def unreadable(self) -> list[str]:
        """Files that could not be opened."""
        return self._names.unreadable

    def close(self) -> None:
        """Give back what is held."""
        self._names.close()

    def is_return_address(self, value: int) -> bool:
        """Whether a call instruction stands right before it, in executable memory."""
        return self._scan.is_return_address(value)

    def place_of(self, pc: int) -> CodeLocation:
        """What is known of the function that a call returns to."""
        return self._names.at(pc, False)[-1]

    def unwind(self, registers: Registers, stack: Stack | None, deadline: float) -> NativeStack:
        """The stack of the thread with these registers, to its first frame or until ``deadline`` (monotonic, s)."""
        out = NativeStack()
        alternate_stacks.watch(self._maps, stack, out)
        at = self._scan.innermost(out, registers, stack, self._names.at)
        if at is not None:
            self._follow(out, self._tables.with_stack_pointer(at), registers, stack, deadline)

        def follow(outer: NativeStack, start: Cursor, until: float) -> None:
            self._follow(outer, start, registers, stack, until)

        outermost_frames.read(out, self._memory, stack, self._tables.known, follow)
        out.why = None if out.complete else out.why or "no caller was found for the last frame"
        return out

    def _follow(
        self, out: NativeStack, start: Cursor, registers: Registers, stack: Stack | None, deadline: float
    ) -> None:
        at: Cursor | None = start
        cpu = self._memory.processor
        scans = 0
        repeats = RecursionSkip(self._memory, self.place_of)
        seen: set[tuple[int, int, bool]] = set()
        self._tables.only_simple = True
        while at is not None:
            where = (at.registers.get(cpu.counter, 0), at.registers.get(cpu.pointer, 0), at.listed)
            if where in seen:
                out.why = "the chain of frames goes in circles"
                return
            seen.add(where)
            at, ended = self._tables.walk(out, at, deadline)
            if ended != "bottom" and time.monotonic() > deadline:
                out.why = outermost_frames.LATE
                return
            if ended == "bottom" or is_outermost(out, registers, self._memory) or ends_chain(at, cpu):
                out.complete = True
                simple = self._tables.only_simple and self._tables.by_stack_pointer
                out.plain = ended == "bottom" and len(seen) == 1 and simple
                return
            at = self._scan.caller(out, at, stack)
            if at is not None and out.recovered.get(len(out)) == "scan":
                scans += 1
                high = stack.high if stack is not None else None
                if scans > _MOST_SCANS:
                    at = None
                elif cpu.link is None:
                    at = repeats.beyond(out, at, high, deadline)
            at = at and self._tables.with_stack_pointer(at)


def with_names(maps: MemoryMap, memory: Memory, files: MappedFiles, gaps: Gaps) -> Unwinder:
    """One whose names and lines are drgn's, or else those of symbol tables; a gap says what that costs."""
    try:
        return Unwinder(maps, memory, files, Symbolizer(maps, memory, files))
    except Exception as error:  # noqa: BLE001 - stacks without lines are worth more than none
        what = "is not installed" if isinstance(error, ImportError) else f"failed: {error}"
        gaps.add("frames", f"drgn {what}; frames have no source lines, and inlined calls are not seen")
        return Unwinder(maps, memory, files)
