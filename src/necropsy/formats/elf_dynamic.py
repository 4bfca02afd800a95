"""What the dynamic loader reads of an ELF file: search paths, symbol versions, thread-local storage.

Layouts from the System V gABI (chapter 5) and the Linux Standard Base (*Symbol versioning*).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from necropsy.errors import InputError
from necropsy.formats.elf import ElfFile

_PT_LOAD, _PT_TLS, _PT_GNU_PROPERTY = 1, 7, 0x6474E553
_NT_GNU_PROPERTY_TYPE_0, _X86_ISA_1_NEEDED = 5, 0xC0008002
_MOST_PROPERTIES = 64
_DT_HASH, _DT_SYMTAB, _DT_RPATH, _DT_RUNPATH, _DT_FLAGS, _DT_GNU_HASH = 4, 6, 15, 29, 30, 0x6FFFFEF5
_SHT_DYNSYM = 11
_SECTION = struct.Struct("<IIQQQQIIQQ")
_DT_VERSYM, _DT_VERDEF, _DT_VERDEFNUM, _DT_VERNEED, _DT_VERNEEDNUM = (
    0x6FFFFFF0,
    0x6FFFFFFC,
    0x6FFFFFFD,
    0x6FFFFFFE,
    0x6FFFFFFF,
)
_DF_STATIC_TLS = 0x10
_X86_64 = 62
_VER_FLG_BASE, _VER_FLG_WEAK = 1, 2
_SYMBOL = struct.Struct("<IBBHQQ")
_MOST_VERSIONS = 4096
MACHINES = {3: "i386", 8: "mips", 20: "ppc", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64"}
MACHINES |= {243: "riscv64", 258: "loongarch64"}
"""Of ``e_machine``, as ``uname -m`` calls them."""


@dataclass(frozen=True)
class Dynamic:
    """What the loader reads; versions by the name of the library that they are needed of. Sizes in bytes."""

    machine: str
    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    needs: tuple[tuple[str, tuple[str, ...]], ...]
    defines: tuple[str, ...]
    tls_size: int | None
    static_tls: bool
    build_id: str | None
    isa_level: int | None
    """The microarchitecture level of x86-64 that it is marked to need, 2 to 4; None where it has no such mark."""


def dynamic(elf: ElfFile) -> Dynamic:
    """What the loader reads of ``elf``. Raises InputError where its tables point outside the file."""
    runpath = _folders(elf.dynamic_text(_DT_RUNPATH))
    tls = next((one.memory_size for one in elf.segments if one.type == _PT_TLS), None)
    flags = elf.tag(_DT_FLAGS)
    return Dynamic(
        machine=MACHINES.get(elf.machine, str(elf.machine)),
        soname=elf.soname(),
        needed=elf.needed(),
        # A RUNPATH makes the loader ignore the RPATH (ld.so(8)).
        rpath=() if runpath else _folders(elf.dynamic_text(_DT_RPATH)),
        runpath=runpath,
        needs=tuple(_needs(elf)),
        defines=tuple(_defines(elf)),
        tls_size=tls,
        static_tls=flags != -1 and bool(flags & _DF_STATIC_TLS),
        build_id=elf.build_id(),
        isa_level=_isa_level(elf) if elf.machine == _X86_64 else None,
    )


def _isa_level(elf: ElfFile) -> int | None:
    """Written by the linker's ``-z x86-64-v3`` (System V psABI, *Program Property*), for glibc 2.33 and later."""
    segment = next((one for one in elf.segments if one.type == _PT_GNU_PROPERTY), None)
    if segment is None or segment.file_size < 16:
        return None
    name_size, size, kind = struct.unpack("<III", elf.bytes_at(segment.offset, 12))
    if name_size != 4 or kind != _NT_GNU_PROPERTY_TYPE_0 or size > segment.file_size - 16:
        return None
    at, end = segment.offset + 16, segment.offset + 16 + size
    for _ in range(_MOST_PROPERTIES):
        if at + 12 > end:
            return None
        number, length, value = struct.unpack("<III", elf.bytes_at(at, 12))
        if number == _X86_ISA_1_NEEDED:
            # One bit for each level from the baseline on.
            level: int = (value & 0xF).bit_length()
            return level if level > 1 else None
        at += 8 + (length + 7 & ~7)
    return None


def end_of_segments(elf: ElfFile) -> int:
    """How many bytes the file must have: where the last of its loaded segments ends."""
    return max((one.offset + one.file_size for one in elf.segments if one.type == _PT_LOAD), default=0)


def _folders(text: str | None) -> tuple[str, ...]:
    return tuple(one for one in (text or "").split(":") if one)


def _needs(elf: ElfFile) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Entries of ``Elf64_Verneed`` with their ``Elf64_Vernaux``, except weak ones, which may be missing."""
    at = elf.offset_of(elf.tag(_DT_VERNEED))
    if at is None:
        return
    for _ in range(min(elf.tag(_DT_VERNEEDNUM), _MOST_VERSIONS)):
        _, count, file, aux, following = struct.unpack("<HHIII", elf.bytes_at(at, 16))
        names, place = [], at + aux
        for _ in range(min(count, _MOST_VERSIONS)):
            _, flags, _, name, step = struct.unpack("<IHHII", elf.bytes_at(place, 16))
            text = elf.string(name)
            if text is not None and not flags & _VER_FLG_WEAK:
                names.append(text)
            if not step:
                break
            place += step
        library = elf.string(file)
        if library is not None:
            yield library, tuple(names)
        if not following:
            return
        at += following


def _defines(elf: ElfFile) -> Iterator[str]:
    """Names of ``Elf64_Verdef``, without the library's own."""
    at = elf.offset_of(elf.tag(_DT_VERDEF))
    if at is None:
        return
    for _ in range(min(elf.tag(_DT_VERDEFNUM), _MOST_VERSIONS)):
        _, flags, _, count, _, aux, following = struct.unpack("<HHHHIII", elf.bytes_at(at, 20))
        if count and not flags & _VER_FLG_BASE:
            (name,) = struct.unpack("<I", elf.bytes_at(at + aux, 4))
            text = elf.string(name)
            if text is not None:
                yield text
        if not following:
            return
        at += following


@dataclass(frozen=True)
class Undefined:
    """A symbol that the file needs from elsewhere, and the version of it where it names one."""

    name: str
    version: str | None


def undefined(elf: ElfFile, most: int) -> tuple[Undefined, ...] | None:
    """Undefined symbols except weak ones; None for over ``most``, or no count. Raises InputError for damaged tables."""
    symbols = elf.offset_of(elf.tag(_DT_SYMTAB))
    count = _count(elf)
    if symbols is None or count is None or count > most:
        return None
    found = []
    raw = elf.bytes_at(symbols, count * _SYMBOL.size)
    versions = dict(_version_numbers(elf))
    table = elf.offset_of(elf.tag(_DT_VERSYM))
    numbers = struct.unpack(f"<{count}H", elf.bytes_at(table, count * 2)) if table is not None else (0,) * count
    for index, (name, info, _other, section, _value, _size) in enumerate(_SYMBOL.iter_unpack(raw)):
        if section == 0 and info >> 4 == 1 and name:
            text = elf.string(name)
            if text:
                found.append(Undefined(text, versions.get(numbers[index] & 0x7FFF)))
    return tuple(found)


def _count(elf: ElfFile) -> int | None:
    """How many dynamic symbols to look at for all undefined ones; None where nothing says so.

    Without section headers the hash tables do: undefined symbols, which ``DT_GNU_HASH`` leaves out, come first.
    """
    for kind, address, size in _sections(elf):
        if kind == _SHT_DYNSYM and address == elf.tag(_DT_SYMTAB):
            return size // _SYMBOL.size
    table = elf.offset_of(elf.tag(_DT_HASH))
    if table is not None:
        return int(struct.unpack("<II", elf.bytes_at(table, 8))[1])
    table = elf.offset_of(elf.tag(_DT_GNU_HASH))
    first = int(struct.unpack("<II", elf.bytes_at(table, 8))[1]) if table is not None else 0
    return first if first > 1 else None


def _sections(elf: ElfFile) -> Iterator[tuple[int, int, int]]:
    """Kind, address and size of each section; nothing where the headers were stripped or are damaged."""
    try:
        headers = elf.sections(_MOST_VERSIONS)
    except InputError:
        return
    for _, kind, _, address, _, size, *_ in _SECTION.iter_unpack(headers):
        yield kind, address, size


def _version_numbers(elf: ElfFile) -> Iterator[tuple[int, str]]:
    """The numbers that ``DT_VERSYM`` uses for needed versions."""
    at = elf.offset_of(elf.tag(_DT_VERNEED))
    if at is None:
        return
    for _ in range(min(elf.tag(_DT_VERNEEDNUM), _MOST_VERSIONS)):
        _, count, _, aux, following = struct.unpack("<HHIII", elf.bytes_at(at, 16))
        place = at + aux
        for _ in range(min(count, _MOST_VERSIONS)):
            _, _, number, name, step = struct.unpack("<IHHII", elf.bytes_at(place, 16))
            text = elf.string(name)
            if text is not None:
                yield number, text
            if not step:
                break
            place += step
        if not following:
            return
        at += following


def has(elf: ElfFile, name: str) -> bool:
    """Whether it defines the dynamic symbol ``name``. Raises InputError where its tables point outside the file."""
    try:
        return elf.symbol(name) is not None
    except struct.error as error:
        raise InputError(str(error)) from None


# ``/etc/ld.so.cache``: where the loader looks for libraries by name. Bytes to values.
#
# Layout from glibc's ``sysdeps/generic/dl-cache.h`` (``cache_file_new``), which may follow the old format.
_MAGIC = b"glibc-ld.so.cache1.1"
_ENTRY = struct.Struct("<iIIIQ")
_ELF_LIBC6 = 3
_FLAGS_OF_MACHINE = {"x86_64": 0x0300, "aarch64": 0x0A00, "ppc64le": 0x0500, "s390x": 0x0400, "riscv64": 0x1000}
_MOST = 200_000


def cache_entries(data: bytes, machine: str) -> Iterator[tuple[str, str]]:
    """``(name, path)`` of each library for ``machine``, in the file's order; nothing from a file of another format."""
    start = data.find(_MAGIC)
    if start < 0 or len(data) < start + 48:
        return
    count, _strings = struct.unpack_from("<II", data, start + len(_MAGIC))
    wanted = _FLAGS_OF_MACHINE.get(machine)
    for index in range(min(count, _MOST)):
        at = start + 48 + index * _ENTRY.size
        if at + _ENTRY.size > len(data):
            return
        flags, name, path, _, hwcap = _ENTRY.unpack_from(data, at)
        if flags & 0xFF != _ELF_LIBC6 or (wanted is not None and flags & 0xFF00 != wanted):
            continue
        if hwcap >> 32 & 1 << 30:  # for glibc-hwcaps, of processors that need not be this one
            continue
        yield _text(data, start + name), _text(data, start + path)


def _text(data: bytes, at: int) -> str:
    end = data.find(b"\0", at)
    return data[at : end if end >= 0 else at].decode("utf-8", "surrogateescape")
