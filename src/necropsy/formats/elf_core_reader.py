"""Reads a Linux core of x86-64 or AArch64: the kernel's, gdb's, systemd's, ours.

Layout: the kernel's ``fs/binfmt_elf.c`` (``elf_core_dump``) and ``include/uapi/linux/elfcore.h``. Cores are untrusted
and may be cut off: each size is checked against the file, each count against what can be there.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from mmap import mmap

import msgspec

from necropsy.errors import InputError
from necropsy.formats.elf_core_writer import OWN_NAME, OWN_NOTE, PAGE, CoreFile
from necropsy.formats.processors import BY_MACHINE, X86_64, Processor

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_ET_CORE, _PT_LOAD, _PT_NOTE, _PN_XNUM = 4, 1, 4, 0xFFFF
_NT_PRSTATUS, _NT_PRPSINFO, _NT_AUXV, _NT_FILE, _NT_SIGINFO = 1, 3, 6, 0x46494C45, 0x53494749
_NT_ARM_TLS, _NT_ARM_PAC_MASK = 0x401, 0x406
_SIGNAL_AT, _TID_AT, _REGISTERS_AT = 12, 32, 112
_PID_AT, _NAME_AT, _ARGUMENTS_AT, _PSINFO_SIZE = 24, 40, 56, 136
_MOST_SEGMENTS = 1 << 20
_MOST_NOTES = 1 << 17
_LARGEST_NOTES = 512 << 20
_MOST_FILES = 1 << 18
_LARGEST_OWN = 64 << 20
_LAST = 1 << 64
_MACHINES = {3: "x86 (32 bits)", 40: "Arm (32 bits)", 243: "RISC-V", 21: "PowerPC", 22: "s390"}


@dataclass(frozen=True)
class Load:
    """Memory at ``[low, high)``; the first ``size`` bytes of it lie in the core at ``offset``. ``permissions``: r-x."""

    low: int
    high: int
    offset: int
    size: int
    permissions: str


@dataclass(frozen=True)
class Status:
    """One thread: the signal that it took, and its registers as the processor's NT_PRSTATUS has them.

    ``thread_pointer``: None where it is one of these registers, or the core does not say it.
    """

    tid: int
    signal: int
    registers: bytes
    thread_pointer: int | None = None


class OwnMap(msgspec.Struct, array_like=True, frozen=True):
    """A line of ``/proc/PID/maps`` as ``capsule`` writes it."""

    low: int
    high: int
    permissions: str
    offset: int
    inode: int
    path: str | None
    deleted: bool


class Own(msgspec.Struct, frozen=True):
    """What our own cores say besides: exact mappings, names of threads, soft limits, harmless variables."""

    maps: list[OwnMap]
    names: dict[str, str | None] = {}
    limits: dict[str, int] | None = None
    variables: dict[str, str] | None = None
    full_memory: bool = False


@dataclass
class CoreDump:
    """What a core says. ``threads``: the one that took the signal first; ``pid`` 0 where it does not say."""

    processor: Processor = X86_64
    loads: list[Load] = field(default_factory=list)
    threads: list[Status] = field(default_factory=list)
    siginfo: bytes | None = None
    auxv: bytes = b""
    files: list[CoreFile] = field(default_factory=list)
    pid: int = 0
    name: str | None = None
    arguments: str | None = None
    own: Own | None = None
    missing: int = 0
    """Bytes that its headers promise and that are not there: it was cut off."""


def parse(data: bytes | memoryview | mmap) -> CoreDump:
    """The core in ``data``. Raises InputError where it is no ELF core of a known processor, or is broken."""
    if len(data) < _HEADER.size or data[:4] != b"\x7fELF":
        raise InputError("not an ELF core")
    if data[4:6] != b"\x02\x01":
        raise InputError("not a core of a 64-bit little-endian machine")
    fields = _HEADER.unpack(data[: _HEADER.size])
    kind, machine, offset, sections, entry_size, count = (fields[index] for index in (1, 2, 5, 6, 9, 10))
    if kind != _ET_CORE:
        raise InputError("an ELF file, but no core: a program or a library")
    processor = BY_MACHINE.get(machine)
    if processor is None:
        name = _MACHINES.get(machine, f"machine {machine}")
        raise InputError(f"a core of {name}; only those of x86-64 and AArch64 can be read")
    if entry_size != _PROGRAM_HEADER.size:
        raise InputError("a broken core: its program headers have a wrong size")
    if count == _PN_XNUM and sections + 48 <= len(data):
        (count,) = struct.unpack("<I", data[sections + 44 : sections + 48])
    whole = max(0, min(count, _MOST_SEGMENTS, (len(data) - offset) // entry_size))
    if not whole:
        raise InputError("a broken core: it ends before its program headers")
    table = bytes(data[offset : offset + whole * entry_size])
    core = CoreDump(processor, missing=(count - whole) * entry_size)
    notes: list[tuple[int, int]] = []
    for kind, flags, start, low, _physical, size, memory, _align in _PROGRAM_HEADER.iter_unpack(table):
        there = max(0, min(size, len(data) - start))
        core.missing += size - there if kind in {_PT_LOAD, _PT_NOTE} else 0
        if kind == _PT_NOTE:
            notes.append((start, there))
        elif kind == _PT_LOAD and memory and low + memory <= _LAST:
            letters = "".join(letter if flags & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1)))
            core.loads.append(Load(low, low + memory, start, min(there, memory), letters))
    core.loads = list(_apart(core.loads))
    for start, size in notes:
        _read_notes(core, bytes(data[start : start + min(size, _LARGEST_NOTES)]))
    return core


def _apart(loads: list[Load]) -> Iterator[Load]:
    """In ascending order, without those that overlap an earlier one."""
    end = 0
    for one in sorted(loads, key=lambda load: (load.low, -load.size)):
        if one.low >= end:
            end = one.high
            yield one


def _read_notes(core: CoreDump, data: bytes) -> None:
    at = 0
    for _ in range(_MOST_NOTES):
        if at + 12 > len(data):
            return
        name_size, size, kind = struct.unpack_from("<III", data, at)
        name_at = at + 12
        start = name_at + (name_size + 3 & ~3)
        if start + size > len(data):
            return
        name = data[name_at : name_at + name_size].rstrip(b"\0")
        payload = data[start : start + size]
        if name == b"CORE":
            _read_note(core, kind, payload)
        elif name == b"LINUX" and core.threads:
            _read_note_of_arm(core, kind, payload)
        elif name == OWN_NAME and kind == OWN_NOTE and core.own is None:
            core.own = _own(payload)
        at = start + (size + 3 & ~3)


def _read_note(core: CoreDump, kind: int, data: bytes) -> None:
    size = core.processor.size
    if kind == _NT_PRSTATUS and len(data) >= _REGISTERS_AT + size:
        (signal,) = struct.unpack_from("<h", data, _SIGNAL_AT)
        (tid,) = struct.unpack_from("<i", data, _TID_AT)
        core.threads.append(Status(tid, signal, data[_REGISTERS_AT : _REGISTERS_AT + size]))
    elif kind == _NT_PRPSINFO and len(data) >= _PSINFO_SIZE:
        (core.pid,) = struct.unpack_from("<i", data, _PID_AT)
        core.name = _text(data[_NAME_AT:_ARGUMENTS_AT])
        core.arguments = _text(data[_ARGUMENTS_AT:_PSINFO_SIZE])
    elif kind == _NT_SIGINFO and len(data) >= 128:
        core.siginfo = core.siginfo or data[:128]
    elif kind == _NT_AUXV:
        core.auxv = data
    elif kind == _NT_FILE and not core.files:
        core.files = list(_files(data))


def _read_note_of_arm(core: CoreDump, kind: int, data: bytes) -> None:
    """What the kernel adds for AArch64, for the thread whose NT_PRSTATUS came before."""
    if core.processor is X86_64:
        return
    if kind == _NT_ARM_TLS and len(data) >= 8:
        core.threads[-1] = replace(core.threads[-1], thread_pointer=int.from_bytes(data[:8], "little"))
    elif kind == _NT_ARM_PAC_MASK and len(data) >= 16:
        # Bit 55 tells user space from the kernel's; above the signature there may be a tag.
        signature = int.from_bytes(data[8:16], "little")
        core.processor = replace(core.processor, link_mask=((1 << 55) - 1) & ~signature)


def _text(data: bytes) -> str | None:
    return data.split(b"\0")[0].decode("utf-8", "replace").strip() or None


def _files(data: bytes) -> Iterator[CoreFile]:
    if len(data) < 16:
        return
    count, page = struct.unpack_from("<QQ", data)
    count = min(count, _MOST_FILES, (len(data) - 16) // 24)
    names = data[16 + count * 24 :].split(b"\0", count)
    for (low, high, offset), name in zip(struct.iter_unpack("<QQQ", data[16 : 16 + count * 24]), names, strict=False):
        if low < high <= _LAST:
            yield CoreFile(low, high, offset * (page or PAGE), name.decode("utf-8", "surrogateescape"))


def _own(data: bytes) -> Own | None:
    """Our own note; None where it is damaged, so that the core is read as any other."""
    try:
        text = zlib.decompressobj().decompress(data, _LARGEST_OWN)
        return msgspec.json.decode(text, type=Own)
    except (zlib.error, msgspec.MsgspecError, ValueError, RecursionError):
        return None
