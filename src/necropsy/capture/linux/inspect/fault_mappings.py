"""What lies around a fault: the mapping before it, the file behind it, the heaps."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from necropsy.capture.linux.inspect.memory_map import MapEntry, MemoryMap
from necropsy.model import Fault, Frame

_ARENA = 64 << 20
"""glibc aligns the heaps of its arenas so (``HEAP_MAX_SIZE``, malloc/arena.c: twice the largest mmap threshold)."""
_HALF = 32
_TOO_LARGE = 1 << 30
"""Bytes: any number would fit into a mapping of some GiB."""
_LEAST_HALF = 16 << 20
"""Smaller numbers are sizes, indices and flags more often than halves of pointers."""


def heaps(maps: MemoryMap) -> tuple[MapEntry, ...]:
    """The mappings of malloc's main heap and of its other arenas."""
    return tuple(
        one
        for one in maps
        if one.path == "[heap]" or (one.path is None and one.permissions == "rw-p" and one.low % _ARENA == 0)
    )


def below(maps: MemoryMap, address: int) -> MapEntry | None:
    """The nearest mapping that ends at or below an address that may not be used; None where it may."""
    hit = maps.at(address)
    if hit is not None and hit.permissions[:3] != "---":
        return None
    return maps.below(hit.low if hit is not None else address)


def truncated_from(maps: MemoryMap, address: int) -> MapEntry | None:
    """The mapping that a pointer into it would miss like this after a cast to a 32-bit integer and back.

    Only for addresses with nothing above bit 31, or a sign that was extended from there. Memory that a program
    allocated comes before what was loaded from files, which may fit by chance.
    """
    high, low = address >> _HALF, address & ((1 << _HALF) - 1)
    if not (high == 0 or (high == (1 << _HALF) - 1 and low >> (_HALF - 1))) or low < _LEAST_HALF:
        return None
    loaded = (one for one in maps if one.readable and one.low >> _HALF)
    fits = [one for one in loaded if one.high - one.low < _TOO_LARGE and _holds(one, low)]
    return min(fits, key=lambda one: (one.is_file, not one.writable, one.high - one.low), default=None)


def _holds(one: MapEntry, low: int) -> bool:
    """Some address of the mapping has these lower 32 bits."""
    first = (one.low >> _HALF << _HALF) | low
    return first < one.high if first >= one.low else first + (1 << _HALF) < one.high


def with_mappings(frames: tuple[Frame, ...], maps: MemoryMap) -> tuple[Frame, ...]:
    """Name the mappings of code made at run time, which is in no file; not in a core without file names."""
    if not any(one.path is not None and one.path.startswith("/") for one in maps):
        return frames

    def known(frame: Frame) -> Frame:
        one = maps.at(frame.address) if frame.module is None and frame.address is not None else None
        return frame if one is None or not one.executable else msgspec.structs.replace(frame, mapping=one.as_noun())

    return tuple(known(frame) for frame in frames)


def with_neighbours(fault: Fault, maps: MemoryMap) -> Fault:
    """The fault with the mapping below its address, and the one that it may have been meant for."""
    if fault.address is None:
        return fault
    before = below(maps, fault.address)
    whole = truncated_from(maps, fault.address) if fault.code == "SEGV_MAPERR" else None
    return msgspec.structs.replace(
        fault,
        mapping_below=before.as_noun() if before else None,
        truncated_from=whole.as_noun() if whole else None,
    )


def complete(fault: Fault, pid: int, maps: MemoryMap) -> Fault:
    """The fault with what lies around its address; unchanged where it is no memory fault of a known address."""
    if fault.address is None or fault.code in {None, "SI_KERNEL"} or fault.sender is not None:
        return fault
    if fault.signal == "SIGSEGV":
        return with_neighbours(fault, maps)
    hit = maps.at(fault.address)
    if fault.signal != "SIGBUS" or hit is None:
        return fault
    return msgspec.structs.replace(
        fault, beyond_file=beyond_file(pid, hit, fault.address), space_left=space_left(pid, hit)
    )


def beyond_file(pid: int, one: MapEntry, address: int) -> bool | None:
    """Whether ``address`` lies behind the end of the file mapped by ``one``; None where it cannot be looked at."""
    path = _file_of(pid, one)
    if path is None:
        return None
    page = os.sysconf("SC_PAGESIZE")
    end = -(-path.stat().st_size // page) * page  # the rest of the last page can be used
    return one.offset + (address - one.low) >= end


def space_left(pid: int, one: MapEntry) -> int | None:
    """Bytes that the process could still write to the file system of that file; None where that cannot be asked."""
    path = _file_of(pid, one)
    if path is None:
        return None
    space = os.statvfs(path)
    return space.f_bavail * space.f_frsize


def _file_of(pid: int, one: MapEntry) -> Path | None:
    """A path to the very file: the kernel's own link (it needs rights), else by name if it is still the same file."""
    candidates = [Path(f"/proc/{pid}/map_files/{one.low:x}-{one.high:x}")]
    if one.path is not None and not one.deleted:
        candidates.append(Path(f"/proc/{pid}/root{one.path}"))
    return next((path for path in candidates if _inode(path) == one.inode), None)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except OSError:
        return None
