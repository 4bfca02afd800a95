"""Writes a small ELF core file (Linux, x86-64 or AArch64) that gdb, lldb and drgn open.

The layout is that of the kernel's ``fs/binfmt_elf.c``: an ELF header, program headers, one PT_NOTE and a PT_LOAD for
each mapping. Ours is small because a mapping may have a file size of 0: debuggers then read a file-backed mapping from
its file, which NT_FILE names.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from necropsy.formats.processors import X86_64, Processor

PAGE = 4096
"""What the parts of a core are aligned to. Pages of the machine may be larger, the auxiliary vector says so."""
OWN_NOTE = 0x4E435250
"""Type of a note of our own ("NCRP"), with ``OWN_NAME``: what a kernel's core does not say. Debuggers pass it over."""
OWN_NAME = b"NECROPSY"

_EHDR = struct.Struct("<16sHHIQQQIHHHHHH")
_PHDR = struct.Struct("<IIQQQQQQ")
_NOTE = struct.Struct("<III")
_STATUS = struct.Struct("<iiihxxQQiiii16s16s16s16s")
"""The beginning of ``struct elf_prstatus``, ahead of the registers."""
_HAS_FLOATING = struct.Struct("<ixxxx")
_PRPSINFO = struct.Struct("<bcbb4xQIIiiii16s80s")

_ET_CORE, _PT_LOAD, _PT_NOTE = 4, 1, 4
_NT_PRSTATUS, _NT_FPREGSET, _NT_PRPSINFO, _NT_AUXV = 1, 2, 3, 6
_NT_FILE, _NT_SIGINFO = 0x46494C45, 0x53494749
_NT_ARM_TLS = 0x401
_PN_XNUM = 0xFFFF
_ZEROS = bytes(16)


@dataclass(frozen=True)
class CoreThread:
    """Its registers as NT_PRSTATUS has them, its signal (0: none), and those of NT_FPREGSET, or none.

    ``thread_pointer``: where NT_PRSTATUS has no register for it (AArch64).
    """

    tid: int
    registers: bytes
    signal: int = 0
    floating: bytes = b""
    thread_pointer: int | None = None


@dataclass(frozen=True)
class CoreFile:
    """A file mapped at ``[low, high)``, from ``offset`` (bytes) on: a line of NT_FILE."""

    low: int
    high: int
    offset: int
    path: str


@dataclass(frozen=True, slots=True)
class CoreSegment:
    """Memory at ``[low, high)``; the core brings its first ``size`` bytes, which ``read`` yields when it is written."""

    low: int
    high: int
    readable: bool = True
    writable: bool = False
    executable: bool = False
    size: int = 0
    read: Callable[[], Iterable[bytes]] = tuple


@dataclass(frozen=True)
class CoreImage:
    """What goes into a core. The first thread is the one that debuggers select: the crashed one."""

    pid: int
    name: str
    arguments: str
    threads: Sequence[CoreThread]
    segments: Sequence[CoreSegment]
    files: Sequence[CoreFile] = ()
    auxv: bytes = b""
    siginfo: bytes = b""
    own: bytes = b""
    processor: Processor = X86_64


def _note(kind: int, payload: bytes, owner: bytes = b"CORE") -> bytes:
    name = owner + b"\0"
    return _NOTE.pack(len(name), len(payload), kind) + _padded(name) + _padded(payload)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _of_thread(thread: CoreThread, processor: Processor) -> bytes:
    if len(thread.registers) != processor.size:
        raise ValueError(f"NT_PRSTATUS has {processor.size} bytes of registers, not {len(thread.registers)}")
    signal = thread.signal
    status = _STATUS.pack(signal, 0, 0, signal, 0, 0, thread.tid, 0, 0, 0, _ZEROS, _ZEROS, _ZEROS, _ZEROS)
    return _note(_NT_PRSTATUS, status + thread.registers + _HAS_FLOATING.pack(bool(thread.floating)))


def _beside(thread: CoreThread) -> bytes:
    notes = _note(_NT_FPREGSET, thread.floating) if thread.floating else b""
    if thread.thread_pointer is not None:
        notes += _note(_NT_ARM_TLS, thread.thread_pointer.to_bytes(8, "little"), b"LINUX")
    return notes


def _prpsinfo(image: CoreImage) -> bytes:
    name = image.name.encode("utf-8", "surrogateescape")[:15]
    arguments = image.arguments.encode("utf-8", "surrogateescape")[:79]
    return _PRPSINFO.pack(0, b"R", 0, 0, 0, 0, 0, image.pid, 0, 0, 0, name, arguments)


def _files(files: Sequence[CoreFile]) -> bytes:
    table = b"".join(struct.pack("<QQQ", one.low, one.high, one.offset // PAGE) for one in files)
    names = b"".join(one.path.encode("utf-8", "surrogateescape") + b"\0" for one in files)
    return struct.pack("<QQ", len(files), PAGE) + table + names


def _notes(image: CoreImage) -> bytes:
    first, *others = image.threads
    notes = [_of_thread(first, image.processor), _note(_NT_PRPSINFO, _prpsinfo(image))]
    if image.siginfo:
        notes.append(_note(_NT_SIGINFO, image.siginfo))
    if image.auxv:
        notes.append(_note(_NT_AUXV, image.auxv))
    notes += [_note(_NT_FILE, _files(image.files)), _beside(first)]
    for thread in others:
        notes += [_of_thread(thread, image.processor), _beside(thread)]
    if image.own:
        notes.append(_note(OWN_NOTE, image.own, OWN_NAME))
    return b"".join(notes)


def write_core(image: CoreImage) -> Iterator[bytes]:
    """The core file in pieces, in order; short segments are filled with zeros, so that the others keep their offsets.

    Raises ValueError for no thread, registers of a wrong size, or 65,534 segments and more (e_phnum has 16 bits).
    """
    if not image.threads:
        raise ValueError("a core needs a thread")
    segments = sorted(image.segments, key=lambda segment: segment.low)
    count = len(segments) + 1
    if count >= _PN_XNUM:
        raise ValueError(f"{len(segments)} segments do not fit into one ELF header")
    notes = _notes(image)
    start = _EHDR.size + count * _PHDR.size
    identity = b"\x7fELF" + bytes((2, 1, 1)) + bytes(9)
    machine = image.processor.machine
    yield _EHDR.pack(identity, _ET_CORE, machine, 1, 0, _EHDR.size, 0, 0, _EHDR.size, _PHDR.size, count, 0, 0, 0)
    yield _PHDR.pack(_PT_NOTE, 0, start, 0, 0, len(notes), 0, 4)
    offset = first = -(-(start + len(notes)) // PAGE) * PAGE
    for one in segments:
        flags = 4 * one.readable | 2 * one.writable | one.executable
        size = one.high - one.low
        if one.size > size:
            raise ValueError(f"{one.size} bytes for a mapping of {size}")
        yield _PHDR.pack(_PT_LOAD, flags, offset, one.low, 0, one.size, size, PAGE)
        offset += -(-one.size // PAGE) * PAGE
    yield notes
    yield bytes(first - start - len(notes))
    for one in segments:
        if one.size:
            left = one.size
            for piece in one.read():
                yield piece[:left]
                left -= min(len(piece), left)
            yield from _zeros(left + -one.size % PAGE)


def _zeros(count: int) -> Iterator[bytes]:
    while count > 0:
        yield bytes(min(count, 1 << 20))
        count -= 1 << 20
