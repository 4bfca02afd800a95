"""ELF files on disk, read piece by piece: a library of a gigabyte is not mapped, for there may be a limit."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from necropsy.errors import InputError, NoInputError
from necropsy.formats.elf import ElfFile
from necropsy.formats.elf_dynamic import end_of_segments

_WINDOW = 1 << 16


class _File:
    """Bytes of an open file, with a cached window for small reads."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._size = os.fstat(handle).st_size
        self._windows: dict[int, bytes] = {}

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        start, stop, _ = part.indices(self._size)
        first = start // _WINDOW
        if stop <= start:
            return b""
        if (stop - 1) // _WINDOW != first:
            return self._read(stop - start, start)
        if first not in self._windows:
            self._windows[first] = self._read(_WINDOW, first * _WINDOW)
        return self._windows[first][start - first * _WINDOW : stop - first * _WINDOW]

    def _read(self, size: int, start: int) -> bytes:
        # Windows has no pread. A read gives less than was asked for at the end of the file, and from 2 GiB on.
        os.lseek(self._handle, start, os.SEEK_SET)
        return os.read(self._handle, size)

    def find(self, wanted: bytes, start: int, end: int) -> int:
        step, keep = 1 << 20, max(len(wanted) - 1, 0)
        for at in range(start, end, step):
            found = self._read(min(step + keep, end - at), at).find(wanted)
            if found >= 0:
                return at + found
        return -1


@contextmanager
def opened(path: str) -> Iterator[ElfFile]:
    """The ELF file at ``path``; raises ``InputError`` if it is not one or damaged, ``OSError`` if it is unreadable."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        yield ElfFile(_File(handle))
    except struct.error as error:
        raise InputError(str(error)) from None
    finally:
        os.close(handle)


def check(path: str) -> None:
    """Raise ``NoInputError`` if ``path`` is missing or unreadable, ``InputError`` if it is not a library."""
    try:
        if not os.path.isfile(path):
            raise NoInputError(f"there is no file {path}")
        with opened(path):
            pass
    except InputError as error:
        raise InputError(f"{path} is not a library: {error}") from None
    except (OSError, ValueError) as error:
        raise NoInputError(f"cannot read {path}: {error}") from None


def is_cut(path: str) -> bool:
    """It is an ELF file that ends before the segments that it is loaded from; or it is empty."""
    try:
        with open(path, "rb") as file:
            head = file.read(4)
        if head != b"\x7fELF":
            return not head
        with opened(path) as elf:
            return end_of_segments(elf) > os.stat(path).st_size
    except InputError:
        return True
    except OSError:
        return False
