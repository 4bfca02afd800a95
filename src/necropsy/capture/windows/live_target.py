"""A stopped live process, as ``crash_builder`` reads it: memory, threads and modules, in place."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from necropsy.capture.process.memory import Memory
from necropsy.capture.windows import stack_peaks, winapi
from necropsy.errors import InputError
from necropsy.formats.minidump_records import MemoryInfo, ModuleRecord, SystemInfo, ThreadRecord
from necropsy.formats.pe import Image
from necropsy.model import StackUse

_LAST = (1 << 63) - 1


class LiveMemory(Memory):
    """The memory of a process, through ReadProcessMemory."""

    def __init__(self, process: winapi.Handle) -> None:
        """``process``: with PROCESS_VM_READ, as a debugger has it."""
        self._process = process

    def some(self, address: int, size: int) -> bytes:
        """As ``Memory.some``."""
        if size <= 0 or not 0 <= address <= _LAST - size:
            return b""
        return winapi.read_memory(self._process, address, size)


class LiveRegions:
    """The address space, through VirtualQueryEx."""

    def __init__(self, process: winapi.Handle) -> None:
        self._process = process

    def at(self, address: int) -> MemoryInfo | None:
        """The piece that holds ``address``."""
        return winapi.region(self._process, address) if 0 <= address <= _LAST else None


@dataclass
class LiveProcess:
    """A thread that was begun and has not ended."""

    handle: winapi.Handle
    teb: int
    start: int
    name: str | None = None
    """By the old way of naming threads, an exception."""


def threads(alive: Mapping[int, LiveProcess], first: int, *, is_wow64: bool = False) -> tuple[ThreadRecord, ...]:
    """All threads with their registers, that with the id ``first`` in front; one that cannot be read has none."""
    order = sorted(alive, key=lambda tid: tid != first)
    return tuple(
        ThreadRecord(
            tid=tid,
            teb=alive[tid].teb,
            stack=None,
            context=_context(alive[tid].handle, is_wow64=is_wow64),
            name=winapi.thread_name(alive[tid].handle) or alive[tid].name,
            start=alive[tid].start,
        )
        for tid in order
    )


def _context(thread: winapi.Handle, *, is_wow64: bool) -> bytes:
    try:
        return winapi.thread_context_of_x86(thread) if is_wow64 else winapi.thread_context(thread)
    except OSError:
        return b""


def stack_use(tid: int, thread: LiveProcess, process: winapi.Handle) -> StackUse:
    """How much of its stack the thread ever used, to a page; not under wine, which may have given it back already."""
    name = winapi.thread_name(thread.handle) or thread.name
    stack = stack_peaks.range_of(thread.teb, LiveMemory(process))
    return stack_peaks.use_of(tid, name, stack, stack.committed if stack is not None and not winapi.is_wine() else None)


def lowest_page(stack: stack_peaks.StackRange, memory: Memory, until: int | None = None) -> int | None:
    """The lowest page of a stack that was used; under wine, below ``until`` if any was."""
    return stack_peaks.lowest_written(stack, memory, until) if winapi.is_wine() else stack.committed


def modules(paths: Mapping[int, str], memory: Memory) -> tuple[ModuleRecord, ...]:
    """The loaded images by their bases, the program first; what its own headers say of each."""
    return tuple(_module(path, base, memory) for base, path in paths.items())


def _module(path: str, base: int, memory: Memory) -> ModuleRecord:
    try:
        image = Image(lambda rva, size: memory.some(base + rva, size), mapped=True)
    except InputError:
        return ModuleRecord(path, base, 0, 0, 0, None, None, None)
    return ModuleRecord(
        path=path,
        base=base,
        size=image.size_of_image,
        timestamp=image.timestamp,
        checksum=image.checksum,
        version=image.file_version,
        product_version=None,
        codeview=image.codeview,
    )


def system(*, is_wow64: bool) -> SystemInfo:
    """The machine that we run on ourselves, as a process of 64 or (``is_wow64``) 32 bits sees it."""
    version = getattr(sys, "getwindowsversion", lambda: None)()
    return SystemInfo(
        architecture="x86" if is_wow64 else "x64",
        platform="Windows" + (" (wine)" if winapi.is_wine() else ""),
        platform_id=2,
        version=tuple(version.platform_version) if version else (0, 0, 0),
        service_pack=None,
        processors=os.cpu_count() or 0,
        product_type=1,
        cpu=None,
    )
