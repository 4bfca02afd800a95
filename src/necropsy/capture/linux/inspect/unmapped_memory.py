"""Looks for what a fault address belonged to before it was unmapped: which addresses are known that lead there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from necropsy.capture.linux.inspect import link_map
from necropsy.capture.linux.inspect.interpreter import LinuxFrameReader
from necropsy.capture.linux.inspect.library_versions import python_version
from necropsy.capture.linux.inspect.memory_map import MapEntry, MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.linux.inspect.process_memory import ProcessMemory
from necropsy.capture.process import closed_buffers, unmapped_owner
from necropsy.capture.process.cpython_values import Values
from necropsy.capture.process.memory import Memory
from necropsy.capture.process.python_stacks import PythonStackError
from necropsy.capture.process.unmapped_owner import Candidate, Place
from necropsy.model import Crash, Former

_MOST_FRAMES = 8
_LEAST = 1 << 16
_C_LIBRARY = "libc.so.6"


def added(crash: Crash, memory: Memory, maps: MemoryMap, files: MappedFiles, pointers: Mapping[int, int]) -> Crash:
    """The crash, with what its fault address belonged to."""
    fault = crash.fault
    if fault is None or fault.signal != "SIGSEGV" or fault.code != "SEGV_MAPERR" or fault.address is None:
        return crash
    thread = crash.crashed_thread
    full = thread is not None and thread.stack is not None and thread.stack.guard_hit
    if fault.address < _LEAST or fault.mapping is not None or fault.truncated_from is not None or full:
        return crash
    found = _found(crash, Place(memory, maps, int(fault.address)), maps, files, pointers)
    if found is None:
        return crash
    return msgspec.structs.replace(crash, fault=msgspec.structs.replace(fault, former=found))


def _found(
    crash: Crash, place: Place, maps: MemoryMap, files: MappedFiles, pointers: Mapping[int, int]
) -> Former | None:
    memory = place.memory
    seen = _seen(crash, memory, files, pointers)
    candidates = [*_registers(crash), *seen.candidates()] if not _is_beyond(crash, maps) else []
    known = unmapped_owner.loader(memory, _records(crash.pid, memory))
    found = unmapped_owner.of(place, candidates, _parts(maps, _C_LIBRARY), known)
    return found or closed_buffers.of_variables(seen, maps, place.address, candidates)


def _is_beyond(crash: Crash, maps: MemoryMap) -> bool:
    """The address is beyond mapped memory that its pointer leads to, not in what was freed."""
    operands = crash.instruction.operands if crash.instruction is not None else ()
    address = crash.fault.address if crash.fault is not None else None
    used = [one for one in operands if one.address == address] or list(operands)
    return any(maps.at(int(value)) is not None for one in used for value in one.registers.values())


def _records(pid: int | None, memory: Memory) -> list[int]:
    """The dynamic loader's records of loaded libraries; none of a core, which lacks most of them."""
    if pid is None or not isinstance(memory, ProcessMemory):
        return []
    try:
        auxv = Path(f"/proc/{pid}/auxv").read_bytes()
    except OSError:
        return []
    return [at for at, _ in link_map.ranges(memory, auxv)]


def _parts(maps: MemoryMap, name: str) -> list[MapEntry]:
    return [one for one in maps if one.path is not None and one.path.rpartition("/")[2] == name]


def _registers(crash: Crash) -> Iterator[Candidate]:
    for name, value in (crash.registers or {}).items():
        yield Candidate(int(value), name)


def _seen(crash: Crash, memory: Memory, files: MappedFiles, pointers: Mapping[int, int]) -> closed_buffers.Seen:
    thread = crash.crashed_thread
    if thread is None or thread.tid is None or not thread.python:
        return closed_buffers.Seen()
    try:
        reader = LinuxFrameReader(memory, files)
        _, layout = reader.located()
        standing = reader.standing(thread.tid, pointers, _MOST_FRAMES)
    except PythonStackError:
        return closed_buffers.Seen()
    version = (python_version(memory, files) or "").split(".")
    if len(version) < 2 or not version[1].isdecimal():
        return closed_buffers.Seen()
    return closed_buffers.look(memory, Values(memory, layout, int(version[1])), standing)
