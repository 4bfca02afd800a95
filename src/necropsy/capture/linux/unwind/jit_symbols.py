"""Names of functions that were compiled at run time, from what the compiler registered for debuggers.

A list of small ELF files in memory, one for each piece of code: ``struct jit_descriptor`` and ``struct jit_code_entry``
(GDB's manual, *JIT Compilation Interface*). LLVM keeps it, so numba's and XLA's functions are in it.
"""

from __future__ import annotations

import re
import struct
import time

from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.process.memory import Memory
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
