"""Libraries whose unwind tables are labelled in a way that drgn does not read.

The x86-64 psABI gives ``.eh_frame`` the section type SHT_X86_64_UNWIND, and lld and gold write that (PyTorch's
libraries have it); GNU ld writes SHT_PROGBITS. drgn 0.3 takes the latter only, and finds no caller in such a library.
What it is given instead is a copy with the other label: sparse, for code and data it reads from the process.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator

from necropsy.errors import InputError
from necropsy.formats.elf import ElfFile

_SECTION = struct.Struct("<IIQQQQIIQQ")
_HEADERS_AT = 40
"""Offset of ``e_shoff`` in the ELF header."""
_PROGBITS, _SYMTAB, _STRTAB, _DYNAMIC, _NOTE, _NOBITS, _DYNSYM = 1, 2, 3, 6, 7, 8, 11
_UNWIND = 0x70000001
_READ = {_SYMTAB, _STRTAB, _DYNAMIC, _NOTE, _DYNSYM, _UNWIND}
_ALLOC = 2
_MOST_SECTIONS = 4096
_FIRST_PAGE = 4096
_LARGEST_COPY = 512 << 20
"""Bytes of memory that the copy may take; debug information beyond it is left out."""


def labelled_for_drgn(elf: ElfFile | None, path: str) -> int | None:
    """A descriptor of a copy of ``path`` in memory that drgn can unwind with; None where the file itself will do."""
    if elf is None:
        return None
    try:
        rows = list(_SECTION.iter_unpack(elf.sections(_MOST_SECTIONS)))
        if not any(row[1] == _UNWIND for row in rows):
            return None
        with open(path, "rb") as file:  # noqa: PTH123 - only its descriptor is wanted
            return _copy(file.fileno(), elf, rows)
    except (OSError, InputError, struct.error):
        return None


def _copy(source: int, elf: ElfFile, rows: list[tuple[int, ...]]) -> int:
    copy = os.memfd_create("unwind-tables")
    try:
        size = os.fstat(source).st_size
        os.truncate(copy, size)
        for start, count in ((0, min(_FIRST_PAGE, size)), *_parts(rows)):
            os.lseek(copy, start, os.SEEK_SET)
            while count > 0 and (sent := os.sendfile(copy, source, start, count)) > 0:
                start, count = start + sent, count - sent  # noqa: PLW2901 - what is left of it
        headers = b"".join(_SECTION.pack(row[0], _PROGBITS if row[1] == _UNWIND else row[1], *row[2:]) for row in rows)
        os.pwrite(copy, headers, struct.unpack("<Q", elf.bytes_at(_HEADERS_AT, 8))[0])
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(copy)
        raise
    return copy


def _parts(rows: list[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    """``(offset, size)`` of the sections that are read: tables and symbols first, then debug information."""
    left = _LARGEST_COPY
    for wanted in (True, False):
        for _name, kind, flags, _address, offset, size, *_rest in rows:
            if kind == _NOBITS or (kind in _READ) is not wanted or (not wanted and flags & _ALLOC) or size > left:
                continue
            left -= size
            yield offset, size
