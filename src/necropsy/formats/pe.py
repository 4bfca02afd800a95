"""A PE image (.exe, .dll, .pyd), in a file or in memory.

Layouts from Microsoft's "PE Format" (learn.microsoft.com/windows/win32/debug/pe-format). An image may have 700 MB and
hundreds of thousands of functions: tables are bisected in place. Images are untrusted: each read is checked against
what is there, each count against a bound.
"""

from __future__ import annotations

import contextlib
import struct
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import cached_property
from mmap import mmap
from typing import Any, BinaryIO, NamedTuple

from necropsy.errors import InputError
from necropsy.formats.minidump_records import CodeView

Read = Callable[[int, int], bytes]
"""Up to so many bytes from an offset on: as many as are there."""

X64, ARM64, X86 = 0x8664, 0xAA64, 0x14C
"""``IMAGE_FILE_MACHINE_*``."""
_DLL = 0x2000
_EXECUTE, _WRITE = 0x20000000, 0x80000000
_EXPORT, _IMPORT, _RESOURCE, _EXCEPTION, _RELOCATION, _DEBUG, _IAT, _DELAY = 0, 1, 2, 3, 5, 6, 12, 13
"""Numbers of the data directories."""

_FILE_HEADER = struct.Struct("<4sHHIIIHH")
_SECTION = struct.Struct("<8sIIII12xI")
_FUNCTION = struct.Struct("<III")
_MOST_SECTIONS = 512
_MOST_EXPORTS = 1 << 20
_MOST_IMPORTS = 4096
_MOST_DEBUG = 64
_LONGEST_NAME = 4096
_AT_ONCE = 1 << 14


class Section(NamedTuple):
    """One section: ``size`` bytes at ``rva`` once it is loaded, the first ``raw_size`` of them from the file."""

    name: str
    rva: int
    size: int
    offset: int
    raw_size: int
    flags: int

    @property
    def executable(self) -> bool:
        """Code lies in it."""
        return bool(self.flags & _EXECUTE)

    @property
    def writable(self) -> bool:
        """The program may change it, so that the file does not tell what it holds."""
        return bool(self.flags & _WRITE)


class PeFunction(NamedTuple):
    """A ``RUNTIME_FUNCTION``: a function's code or a part of it, ``[begin, end)``, and its UNWIND_INFO; all RVAs."""

    begin: int
    end: int
    unwind: int


class Image:
    """One image. Addresses are relative to its base (RVA)."""

    def __init__(self, read: Read, *, mapped: bool) -> None:
        """``mapped``: in memory, offsets for ``read`` are RVAs. Raises InputError where it is no whole PE image."""
        self._read, self.mapped = read, mapped
        (start,) = self._unpack(struct.Struct("<I"), 60) if read(0, 2) == b"MZ" else (None,)
        if start is None:
            raise InputError("not a PE image")
        fields = self._unpack(_FILE_HEADER, start)
        if fields[0] != b"PE\0\0":
            raise InputError("not a PE image")
        _, self.machine, sections, self.timestamp, symbols, symbol_count, optional, flags = fields
        self.is_dll = bool(flags & _DLL)
        self.symbol_table: tuple[int, int] = symbols, symbol_count
        """File offset and number of rows of the COFF symbol table; MinGW writes one, Microsoft's linker does not."""
        at = start + _FILE_HEADER.size
        header = read(at, optional)
        if len(header) < 2 or len(header) < optional:
            raise InputError("the PE header is cut off")
        (magic,) = struct.unpack_from("<H", header)
        if magic not in {0x10B, 0x20B}:
            raise InputError(f"a PE image of an unknown kind ({magic:#x})")
        self.is_64 = magic == 0x20B
        self._optional(header)
        rows = [self._unpack(_SECTION, at + optional + 40 * index) for index in range(min(sections, _MOST_SECTIONS))]
        self.sections = tuple(_section(row) for row in rows)
        """In the order of the file, by which symbols are numbered."""
        self._by_rva = sorted(self.sections, key=lambda one: one.rva)
        self._starts = [one.rva for one in self._by_rva]

    def _optional(self, header: bytes) -> None:
        layout = struct.Struct("<II" if not self.is_64 else "<QQ")
        try:
            self.linker: tuple[int, int] = struct.unpack_from("<BB", header, 2)
            """Its version: Microsoft's has that of the compiler, which begins with 14 since Visual Studio 2015."""
            (self.entry_point,) = struct.unpack_from("<I", header, 16)
            (self.image_base,) = struct.unpack_from("<I" if not self.is_64 else "<Q", header, 24 + 4 * (not self.is_64))
            (self.size_of_image, self.size_of_headers, self.checksum) = struct.unpack_from("<III", header, 56)
            self.stack_reserve, self.stack_commit = layout.unpack_from(header, 72)
            """Bytes for the main thread's stack, and for each thread that is made without a size."""
            (count,) = struct.unpack_from("<I", header, 108 if self.is_64 else 92)
        except struct.error:
            raise InputError("the PE header is cut off") from None
        start = 112 if self.is_64 else 96
        count = min(count, 16, (len(header) - start) // 8)
        self._directories = [struct.unpack_from("<II", header, start + 8 * index) for index in range(count)]

    def _unpack(self, layout: struct.Struct, offset: int) -> tuple[Any, ...]:
        data = self._read(offset, layout.size)
        if len(data) < layout.size:
            raise InputError("the PE header is cut off")
        return layout.unpack(data)

    # -- bytes --------------------------------------------------------------------------------------------------------

    def section_at(self, rva: int) -> Section | None:
        """The section that holds ``rva``."""
        index = bisect_right(self._starts, rva) - 1
        if index < 0:
            return None
        one = self._by_rva[index]
        return one if rva - one.rva < one.size else None

    def some(self, rva: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``rva`` on, as they are when the image is loaded, to the end of its section."""
        if size <= 0 or rva < 0:
            return b""
        if self.mapped:
            return self._read(rva, size)
        one = self.section_at(rva)
        if one is None:
            return self._read(rva, min(size, self.size_of_headers - rva)) if rva < self.size_of_headers else b""
        skipped = rva - one.rva
        size = min(size, one.size - skipped)
        count = min(size, one.raw_size - skipped)
        if count <= 0:
            return b"\0" * size
        data = self._read(one.offset + skipped, count)
        # What the file does not have is zero once it is loaded; but where the file is cut off, it is unknown.
        return data if len(data) < count else data + b"\0" * (size - count)

    def at(self, rva: int, size: int) -> bytes | None:
        """``size`` bytes from ``rva`` on; None where they are not all there."""
        data = self.some(rva, size)
        return data if len(data) == size else None

    def raw(self, offset: int, size: int) -> bytes:
        """Bytes of the file itself, which need not be loaded; of an image in memory none."""
        return b"" if self.mapped or offset < 0 or size <= 0 else self._read(offset, size)

    def text(self, rva: int) -> str | None:
        """The text at ``rva`` up to its NUL; None where none comes in 4096 bytes."""
        data = b""
        for size in (128, _LONGEST_NAME):
            data = self.some(rva, size)
            end = data.find(b"\0")
            if end >= 0:
                return data[:end].decode("utf-8", "replace")
        return None

    def directory(self, number: int) -> tuple[int, int]:
        """RVA and size of a data directory; zeros where the image has none."""
        return self._directories[number] if number < len(self._directories) else (0, 0)

    # -- functions ----------------------------------------------------------------------------------------------------

    def function(self, rva: int) -> PeFunction | None:
        """Exception directory entry at ``rva``; None for a leaf function or data. Raises InputError if unreadable."""
        start, high = self._function_table
        low = 0
        while low < high:
            middle = (low + high) // 2
            data = self._read(start + _FUNCTION.size * middle, _FUNCTION.size)
            if len(data) < _FUNCTION.size:
                raise InputError("the table of functions cannot be read")
            begin, end, unwind = _FUNCTION.unpack(data)
            if rva < begin:
                high = middle
            elif rva >= end:
                low = middle + 1
            else:
                return self._direct(PeFunction(begin, end, unwind))
        return None

    def functions(self) -> Iterator[PeFunction]:
        """All entries of the exception directory, those of parts of functions among them; what cannot be read, not."""
        start, count = self._function_table
        for index in range(0, count, _AT_ONCE):
            data = self._read(start + _FUNCTION.size * index, _FUNCTION.size * min(_AT_ONCE, count - index))
            for row in _FUNCTION.iter_unpack(data[: len(data) // _FUNCTION.size * _FUNCTION.size]):
                with contextlib.suppress(InputError):
                    one = self._direct(PeFunction(*row))
                    if one.begin < one.end:
                        yield one

    @cached_property
    def _function_table(self) -> tuple[int, int]:
        """Where the exception directory is for ``read``, and how many entries it has."""
        table, size = self.directory(_EXCEPTION)
        section = None if self.mapped else self.section_at(table)
        if section is None:
            return table, size // _FUNCTION.size
        skipped = table - section.rva
        return section.offset + skipped, max(min(size, section.raw_size - skipped), 0) // _FUNCTION.size

    def _direct(self, one: PeFunction) -> PeFunction:
        """An entry whose lowest bit is set points to the entry that counts."""
        if not one.unwind & 1:
            return one
        data = self.at(one.unwind & ~1, _FUNCTION.size)
        if data is None:
            raise InputError("the table of functions cannot be read")
        return PeFunction(one.begin, one.end, PeFunction(*_FUNCTION.unpack(data)).unwind & ~1)

    @property
    def has_functions(self) -> bool:
        """There is an exception directory: what it does not cover is a leaf function."""
        return self.directory(_EXCEPTION)[1] >= _FUNCTION.size

    # -- names --------------------------------------------------------------------------------------------------------

    @cached_property
    def _exports(self) -> tuple[array[int], array[int]]:
        """Sorted RVAs of the exported functions, and where each name is."""
        start, size = self.directory(_EXPORT)
        header = self.at(start, 40) if size >= 40 else None
        if header is None:
            return array("Q"), array("Q")
        functions, names, at_functions, at_names, at_ordinals = struct.unpack_from("<5I", header, 20)
        count = min(names, _MOST_EXPORTS)
        rvas = self._numbers(at_functions, min(functions, _MOST_EXPORTS), "I", 4)
        texts = self._numbers(at_names, count, "I", 4)
        ordinals = self._numbers(at_ordinals, count, "H", 2)
        found = sorted(
            (rvas[ordinal], text)
            for text, ordinal in zip(texts, ordinals, strict=False)
            if ordinal < len(rvas) and not start <= rvas[ordinal] < start + size  # within it lies a forwarder's text
        )
        return array("Q", (rva for rva, _ in found)), array("Q", (text for _, text in found))

    def _numbers(self, rva: int, count: int, kind: str, width: int) -> tuple[int, ...]:
        data = self.some(rva, count * width)
        return struct.unpack(f"<{len(data) // width}{kind}", data[: len(data) // width * width])

    def export_in(self, begin: int, end: int, rva: int) -> tuple[int, str] | None:
        """Of what is exported in ``[begin, end)`` the last at or before ``rva``: where it lies, and its name."""
        rvas, names = self._exports
        index = bisect_right(rvas, min(rva, end - 1)) - 1
        if index < 0 or rvas[index] < begin:
            return None
        while index and rvas[index - 1] == rvas[index]:
            index -= 1
        name = self.text(names[index])
        return (rvas[index], name) if name else None

    def exported(self, name: str) -> int | None:
        """Where the export of that name lies; None where there is none of it."""
        rvas, names = self._exports
        wanted = name.encode() + b"\0"
        return next((rva for rva, at in zip(rvas, names, strict=True) if self.some(at, len(wanted)) == wanted), None)

    @cached_property
    def codeview(self) -> CodeView | None:
        """Which PDB was made with it."""
        start, size = self.directory(_DEBUG)
        for index in range(min(size // 28, _MOST_DEBUG)):
            row = self.at(start + 28 * index, 28)
            if row is None:
                return None
            kind, count, rva = struct.unpack_from("<III", row, 12)
            data = self.some(rva, min(count, _LONGEST_NAME)) if kind == 2 else b""
            if data[:4] == b"RSDS" and len(data) >= 24:
                first, second, third = struct.unpack_from("<IHH", data, 4)
                (age,) = struct.unpack_from("<I", data, 20)
                path = data[24:].split(b"\0", 1)[0].decode("utf-8", "replace")
                guid = f"{first:08X}{second:04X}{third:04X}{data[12:20].hex().upper()}"
                return CodeView("RSDS", guid, age, path or None)
        return None

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """The DLLs that are loaded with it."""
        return self._dlls(_IMPORT, 20, 12)

    @cached_property
    def delay_imports(self) -> tuple[str, ...]:
        """The DLLs that are loaded when one of their functions is called first."""
        return self._dlls(_DELAY, 32, 4)

    def _dlls(self, directory: int, row_size: int, name_at: int) -> tuple[str, ...]:
        start, size = self.directory(directory)
        names: list[str] = []
        for index in range(_MOST_IMPORTS if size else 0):
            row = self.at(start + row_size * index, row_size)
            if row is None or not any(row):
                break
            (name,) = struct.unpack_from("<I", row, name_at)
            # Linkers before Visual C++ 7 wrote addresses there, and left the lowest bit of the first word clear.
            is_address = directory == _DELAY and not row[0] & 1
            text = self.text(name - self.image_base if is_address else name)
            if text:
                names.append(text)
        return tuple(dict.fromkeys(names))

    @cached_property
    def file_version(self) -> str | None:
        """The version resource's ``FileVersion`` in four numbers."""
        root, size = self.directory(_RESOURCE)
        entry = self._resource(root, 0, 16) if size else None
        for _ in range(2):  # its first name, its first language
            entry = None if entry is None or not entry >> 31 else self._resource(root, entry & 0x7FFFFFFF, None)
        where = None if entry is None else self.at(root + entry, 8)
        if where is None:
            return None
        rva, count = struct.unpack("<II", where)
        data = self.some(rva, min(count, 1 << 16))
        at = data.find(struct.pack("<I", 0xFEEF04BD))
        if at < 0 or at + 16 > len(data):
            return None
        high, low = struct.unpack_from("<II", data, at + 8)
        return f"{high >> 16}.{high & 0xFFFF}.{low >> 16}.{low & 0xFFFF}"

    def _resource(self, root: int, offset: int, wanted: int | None) -> int | None:
        """What an entry of a resource directory points to: the one with that number, or the first."""
        head = self.at(root + offset, 16)
        if head is None:
            return None
        named, numbered = struct.unpack_from("<HH", head, 12)
        rows = self.some(root + offset + 16, 8 * (named + numbered))
        for number, entry in struct.iter_unpack("<II", rows[: len(rows) // 8 * 8]):
            if wanted is None or number == wanted:
                return int(entry)
        return None


def in_bytes(data: bytes | mmap) -> Image:
    """The image in a file that is in memory, or mapped. Raises InputError where it is not a whole PE image."""
    return Image(lambda offset, size: data[offset : offset + size], mapped=False)


def in_file(file: BinaryIO) -> Image:
    """The image in an open file, read as needed. Raises InputError where it is not a whole PE image."""

    def read(offset: int, size: int) -> bytes:
        try:
            file.seek(offset)
            return file.read(size)
        except (OSError, ValueError):
            return b""

    return Image(read, mapped=False)


def _section(row: tuple[Any, ...]) -> Section:
    name, virtual_size, rva, raw_size, offset, flags = row
    text = name.rstrip(b"\0").decode("utf-8", "replace")
    return Section(text, rva, virtual_size or raw_size, offset, raw_size, flags)
