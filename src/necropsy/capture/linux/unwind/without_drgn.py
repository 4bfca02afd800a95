"""Stacks without drgn (its wheels are for x86-64 with glibc only): unwind tables, frame pointers, symbol tables.

Where the tables do not lead on in a simple way, code compiled without frame pointers leaves nothing to follow but the
return addresses on the stack, and what an earlier call left there looks the same. So each frame says how it was found,
and a stack with such a frame is not called complete.
"""

from __future__ import annotations

import struct
import time

from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFile, MappedFiles
from necropsy.capture.linux.unwind import alternate_stacks, outermost_frames
from necropsy.capture.linux.unwind.cfi_step import CfiStep
from necropsy.capture.linux.unwind.frame_scan import FrameScan, is_outermost
from necropsy.capture.linux.unwind.jit_symbols import GeneratedCode
from necropsy.capture.linux.unwind.unwinder import Unwinder
from necropsy.capture.process.code_location import CodeLocation
from necropsy.capture.process.guarded import Gaps
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import Cursor, NativeStack
from necropsy.capture.process.registers import Registers
from necropsy.capture.process.symbols import readable
from necropsy.formats.elf_symbols import FunctionTable
from necropsy.model import Stack


class FrameWalker:
    """Does what ``native.Unwinder`` does, with less to go by."""

    def __init__(self, maps: MemoryMap, memory: Memory, files: MappedFiles) -> None:
        self._maps, self._memory, self._files = maps, memory, files
        self._tables: dict[int, FunctionTable | None] = {}
        self._known: dict[tuple[int, bool], tuple[CodeLocation, ...]] = {}
        self._walker = FrameScan(maps, memory, self._fits)
        self._generated = GeneratedCode(memory, files)
        self._rows = CfiStep(maps, memory, files, self._places_at)
        self.unreadable: list[str] = []
        """Files that could not be opened: their frames have no names."""

    def close(self) -> None:
        """Nothing is held."""

    def is_return_address(self, value: int) -> bool:
        """As ``native.Unwinder.is_return_address``."""
        return self._walker.is_return_address(value)

    def place_of(self, pc: int) -> CodeLocation:
        """As ``native.Unwinder.place_of``."""
        return self._places_at(pc, False)[-1]

    def unwind(self, registers: Registers, stack: Stack | None, deadline: float) -> NativeStack:
        """The stack of the thread with these registers, until nothing more is found or ``deadline`` (monotonic, s)."""
        out = NativeStack()
        alternate_stacks.watch(self._maps, stack, out)
        at = self._walker.innermost(out, registers, stack, self._places_at)
        if at is not None:
            self._follow(out, at, registers, stack, deadline)
        out.complete = out.complete and not out.guesses

        def follow(outer: NativeStack, start: Cursor, until: float) -> None:
            self._follow(outer, start, registers, stack, until)

        outermost_frames.read(out, self._memory, stack, self._rows.known, follow)
        return out

    def _follow(
        self, out: NativeStack, start: Cursor, registers: Registers, stack: Stack | None, deadline: float
    ) -> None:
        """Append the frame ``start`` and its callers; ``out`` says how that ended."""
        at: Cursor | None = start
        first = True
        while at is not None:
            at, ended = self._rows.walk(out, at, deadline)
            if time.monotonic() > deadline:
                out.why = outermost_frames.LATE
                return
            if ended == "bottom" or is_outermost(out, registers, self._memory):
                out.complete = True
                out.plain = ended == "bottom" and first and self._rows.by_stack_pointer
                return
            first = False
            following = self._walker.caller(out, at.registers, stack)
            at = following if following is not None and following.registers["rsp"] > at.registers["rsp"] else None

    def _places_at(self, pc: int, exact: bool) -> tuple[CodeLocation, ...]:
        found = self._known.get((pc, exact))
        if found is None:
            looked_up = pc if exact or pc == 0 else pc - 1
            file = self._files.at(looked_up)
            function = self._function(looked_up)
            place = CodeLocation(
                pc=pc,
                function=readable(function[0]) if function else None,
                module=file.name if file else None,
                offset=pc - file.low if file else None,
                executable=self._maps.executable_at(looked_up),
                unwinds=file.has_unwind_info(looked_up) if file else None,
            )
            found = self._known[pc, exact] = (place,)
        return found

    def _function(self, address: int) -> tuple[str, int] | None:
        """The name of the function at ``address`` of the process, and where it begins there."""
        file = self._files.at(address)
        if file is None:
            return self._generated.function(address) if self._maps.executable_at(address) else None
        if file.low not in self._tables:
            self._tables[file.low] = self._table(file)
        table, bias = self._tables[file.low], file.bias
        found = table.at(address - bias) if table is not None and bias is not None else None
        return None if found is None or bias is None else (found[0], found[1] + bias)

    def _table(self, file: MappedFile) -> FunctionTable | None:
        if file.elf is None:
            self.unreadable.append(file.path)
            return None
        return FunctionTable(file.elf)

    def _fits(self, out: NativeStack, value: int) -> bool:
        """A direct call must have gone to the function that is there; of one through a table, nobody knows."""
        code = self._memory.exactly(value - 5, 5)
        if code is None or code[0] != 0xE8:
            return True
        target = value + struct.unpack("<i", code[1:])[0]
        callee = self._function(out.places[-1].pc - (len(out) > 1))
        called = self._function(target)
        return callee is None or called is None or called[1] == callee[1]


AnyUnwinder = Unwinder | FrameWalker


def unwinder(maps: MemoryMap, memory: Memory, files: MappedFiles, gaps: Gaps) -> AnyUnwinder:
    """drgn's, or else the one that needs nothing; and what that costs is told."""
    try:
        return Unwinder(maps, memory, files)
    except Exception as error:  # noqa: BLE001 - the other way is worth more than no stack
        what = "is not installed" if isinstance(error, ImportError) else f"failed: {error}"
        how = "where unwind tables lead no further, frames come from return addresses: some may be wrong, some missing"
        gaps.add("frames", f"drgn {what}; {how}")
        return FrameWalker(maps, memory, files)
