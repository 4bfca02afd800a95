"""What CPython's allocator for small objects (``obmalloc.c``) holds of the system, read from outside.

It takes memory in arenas, and counts them. Up to 3.11 the count is a variable; in 3.13 it is in a variable with the
allocator's state for the main interpreter. Both are local symbols, which a file that was stripped does not have.
3.12 keeps that state inside the interpreter's, at a place that nothing tells.
"""

from __future__ import annotations

import contextlib

from necropsy.capture.linux.inspect import memory_map, modules
from necropsy.capture.linux.inspect.library_versions import python_version
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.formats import elf_symbols

_COUNT, _HIGHEST, _STATE = "narenas_currently_allocated", "narenas_highwater", "obmalloc_state_main"
_COUNT_IN_STATE = 512 + 32 + 520
"""Of ``struct _obmalloc_state`` in 3.13 (``pycore_obmalloc.h``): after 64 pools, four words, and 65 lists of arenas."""
_HIGHEST_IN_STATE = _COUNT_IN_STATE + 16
_ARENAS = {"8": 256 << 10, "9": 256 << 10, "10": 1 << 20, "11": 1 << 20, "13": 1 << 20}
"""Bytes of an arena, by the minor version."""
_LARGEST = 1 << 47


class PythonHeap:
    """The arenas of one process's interpreter: found once, then read without stopping it. It holds nothing open."""

    def __init__(self, pid: int) -> None:
        """Find the count. Raises LookupError without a known interpreter, OSError where the process is gone."""
        self._pid = pid
        with ProcessMemory(pid) as memory:
            self._arena, self._count, self._highest = _found(pid, memory)
            self._before = memory.u64(self._highest) or 0
            """The highest count when it was found, which may be from before a fork."""

    def read(self) -> tuple[int | None, int | None]:
        """The bytes of its arenas, and the most that there were by its own count, if that has risen since it was found.

        None where it has none, as with ``PYTHONMALLOC=malloc``, or the count cannot be true.
        """
        with contextlib.suppress(OSError), ProcessMemory(self._pid) as memory:
            count, highest = memory.u64(self._count), memory.u64(self._highest)
            if count and highest and count <= highest <= _LARGEST // self._arena:
                return count * self._arena, highest * self._arena if highest > self._before else None
        return None, None


def _found(pid: int, memory: ProcessMemory) -> tuple[int, int, int]:
    """The size of an arena, and the addresses of their count and of the highest one that there was."""
    mapped = memory_map.MemoryMap(one for one in memory_map.read(pid) if one.path is not None and "python" in one.path)
    files = modules.find(pid, mapped, memory)
    major, _, rest = (python_version(memory, files) or "").partition(".")
    minor = rest.partition(".")[0]
    size = _ARENAS.get(minor) if major == "3" else None
    if size is None:
        raise LookupError("no interpreter whose arenas are known")
    if minor == "13":
        state = _address_of(files, _STATE)
        return size, state + _COUNT_IN_STATE, state + _HIGHEST_IN_STATE
    return size, _address_of(files, _COUNT), _address_of(files, _HIGHEST)


def _address_of(files: MappedFiles, name: str) -> int:
    for file in files.files:
        if file.name.startswith(("python", "libpython")) and file.elf is not None and file.bias is not None:
            at = elf_symbols.address_of(file.elf, name)
            if at is not None:
                return at + file.bias
    raise LookupError("the interpreter's own symbols are not there")
