"""The small core of a death: what a debugger needs to show the same stacks, and the memory that evidence was read from.

A megabyte as stored, not 261: registers, the used part of every stack, the list of libraries, the kernel's own library,
and the pages that were read for evidence. The heap, and what can be read from the mapped files, is left out. The
strings of the environment and the arguments above the first frame are masked.
"""

from __future__ import annotations

import gzip
import json
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from necropsy import redact
from necropsy.capture.linux.core import core_redaction
from necropsy.capture.linux.core.core_redaction import Hidden, OwnStrings
from necropsy.capture.linux.inspect import environment, link_map, registers, resident_pages
from necropsy.capture.linux.inspect.memory_map import MapEntry, MemoryMap
from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.linux.inspect.target import Target
from necropsy.capture.linux.supervise.crash_context import CrashContext
from necropsy.capture.process.memory import PAGE, Memory, MemoryCopy, Registers
from necropsy.errors import InputError
from necropsy.formats.elf import PT_NOTE, ElfFile
from necropsy.formats.elf_core_writer import CoreFile, CoreImage, CoreSegment, CoreThread, write_core
from necropsy.model import Stack

MOST_OF_CRASHED = 64 << 20
MOST_OF_OTHER = 1 << 20
MOST_OF_OTHERS = 64 << 20
"""Bytes of stack: of the crashed thread (half of it from either end), of each other, of all others."""
MOST_PAGES = 1024
"""Pages that evidence was read from."""
MOST_COPIED = 16 << 20
"""Bytes of memory that are copied, so that the process need not wait until its core is written."""
_RED_ZONE = 128
_BEHIND_POINTER = 0x400
"""What is kept behind the thread pointer where the control block lies before it."""
_PIECE = 1 << 20
_PACKED_AT_ONCE = 64 << 10
_MAPPINGS_AT_ONCE = 1024
_NEAR = 64 << 10
"""Gaps of untouched memory up to this size, in bytes, are kept together with the memory around them."""
_MOST_RANGES = 50_000
"""An ELF header counts up to 65,534 segments."""


@dataclass(frozen=True)
class Kept:
    """What to keep: registers by thread (the crashed one first), stacks, pages by number, single addresses."""

    registers: Mapping[int, Registers]
    stacks: Mapping[int, Stack]
    pages: Sequence[int]
    addresses: Sequence[int]
    siginfo: bytes
    signal: int
    left_at: Sequence[int] = ()
    """Stack pointers of the crashed thread on stacks that it had left for another one."""


@dataclass(frozen=True)
class _Known:
    """What was read from the stopped process for its core, memory excepted."""

    pid: int
    maps: MemoryMap
    kept: Kept
    pages: Sequence[tuple[int, int]]
    floating: Mapping[int, bytes]
    strings: OwnStrings
    name: str
    command_line: Sequence[str]
    auxv: bytes
    said: Mapping[str, object]


def write(death: CrashContext, target: Target, files: MappedFiles, kept: Kept) -> str | None:
    """Write the core of a stopped process to ``death.core``, in gzip; what had to be left out of it, if anything.

    If ``death.deferred`` is a list, the memory for a small core is copied, and a function that writes it is added to
    the list. Raises OSError where the process is gone, or the file cannot be written, and ValueError for too many
    mappings.
    """
    if death.core is None:
        return None
    auxv = Path(f"/proc/{death.pid}/auxv").read_bytes()
    unknown: list[MapEntry] = []
    ranges = _of_everything(target, unknown) if death.full_memory else list(_wanted(target, kept, auxv))
    headers = [(file.low, file.low + _headers(file.header)) for file in files.files if files.budget.allows(file.low)]
    known = _Known(
        pid=death.pid,
        maps=target.maps,
        kept=kept,
        pages=_pages(ranges, headers),
        floating={tid: _floating(tid) for tid in kept.registers},
        strings=core_redaction.own_strings(death.pid, target.memory),
        name=target.name_of(death.pid) or "",
        command_line=core_redaction.command_line(death.pid),
        auxv=auxv,
        said=_own(death, target, kept),
    )
    if death.deferred is not None and sum(high - low for low, high in known.pages) <= MOST_COPIED:
        death.deferred.append(partial(_write, known, MemoryCopy(target.memory, known.pages), death.core))
    else:
        _write(known, target.memory, death.core)
    size = sum(one.high - one.low for one in unknown)
    return f"left out: {size:,} bytes of mappings in which the kernel does not say what is used" if unknown else None


def _write(known: _Known, memory: Memory, file: BinaryIO) -> None:
    hidden = core_redaction.hidden(known.strings)
    threads = [
        _thread(tid, now, known.kept.signal, hidden.within(known.floating[tid]))
        for tid, now in known.kept.registers.items()
    ]
    image = CoreImage(
        pid=known.pid,
        name=known.name,
        arguments=" ".join(redact.argv(known.command_line)),
        threads=threads,
        segments=list(_segments(known.maps, known.pages, _reader(memory, hidden))),
        files=[CoreFile(one.low, one.high, one.offset, _path(one)) for one in known.maps if one.is_file],
        auxv=known.auxv,
        siginfo=known.kept.siginfo,
        own=_packed(known.maps, known.said),
        processor=memory.processor,
    )
    with gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1, mtime=0, filename="") as packed:
        # Of hundreds of libraries a few hundred bytes each: they are packed together.
        for piece in _together(write_core(image)):
            packed.write(piece)
    file.flush()


def _together(pieces: Iterable[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= _PACKED_AT_ONCE:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)


def _floating(tid: int) -> bytes:
    try:
        return registers.read_floating(tid)
    except OSError:
        return b""


def _thread(tid: int, now: Registers, signal: int, floating: bytes) -> CoreThread:
    cpu = now.processor
    pointer = None if cpu.thread_pointer in cpu.status else now.thread_pointer
    return CoreThread(tid, registers.pack(now), signal, floating, pointer)


def _path(one: MapEntry) -> str:
    return f"{one.path} (deleted)" if one.deleted else one.path or ""


def _own(death: CrashContext, target: Target, kept: Kept) -> dict[str, object]:
    """What a kernel's core does not say, without the mappings."""
    return {
        "names": {str(tid): target.name_of(tid) for tid in kept.registers},
        "limits": environment.limits(death.pid),
        "variables": environment.variables(death.pid),
        "full_memory": death.full_memory,
    }


def _packed(maps: Iterable[MapEntry], said: Mapping[str, object]) -> bytes:
    """What a kernel's core does not say, as JSON, compressed."""
    packer = zlib.compressobj(1)
    packed = [packer.compress(b'{"maps":[')]
    lines = ((one.low, one.high, one.permissions, one.offset, one.inode, one.path, one.deleted) for one in maps)
    comma = b""
    while some := list(islice(lines, _MAPPINGS_AT_ONCE)):
        packed.append(packer.compress(comma + _json(some)[1:-1]))
        comma = b","
    packed.append(packer.compress(b"]," + _json(said)[1:]))
    return b"".join((*packed, packer.flush()))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# ---------------------------------------------------------------- what is kept


def _of_everything(target: Target, unknown: list[MapEntry]) -> list[tuple[int, int]]:
    """Used pages of all writable mappings; those of which that is not known are added to ``unknown``."""
    found: list[tuple[int, int]] = []
    for one in target.maps:
        if not one.readable or not (one.writable or not one.is_file):
            continue
        if one.high - one.low <= _NEAR:
            found.append((one.low, one.high - one.low))
            continue
        try:
            found += [
                (low, high - low) for low, high in _joined(resident_pages.ranges(target.pid, one.low, one.high), _NEAR)
            ]
        except (OSError, resident_pages.TooLargeError):
            unknown.append(one)
    near = _NEAR
    while len(found) > _MOST_RANGES:
        near *= 4
        found = [(low, high - low) for low, high in _joined(((low, low + size) for low, size in found), near)]
    return found


def _joined(ranges: Iterable[tuple[int, int]], near: int) -> Iterator[tuple[int, int]]:
    """The ranges, joined over gaps of up to ``near`` bytes."""
    before: tuple[int, int] | None = None
    for low, high in ranges:
        if before is not None and low - before[1] <= near:
            before = before[0], high
            continue
        if before is not None:
            yield before
        before = low, high
    if before is not None:
        yield before


def _wanted(target: Target, kept: Kept, auxv: bytes) -> Iterator[tuple[int, int]]:
    yield from _stacks(target, kept)
    yield from link_map.ranges(target.memory, auxv)
    for path in ("[vdso]", "[vsyscall]"):
        one = target.maps.named(path)
        if one is not None and one.readable:
            yield one.low, one.high - one.low
    for page in kept.pages[:MOST_PAGES]:
        yield page * PAGE, PAGE
    for address in kept.addresses:
        yield address & ~(PAGE - 1), PAGE


def _stacks(target: Target, kept: Kept) -> Iterator[tuple[int, int]]:
    left = MOST_OF_OTHERS
    for index, (tid, now) in enumerate(kept.registers.items()):
        # A thread's control block, by which debuggers know it, lies above its stack or, the first one's, elsewhere.
        first, last = now.processor.control_block
        yield now.thread_pointer + min(first, 0), max(last, _BEHIND_POINTER) - min(first, 0)
        stack = kept.stacks.get(tid)
        one = target.maps.writable_from(now.sp)  # a full stack's pointer lies in the guard below it
        if one is None:
            continue
        high = stack.high if stack is not None and stack.high is not None else one.high
        low = max(one.low, now.sp - _RED_ZONE & ~(PAGE - 1))
        size = min(high, one.high) - low
        if size <= 0:
            continue
        if index == 0 and size > MOST_OF_CRASHED:
            yield low, MOST_OF_CRASHED // 2
            yield low + size - MOST_OF_CRASHED // 2, MOST_OF_CRASHED // 2
            continue
        size = size if index == 0 else min(size, MOST_OF_OTHER, left)
        left -= 0 if index == 0 else size
        yield low, size
    for pointer in kept.left_at:
        one = target.maps.at(pointer)
        if one is not None and one.writable:
            yield pointer & ~(PAGE - 1), min(one.high - (pointer & ~(PAGE - 1)), MOST_OF_OTHER)


def _headers(data: bytes) -> int:
    """How much of an ELF file's first page a debugger reads from memory: its headers and its build ID."""
    try:
        elf = ElfFile(data)
    except InputError:
        return len(data)
    ends = [one.offset + one.file_size for one in elf.segments if one.type == PT_NOTE]
    return max((end for end in (*ends, 64 + 56 * len(elf.segments)) if end <= len(data)), default=len(data))


# ---------------------------------------------------------------- from ranges to segments


def _pages(ranges: Iterable[tuple[int, int]], headers: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Whole pages of the ranges, joined where they touch, in ascending order, as ``[low, high)``.

    ``headers`` are added as they are, where nothing else of their page is kept.
    """
    joined: list[tuple[int, int]] = []
    for low, size in sorted(ranges):
        if size <= 0 or low < PAGE:
            continue
        start, end = low & ~(PAGE - 1), low + size + PAGE - 1 & ~(PAGE - 1)
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    lows = [low for low, _ in joined]
    for low, end in headers:
        index = bisect_right(lows, low) - 1
        if index < 0 or joined[index][1] <= low:
            joined.append((low, end))
    return sorted(joined)


def _segments(
    maps: Iterable[MapEntry], kept: Sequence[tuple[int, int]], read: Callable[[int, int], Iterable[bytes]]
) -> Iterator[CoreSegment]:
    """What is kept of every mapping, and what is left to the files: anything else would read as zeros."""
    at = 0
    for one in maps:
        while at < len(kept) and kept[at][1] <= one.low:
            at += 1
        cuts = [
            (max(low, one.low), min(high, one.high))
            for low, high in kept[at : _last(kept, at, one.high)]
            if one.readable and _is_worth(one, low)
        ]
        yield from _cut(one, cuts, read)


def _last(kept: Sequence[tuple[int, int]], at: int, high: int) -> int:
    while at < len(kept) and kept[at][0] < high:
        at += 1
    return at


def _is_worth(one: MapEntry, low: int) -> bool:
    """Code is the file's own; what else is mapped of a file was relocated, or says which file it is."""
    return not (one.is_file and one.executable and not one.deleted) or (one.offset == 0 and low <= one.low)


def _cut(
    one: MapEntry, cuts: Sequence[tuple[int, int]], read: Callable[[int, int], Iterable[bytes]]
) -> Iterator[CoreSegment]:
    def segment(low: int, high: int, end: int) -> CoreSegment:
        size = end - low
        flags = one.permissions
        data = partial(read, low, size) if size else tuple
        return CoreSegment(low, high, flags[0] == "r", flags[1] == "w", flags[2] == "x", size, data)

    at = one.low
    for index, (low, end) in enumerate(cuts):
        if one.is_file and low > at:
            yield segment(at, low, at)
        following = cuts[index + 1][0] if index + 1 < len(cuts) else one.high
        at = min(end + PAGE - 1 & ~(PAGE - 1), following)
        yield segment(low, at, end)
    if one.is_file and at < one.high:
        yield segment(at, one.high, at)


def _reader(memory: Memory, hidden: Hidden) -> Callable[[int, int], Iterable[bytes]]:
    def read(address: int, size: int) -> Iterator[bytes]:
        end = address + size
        while address < end:
            data = memory.some(address, min(_PIECE, end - address))
            if not data:
                # A page that cannot be read leaves a hole of zeros, and what follows it stays where it was.
                data = bytes(min(PAGE - address % PAGE, end - address))
            yield hidden.within(hidden.over(address, data))
            address += len(data)

    return read
