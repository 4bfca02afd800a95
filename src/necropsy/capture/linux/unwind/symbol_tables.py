"""Names of functions from symbol tables, where drgn has none: no inlined calls, no lines.

They are the files' own, and those of code that was compiled at run time, which its compiler registers for debuggers: a
list of small ELF files in memory, one for each piece of code (``struct jit_descriptor`` and ``struct jit_code_entry``:
GDB's manual, *JIT Compilation Interface*). LLVM keeps it, so numba's and XLA's functions are in it.
"""

from __future__ import annotations

import re
import struct
import time

from necropsy.capture.linux.inspect.memory_map import MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFile, MappedFiles
from necropsy.capture.process.deep_stack import CodeLocation
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.native_stack import NativeStack, call_target
from necropsy.capture.process.symbols import readable
from necropsy.errors import InputError
from necropsy.formats.elf import ElfFile
from necropsy.formats.elf_symbols import FunctionTable, address_of

_DESCRIPTOR = "__jit_debug_descriptor"
_COMPILERS = re.compile(r"llvm|tensorflow_cc|pywrap_tensorflow|xla|jax|triton|mlir|torch_cpu|julia|jit", re.IGNORECASE)
"""Names of libraries that hold a compiler: to search all for the list would cost more than it gives."""
_ENTRY = struct.Struct("<QQQQ")
"""next_entry, prev_entry, symfile_addr, symfile_size."""
_MOST_ENTRIES = 20_000
_LARGEST = 16 << 20
"""Bytes of one registered file."""
_LONGEST_S = 0.5
_TAG = re.compile(r"\[abi:(?!v\d)[^\]]*\]")
"""numba's marks of how a function was compiled; that of its version (``v1``) is kept."""


class GeneratedCode:
    """Names the functions in code that lies in no file; nothing is read before the first question."""

    def __init__(self, memory: Memory, files: MappedFiles) -> None:
        self._memory, self._files = memory, files
        self._tables: list[FunctionTable] | None = None

    def function(self, address: int) -> tuple[str, int] | None:
        """Name and first address of the function that holds ``address``; None where nobody registered one."""
        if self._tables is None:
            self._tables = self._read()
        for table in self._tables:
            found = table.at(address)
            if found is not None:
                return _TAG.sub("", readable(found[0])), found[1]
        return None

    def _read(self) -> list[FunctionTable]:
        deadline = time.monotonic() + _LONGEST_S
        tables: list[FunctionTable] = []
        for file in self._files.files:
            if not _COMPILERS.search(file.name) or file.elf is None or file.bias is None:
                continue
            at = address_of(file.elf, _DESCRIPTOR)
            head = self._memory.exactly(at + file.bias, 24) if at is not None else None
            if head is not None:
                # version, action_flag, relevant_entry, first_entry
                tables += self._registered(struct.unpack("<IIQQ", head)[3], deadline)
        return tables

    def _registered(self, entry: int, deadline: float) -> list[FunctionTable]:
        tables: list[FunctionTable] = []
        seen: set[int] = set()
        while entry and entry not in seen and len(seen) < _MOST_ENTRIES and time.monotonic() < deadline:
            seen.add(entry)
            data = self._memory.exactly(entry, _ENTRY.size)
            if data is None:
                break
            entry, _, start, size = _ENTRY.unpack(data)
            image = self._memory.exactly(start, size) if size <= _LARGEST else None
            if image is not None:
                try:
                    tables.append(FunctionTable(ElfFile(image)))
                except InputError:
                    continue
        return tables


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
        return call_target(self._memory, value)
