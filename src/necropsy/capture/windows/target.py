"""A stopped process of Windows, as ``crash_builder`` reads it: from a minidump, or live under the supervisor."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from necropsy.capture.process.memory import Memory
from necropsy.formats.minidump_records import (
    ExceptionRecord,
    MemoryInfo,
    MemoryRanges,
    ModuleRecord,
    SystemInfo,
    ThreadRecord,
    UnloadedModule,
)
from necropsy.model import Exit, Fault, Frame, Gap, Message


class MemoryRegions(Protocol):
    """The pieces of the address space, as VirtualQueryEx tells them."""

    def at(self, address: int) -> MemoryInfo | None:
        """The piece that holds ``address``."""


@dataclass(frozen=True, kw_only=True)
class ProcessSnapshot:
    """What is known of the process. ``exception``: None where it lives; ``main_tid``: its first thread.

    ``regions``: None where the address space is unknown. ``messages``: known phrases from elsewhere, such as its output
    for a debugger. ``log_tail``: the end of its stderr.
    """

    pid: int | None
    exception: ExceptionRecord | None
    threads: tuple[ThreadRecord, ...]
    modules: tuple[ModuleRecord, ...]
    memory: Memory
    system: SystemInfo | None = None
    regions: MemoryRegions | None = None
    unloaded: tuple[UnloadedModule, ...] = ()
    main_tid: int | None = None
    at: str | None = None
    """When it died; ISO 8601 in UTC."""
    messages: tuple[Message, ...] = ()
    log_tail: str | None = None
    variables: dict[str, str] | None = None
    command: tuple[str, ...] | None = None
    folders: tuple[Path, ...] = ()
    """Where images and PDBs are looked for."""
    gaps: tuple[Gap, ...] = ()
    budget_s: float = 20.0
    ended: Exit | None = None
    """How it ended, where somebody saw it; else the exception says."""
    fault: Fault | None = None
    """The fault, where it is not Windows' exception that tells it."""
    cpu: str | None = None
    maps: MemoryRegions | None = None
    """Which memory holds code, where the system is not Windows."""
    here: bool = False
    """It runs on this machine: what its processor can do is known."""
    symbols: Callable[[int], tuple[str | None, str | None, int | None] | None] | None = None
    """The function, the source file and the line at an address, as the debugger of a live process knows them."""
    python: Callable[[float], dict[int, tuple[Frame, ...]]] | None = None
    """Reads the Python frames of each thread by its id, innermost first, in so many seconds."""

    @property
    def executable(self) -> ModuleRecord | None:
        """The program itself."""
        programs = (one for one in self.modules if one.name.lower().endswith(".exe"))
        return next(programs, self.modules[0] if self.modules else None)

    @cached_property
    def _by_base(self) -> tuple[list[int], list[ModuleRecord]]:
        ordered = sorted(self.modules, key=lambda one: one.base)
        return [one.base for one in ordered], ordered

    def module_at(self, address: int) -> ModuleRecord | None:
        """The module that holds ``address``."""
        bases, ordered = self._by_base
        index = bisect_right(bases, address) - 1
        return ordered[index] if index >= 0 and address < bases[index] + ordered[index].size else None

    def crashed(self) -> ThreadRecord | None:
        """The thread of the exception, be it listed or not."""
        exception = self.exception
        if exception is None:
            return None
        known = next((one for one in self.threads if one.tid == exception.tid), None)
        return known or ThreadRecord(tid=exception.tid, teb=0, stack=None, context=exception.context)


class MinidumpMemory(Memory):
    """What a minidump holds of its process: the stacks mostly, sometimes all of it."""

    def __init__(self, ranges: MemoryRanges) -> None:
        """``ranges``: ``Minidump.memory``."""
        self._ranges = ranges

    def some(self, address: int, size: int) -> bytes:
        """As ``Memory.some``."""
        return self._ranges.some(address, size) if size > 0 else b""
