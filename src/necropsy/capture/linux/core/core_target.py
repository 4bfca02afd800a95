"""A core as something to be read: the same questions as to a stopped process, answered from what the core holds."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from necropsy import redact
from necropsy.capture.linux.core.core_memory import CoreMemory
from necropsy.capture.linux.inspect import fault_mappings, library_versions, link_map, modules, registers, waits
from necropsy.capture.linux.inspect.interpreter import LinuxFrameReader
from necropsy.capture.linux.inspect.memory_map import MapEntry, MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.process import python_stacks
from necropsy.capture.process.memory import Registers
from necropsy.capture.process.owning_package import package_of
from necropsy.formats.elf_core_reader import CoreDump, Load
from necropsy.model import Environment, Fault, Wait
from necropsy.secrets.names import is_harmless

_AT_ENTRY, _AT_RANDOM, _AT_EXECFN, _AT_SYSINFO_EHDR = 9, 25, 31, 33
_LONGEST_STRINGS = 2 << 20
_DELETED = " (deleted)"
_NOBODY = -1
"""No process has this id: what is asked of ``/proc`` is not there, whoever has the core's id by now."""


class CoreTarget:
    """One core. ``replaced`` names the files that could not be used, because others lie under their paths by now."""

    def __init__(self, core: CoreDump, data: bytes | mmap.mmap, taken_at: float, folders: Sequence[Path] = ()) -> None:
        """``folders``: where files of another machine may be, as ``CoreMemory`` looks for them."""
        self.core = core
        self.pid = core.pid or (core.threads[0].tid if core.threads else 0)
        self.auxv = link_map.auxiliary(core.auxv)
        self.maps = maps_of(core, self.auxv)
        self.memory = CoreMemory(core, data, self.maps, taken_at, folders)
        self.stack_limit = (core.own.limits or {}).get("RLIMIT_STACK") if core.own else None
        self._files = modules.find(_NOBODY, self.maps, self.memory, self.memory.place_of)
        self.replaced = tuple(sorted({one.path for one in self._files.files if one.replaced}))

    def registers(self, tid: int) -> Registers:
        """As ``Target.registers``."""
        for one in self.core.threads:
            if one.tid == tid:
                found = registers.parse(one.registers, self.core.processor)
                if one.thread_pointer is None:
                    return found
                pointer = {self.core.processor.thread_pointer: one.thread_pointer}
                return Registers({**found.values, **pointer}, self.core.processor)
        raise OSError(f"the core has no registers of thread {tid}")

    def name_of(self, tid: int) -> str | None:
        """As ``Target.name_of``; a kernel's core has the name of the process only."""
        if self.core.own is not None:
            return self.core.own.names.get(str(tid))
        return self.core.name if tid == self.pid else None

    def files(self) -> MappedFiles:
        """As ``Target.files``."""
        return self._files

    def environment(self, files: MappedFiles) -> Environment:
        """As ``Target.environment``; neither system nor CPU are known, a core may come from anywhere."""
        own = self.core.own
        found = (package_of(file.path) for file in files.files if not file.replaced)
        return Environment(
            python=library_versions.python_version(self.memory, files),
            executable=self._executable(),
            libc=library_versions.libc_version(files),
            packages=dict(sorted({one for one in found if one is not None})),
            variables=own.variables if own is not None else self._variables(),
            limits=own.limits if own is not None else None,
        )

    def _executable(self) -> str | None:
        one = self.maps.at(self.auxv.get(_AT_ENTRY, -1))
        return one.path if one is not None else None

    def _variables(self) -> dict[str, str] | None:
        """The environment that the process started with, from the top of its stack."""
        end = self.auxv.get(_AT_EXECFN)
        one = self.maps.at(end) if end is not None else None
        if one is None or end is None:
            return None
        low = max(one.low, end - _LONGEST_STRINGS)
        words = self.memory.some(low, end - low).decode("utf-8", "backslashreplace").split("\0")
        pairs = (word.partition("=") for word in words)
        return redact.variables({name: value for name, _, value in sorted(pairs) if is_harmless(name)})

    def limits(self) -> None:
        """As ``Target.limits``: a core does not tell."""

    def complete(self, fault: Fault) -> Fault:
        """As ``Target.complete``, without what only the living system knows."""
        if fault.signal != "SIGSEGV" or fault.address is None or fault.code == "SI_KERNEL" or fault.sender is not None:
            return fault
        return fault_mappings.with_neighbours(fault, self.maps)

    def wait(self, now: Registers, functions: Iterable[str | None]) -> Wait | None:
        """As ``Target.wait``."""
        return waits.of(_NOBODY, now, self.memory, functions)

    def sources(self) -> None:
        """As ``Target.sources``: the files may have changed since."""

    def dump(self, *, with_locals: bool) -> python_stacks.PythonStacks:  # noqa: ARG002 - as ``Target`` has it
        """As ``Target.dump``; without locals."""
        if self.core.own is not None and not self.core.own.full_memory:
            raise python_stacks.PythonStackError(
                "a small core holds no Python objects; the report that it was kept with shows them"
            )
        return LinuxFrameReader(self.memory, self._files)


def maps_of(core: CoreDump, auxv: dict[int, int]) -> MemoryMap:
    """The mappings: as our own core has them, else put together from segments, NT_FILE and the auxiliary vector."""
    if core.own is not None:
        own = (
            MapEntry(one.low, one.high, one.permissions, one.offset, "00:00", one.inode, one.path, one.deleted)
            for one in core.own.maps
            if 0 <= one.low < one.high <= 1 << 64 and len(one.permissions) == 4 and one.offset >= 0
        )
        return MemoryMap(_apart(own))
    return MemoryMap(_apart(_from_segments(core, auxv)))


def _apart(found: Iterable[MapEntry]) -> Iterator[MapEntry]:
    end = 0
    for one in sorted(found, key=lambda each: each.low):
        if one.low >= end:
            end = one.high
            yield one


def _from_segments(core: CoreDump, auxv: dict[int, int]) -> Iterator[MapEntry]:
    files = {one.low: one for one in core.files}
    vdso, stack = auxv.get(_AT_SYSINFO_EHDR, -1), auxv.get(_AT_RANDOM, auxv.get(_AT_EXECFN, -1))
    covered = set()
    for load in core.loads:
        file = files.get(load.low)
        path, offset, deleted = None, 0, False
        if file is not None:
            covered.add(load.low)
            deleted = file.path.endswith(_DELETED)
            path, offset = file.path.removesuffix(_DELETED), file.offset
        elif load.low <= vdso < load.high:
            path = "[vdso]"
        elif load.low <= stack < load.high:
            path = "[stack]"
        yield MapEntry(
            load.low, load.high, load.permissions + "p", offset, "00:00", int(file is not None), path, deleted
        )
    loads = core.loads
    for one in core.files:
        # Some writers leave out what can be read from a file. What may be done with it, nobody says then.
        if one.low not in covered and not _is_loaded(loads, one.low):
            yield MapEntry(one.low, one.high, "r--p", one.offset, "00:00", 1, one.path.removesuffix(_DELETED))


def _is_loaded(loads: list[Load], address: int) -> bool:
    from bisect import bisect_right

    index = bisect_right(loads, address, key=lambda load: load.low) - 1
    return index >= 0 and address < loads[index].high
