"""Stacks without drgn (its wheels are for x86-64 with glibc only): frame pointers, return addresses, symbol tables.

Code compiled without frame pointers leaves nothing to follow but the return addresses on the stack, and what an earlier
call left there looks the same. So each frame says how it was found, and no stack is called complete.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping

from necropsy.capture.linux.gaps import Gaps
from necropsy.capture.linux.maps import Maps
from necropsy.capture.linux.memory import Memory
from necropsy.capture.linux.modules import MappedFile, MappedFiles
from necropsy.capture.linux.native import Unwinder
from necropsy.capture.linux.places import Place
from necropsy.capture.linux.registers import Registers
from necropsy.capture.linux.symbols import readable
from necropsy.capture.linux.unwound import Unwound
from necropsy.capture.linux.walk import OUTERMOST, Walker
from necropsy.formats.elf_symbols import FunctionTable
from necropsy.model import Stack


class FrameWalker:
    """Does what ``native.Unwinder`` does, with less to go by."""

    def __init__(self, maps: Maps, memory: Memory, files: MappedFiles) -> None:
        self._maps, self._memory, self._files = maps, memory, files
        self._tables: dict[int, FunctionTable | None] = {}
        self._known: dict[tuple[int, bool], Place] = {}
        self._walker = Walker(maps, memory, self._fits)
        self.unreadable: list[str] = []
        """Files that could not be opened: their frames have no names."""

    def close(self) -> None:
        """Nothing is held."""

    def unwind(self, registers: Registers, stack: Stack | None, deadline: float) -> Unwound:
        """The stack of the thread with these registers, until nothing more is found or ``deadline`` (monotonic, s)."""
        out = Unwound()
        state: Mapping[str, int] | None = dict(registers.values)
        nowhere = not self._maps.executable_at(registers.rip)
        while state is not None:
            if time.monotonic() > deadline:
                out.why = "the time for reading it was used up"
                return out
            first = not out.places
            out.places.append(self._place(state["rip"], exact=first))
            out.pointers.append(state["rsp"])
            if out.places[-1].function in OUTERMOST:
                return out
            following = self._walker.caller(out, state, stack, called=first and nowhere)
            state = None if following is None or following["rsp"] <= state["rsp"] else following
        return out

    def _place(self, pc: int, *, exact: bool) -> Place:
        found = self._known.get((pc, exact))
        if found is None:
            looked_up = pc if exact or pc == 0 else pc - 1
            file = self._files.at(looked_up)
            function = self._function(looked_up)
            found = self._known[pc, exact] = Place(
                pc=pc,
                function=readable(function[0]) if function else None,
                module=file.name if file else None,
                offset=pc - file.low if file else None,
                executable=self._maps.executable_at(looked_up),
            )
        return found

    def _function(self, address: int) -> tuple[str, int] | None:
        """The name of the function at ``address`` of the process, and where it begins there."""
        file = self._files.at(address)
        if file is None:
            return None
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

    def _fits(self, out: Unwound, value: int) -> bool:
        """A direct call must have gone to the function that is there; of one through a table, nobody knows."""
        code = self._memory.exactly(value - 5, 5)
        if code is None or code[0] != 0xE8:
            return True
        target = value + struct.unpack("<i", code[1:])[0]
        callee = self._function(out.places[-1].pc - (len(out.places) > 1))
        called = self._function(target)
        return callee is None or called is None or called[1] == callee[1]


AnyUnwinder = Unwinder | FrameWalker


def unwinder(maps: Maps, memory: Memory, files: MappedFiles, gaps: Gaps) -> AnyUnwinder:
    """drgn's, or else the one that needs nothing; and what that costs is told."""
    try:
        return Unwinder(maps, memory, files)
    except Exception as error:  # noqa: BLE001 - the other way is worth more than no stack
        what = "is not installed" if isinstance(error, ImportError) else f"failed: {error}"
        how = "frames come from frame pointers and return addresses: some may be wrong, some missing"
        gaps.add("frames", f"drgn {what}; {how}")
        return FrameWalker(maps, memory, files)
