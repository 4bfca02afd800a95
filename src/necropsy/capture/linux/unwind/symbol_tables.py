"""Names of functions from the files' own symbol tables, where drgn is not installed: no inlined calls, no lines."""

from __future__ import annotations

import struct

from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFile, MappedFiles
from necropsy.capture.linux.unwind.jit_symbols import GeneratedCode
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import NativeStack
from necropsy.capture.process.symbols import readable
from necropsy.formats.elf_symbols import FunctionTable


class SymbolTables:
    """Answers for one process, as ``Symbolizer`` does."""

    def __init__(self, maps: MemoryMap, memory: Memory, files: MappedFiles) -> None:
        self._maps, self._memory, self._files = maps, memory, files
        self._tables: dict[int, FunctionTable | None] = {}
        self._known: dict[tuple[int, bool], tuple[CodeLocation, ...]] = {}
        self._generated = GeneratedCode(memory, files)
        self.unreadable: list[str] = []
        """Files that could not be opened: their frames have no names."""

    def close(self) -> None:
        """Nothing is held."""

    def at(self, pc: int, exact: bool) -> tuple[CodeLocation, ...]:
        """As ``Symbolizer.at``."""
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
        if table is None or bias is None:
            return None
        extent = file.function(address)
        found = table.at(address - bias, (extent[0] - bias, extent[1] - bias) if extent is not None else None)
        return None if found is None else (found[0], found[1] + bias)

    def _table(self, file: MappedFile) -> FunctionTable | None:
        if file.elf is None:
            self.unreadable.append(file.path)
            return None
        return FunctionTable(file.elf)

    def fits(self, out: NativeStack, value: int) -> bool:
        """A direct call must have gone to the function that is there; of one through a table, nobody knows."""
        target = self._target(value)
        if target is None:
            return True
        callee = self._function(out.places[-1].pc - (len(out) > 1))
        called = self._function(target)
        return callee is None or called is None or called[1] == callee[1]

    def _target(self, value: int) -> int | None:
        """Where the direct call before a return address goes; None where it is none."""
        if self._memory.processor.link is not None:
            from necropsy.formats import arm64_code

            word = self._memory.u32(value - 4)
            return None if word is None else arm64_code.call_target(word, value - 4)
        code = self._memory.exactly(value - 5, 5)
        if code is None or code[0] != 0xE8:
            return None
        distance: int = struct.unpack("<i", code[1:])[0]
        return value + distance
