"""Memory of a process that goes on, or is gone: a stack's copy, and what is mapped from files."""

from __future__ import annotations

import os
from functools import cache

from necropsy.capture.linux.inspect import memory_map, modules
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.linux.inspect.resident_pages import PAGE
from necropsy.capture.linux.inspect.stack_marks import StackCopy
from necropsy.capture.linux.supervise.ptrace import HERE
from necropsy.capture.process.memory import Memory


class CopiedMemory(Memory):
    """A stack's copy, and what is mapped from files."""

    def __init__(self, copy: StackCopy) -> None:
        self.processor, self.page = HERE, PAGE
        self._copy = copy
        self._opened: dict[str, int] = {}

    def close(self) -> None:
        """Close the files."""
        for handle in self._opened.values():
            if handle >= 0:
                os.close(handle)
        self._opened.clear()

    def some(self, address: int, size: int) -> bytes:
        """As ``Memory.some``."""
        at = address - self._copy.low
        if 0 <= at < len(self._copy.data):
            return self._copy.data[at : at + max(size, 0)]
        one = self._copy.maps.at(address)
        if one is not None and one.path == "[vdso]":
            return _vdso()[address - one.low :][: max(size, 0)]
        if one is None or not one.is_file or one.path is None or one.deleted or size <= 0:
            return b""
        if one.path not in self._opened:
            try:
                self._opened[one.path] = os.open(one.path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                self._opened[one.path] = -1
        handle = self._opened[one.path]
        if handle < 0:
            return b""
        return os.pread(handle, min(size, one.high - address), one.offset + address - one.low)


@cache
def _vdso() -> bytes:
    """The kernel's own library, which is the same in all processes."""
    try:
        with ProcessMemory(os.getpid()) as memory:
            return modules.vdso_image(memory_map.read(os.getpid()), memory) or b""
    except OSError:
        return b""
