"""Segments, build ID and dynamic symbols of an ELF file (64-bit, little-endian).

Layouts from the System V gABI (chapters 4 and 5) and the Linux Standard Base (``DT_GNU_HASH``).
Files are untrusted: each read is checked against the data, each count against what can be there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from mmap import mmap
from typing import Any, Protocol

from necropsy.errors import InputError

PT_LOAD, PT_DYNAMIC, PT_INTERP, PT_NOTE, PT_GNU_EH_FRAME = 1, 2, 3, 4, 0x6474E550
_DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SONAME, _DT_GNU_HASH = 1, 5, 6, 10, 14, 0x6FFFFEF5
_NT_GNU_BUILD_ID = 3
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_MAX_SEGMENTS = 512
_MAX_DYNAMIC = 4096
_MAX_NOTES = 64


class FileBytes(Protocol):
    """A file that is read piece by piece, where it is too large to be mapped."""

    def __len__(self) -> int:
        """Its size in bytes."""

    def __getitem__(self, part: slice, /) -> bytes:
        """The bytes of one part."""

    def find(self, wanted: bytes, start: int, end: int, /) -> int:
        """Where ``wanted`` first stands, or -1."""


@dataclass(frozen=True)
class Segment:
    """One program header; sizes and addresses in bytes."""

    type: int
    flags: int
    offset: int
    address: int
    file_size: int
    memory_size: int


@dataclass(frozen=True)
class Symbol:
    """A dynamic symbol: its address in the file's own address space and its size in bytes."""

    name: str
    address: int
    size: int


class ElfFile:
    """An ELF file in memory; all addresses are those of the file (add the load bias for a process)."""

    def __init__(self, data: bytes | memoryview | mmap | FileBytes) -> None:
        """Read the headers. Raises InputError where this is not 64-bit little-endian ELF, or they are damaged."""
        self._data = data
        self._size = len(data)
        fields = self._unpack(_HEADER, 0)
        ident: bytes = fields[0]
        if ident[:4] != b"\x7fELF":
            raise InputError("not an ELF file")
        if ident[4:6] != b"\x02\x01":
            raise InputError("not a 64-bit little-endian ELF file")
        self.type: int = fields[1]
        self.machine: int = fields[2]
        offset, entry_size, count = fields[5], fields[9], fields[10]
        if count and entry_size < _PROGRAM_HEADER.size:
            raise InputError("program headers are too small")
        self.segments = tuple(self._read_segments(offset, entry_size, min(count, _MAX_SEGMENTS)))
        self._sections: tuple[int, int, int] = (fields[6], fields[11], fields[12])
        self._dynamic: dict[int, int] | None = None
        self._needed: tuple[int, ...] = ()

    def bytes_at(self, offset: int, size: int) -> bytes:
        """``size`` bytes of the file. Raises InputError where it has fewer."""
        return self._bytes(offset, size)

    def find(self, wanted: bytes, offset: int, size: int) -> int:
        """Where ``wanted`` first occurs in the ``size`` bytes from ``offset`` on, or -1. Copies nothing."""
        if isinstance(self._data, memoryview):
            found = self.bytes_at(offset, size).find(wanted)
            return found if found < 0 else found + offset
        if offset < 0 or size < 0 or offset + size > self._size:
            return -1
        return self._data.find(wanted, offset, offset + size)

    def text_at(self, offset: int, limit: int) -> str:
        """The text at ``offset`` up to its NUL, ``limit`` bytes at the most. Raises InputError behind the end."""
        data = self._bytes(offset, min(limit, self._size - offset))
        return data.split(b"\0", 1)[0].decode("utf-8", "replace")

    def sections(self, most: int) -> bytes:
        """The section headers, 64 bytes each. Raises InputError where they lie outside of the file."""
        offset, size, count = self._sections
        return self._bytes(offset, min(count, most) * size) if size == 64 else b""

    def tag(self, number: int) -> int:
        """The value of the first tag of this number in the dynamic section; -1 where there is none."""
        try:
            return self._tags().get(number, -1)
        except InputError:
            return -1

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset < 0 or size < 0 or offset + size > self._size:
            raise InputError(f"ELF file ends before {offset + size:#x}")
        return bytes(self._data[offset : offset + size])

    def _unpack(self, layout: struct.Struct, offset: int) -> tuple[Any, ...]:
        return layout.unpack(self._bytes(offset, layout.size))

    def _read_segments(self, offset: int, entry_size: int, count: int) -> Iterator[Segment]:
        if not count:
            return
        data = self._bytes(offset, (count - 1) * entry_size + _PROGRAM_HEADER.size)
        for at in range(0, count * entry_size, entry_size):
            kind, flags, start, address, _, file_size, memory_size, _ = _PROGRAM_HEADER.unpack_from(data, at)
            yield Segment(kind, flags, start, address, file_size, memory_size)

    def offset_of(self, address: int) -> int | None:
        """Where in the file the byte at ``address`` lies; None where no segment loads it from the file."""
        for segment in self.segments:
            if segment.type == PT_LOAD and segment.address <= address < segment.address + segment.file_size:
                return address - segment.address + segment.offset
        return None

    def address_of(self, offset: int) -> int | None:
        """The address at which the byte at ``offset`` of the file is loaded."""
        for segment in self.segments:
            if segment.type == PT_LOAD and segment.offset <= offset < segment.offset + segment.file_size:
                return offset - segment.offset + segment.address
        return None

    def bias(self, low: int, offset: int) -> int | None:
        """What to add to the file's addresses, from one mapping: its first address and its offset into the file."""
        for segment in self.segments:
            start = segment.offset & ~0xFFF
            if segment.type == PT_LOAD and start <= offset < segment.offset + segment.file_size:
                return low - ((segment.address & ~0xFFF) + offset - start)
        return None

    def build_id(self) -> str | None:
        """The GNU build ID in hex; None where there is none or the notes are broken."""
        for segment in self.segments:
            if segment.type == PT_NOTE:
                try:
                    found = self._build_id_in(segment)
                except InputError:
                    continue
                if found:
                    return found
        return None

    def _build_id_in(self, segment: Segment) -> str | None:
        at, end = segment.offset, segment.offset + segment.file_size
        for _ in range(_MAX_NOTES):
            if at + 12 > end:
                return None
            name_size, size, kind = struct.unpack("<III", self._bytes(at, 12))
            name_at, at = at + 12, at + 12 + (name_size + 3 & ~3)
            if at + size > end:
                return None
            if kind == _NT_GNU_BUILD_ID and name_size == 4 and self._bytes(name_at, 4) == b"GNU\0":
                return self._bytes(at, size).hex() if 0 < size <= 64 else None
            at += size + 3 & ~3
        return None

    def _tags(self) -> dict[int, int]:
        if self._dynamic is None:
            tags: dict[int, int] = {}
            needed: list[int] = []
            for tag, value in self._dynamic_entries():
                if tag == _DT_NEEDED:
                    needed.append(value)
                tags.setdefault(tag, value)
            self._dynamic, self._needed = tags, tuple(needed)
        return self._dynamic

    def _dynamic_entries(self) -> Iterator[tuple[int, int]]:
        for segment in self.segments:
            if segment.type != PT_DYNAMIC:
                continue
            wanted = min(segment.file_size // 16, _MAX_DYNAMIC) * 16
            there = max(min(wanted, self._size - segment.offset), 0) & ~15 if segment.offset >= 0 else 0
            for tag, value in struct.iter_unpack("<qQ", self._bytes(segment.offset, there)):
                if tag == 0:
                    return
                yield tag, value
            if there < wanted:
                raise InputError(f"ELF file ends before {segment.offset + wanted:#x}")

    def _name(self, index: int, limit: int = 1 << 14) -> str | None:
        table = self.offset_of(self._tags().get(_DT_STRTAB, -1))
        if table is None or index >= self._tags().get(_DT_STRSZ, 0):
            return None
        start = table + index
        data = bytes(self._data[start : min(start + limit, self._size)])
        end = data.find(b"\0")
        return None if end < 0 else data[:end].decode("utf-8", "replace")

    def soname(self) -> str | None:
        """The library's own name (``DT_SONAME``)."""
        index = self._tags().get(_DT_SONAME)
        return None if index is None else self._name(index)

    def dynamic_text(self, number: int) -> str | None:
        """The text that the first tag of this number represents, such as ``DT_RUNPATH``."""
        index = self._tags().get(number)
        # The RUNPATH of TensorFlow for CUDA has 21 kB.
        return None if index is None else self._name(index, limit=1 << 18)

    def string(self, index: int) -> str | None:
        """The text at ``index`` of the dynamic string table."""
        return self._name(index)

    def needed(self) -> tuple[str, ...]:
        """The libraries that it asks for (``DT_NEEDED``), in order."""
        self._tags()
        return tuple(name for index in self._needed if (name := self._name(index)) is not None)

    def symbol(self, name: str) -> Symbol | None:
        """The defined dynamic symbol of this name, by ``DT_GNU_HASH``. Raises InputError for damaged tables."""
        table = self.offset_of(self._tags().get(_DT_GNU_HASH, -1))
        symbols = self.offset_of(self._tags().get(_DT_SYMTAB, -1))
        if table is None or symbols is None:
            return None
        buckets, first, bloom_size, _shift = struct.unpack("<IIII", self._bytes(table, 16))
        if buckets == 0:
            return None
        wanted = gnu_hash(name)
        bucket_at = table + 16 + bloom_size * 8
        (index,) = struct.unpack("<I", self._bytes(bucket_at + wanted % buckets * 4, 4))
        chain = bucket_at + buckets * 4
        while index >= first:
            (value,) = struct.unpack("<I", self._bytes(chain + (index - first) * 4, 4))
            if value | 1 == wanted | 1:
                found = self._symbol(symbols, index)
                if found is not None and found.name == name:
                    return found
            if value & 1:
                return None
            index += 1
        return None

    def _symbol(self, table: int, index: int) -> Symbol | None:
        name, _info, _other, section, address, size = self._unpack(_SYMBOL, table + index * _SYMBOL.size)
        text = self._name(name)
        return None if text is None or section == 0 else Symbol(text, address, size)


def gnu_hash(name: str) -> int:
    """The hash of ``DT_GNU_HASH``: Bernstein's, 32 bits."""
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value
