"""Pages of a process that were ever touched: what a mapping of ten terabytes really holds.

``PAGEMAP_SCAN`` (Linux 6.7, Documentation/admin-guide/mm/pagemap.rst) skips what is empty. Without it
``/proc/PID/pagemap`` is read up to a limit, 8 bytes for each page whether it is there or not. To read an untouched page
instead would make the kernel build page tables, which count as memory of the program.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self

PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT, _SWAPPED = 1 << 63, 1 << 62
_SCAN = 0xC0606610
"""``PAGEMAP_SCAN``: _IOWR('f', 16, struct pm_scan_arg)."""
_ARGUMENT = struct.Struct("<12Q")
"""size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted, _mask, _anyof_mask, return_mask."""
_REGION = struct.Struct("<3Q")
_IS_PRESENT, _IS_SWAPPED = 1 << 3, 1 << 4
_UNKNOWN = frozenset({errno.ENOTTY, errno.EINVAL})
"""What an older kernel answers."""
_REGIONS = 1024
_WINDOW = 1 << 16
"""Pages that are looked at together."""
MOST_LOOKED_AT = 16 << 30
"""Bytes of address space of one range, where each page has to be looked at."""


class TooLargeError(Exception):
    """The kernel is older than Linux 6.7, and there are too many pages to look at each."""


class PageMap:
    """The page map of one process, open: a stack of it is looked at in 2 us."""

    def __init__(self, pid: int) -> None:
        """Raises OSError where the process is gone or not accessible."""
        # Ten times a second: Path takes longer.
        self._handle = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
        self._found = ctypes.create_string_buffer(_REGION.size)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    def lowest(self, low: int, high: int) -> int | None:
        """The first touched page in this range; None where there is none. Raises OSError, TooLargeError."""
        first, last = low // PAGE * PAGE, -(-high // PAGE) * PAGE
        try:
            argument = bytearray(_argument(first, last, self._found, 1))
            found = fcntl.ioctl(self._handle, _SCAN, argument) if first < last else 0
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise
            start = next(self.ranges(low, high), None)
            return None if start is None else start[0]
        return _REGION.unpack(self._found)[0] if found else None

    def ranges(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """As ``ranges`` of the module."""
        first, last = low // PAGE * PAGE, -(-high // PAGE) * PAGE
        try:
            yield from _scanned(self._handle, first, last)
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise
            if last - first > MOST_LOOKED_AT:
                raise TooLargeError(f"{last - first:,} bytes") from None
            yield from _looked_at(self._handle, first, last)


def ranges(pid: int, low: int, high: int) -> Iterator[tuple[int, int]]:
    """``[low, high)`` of the touched pages in this range, ascending; neighbours are joined as far as they are seen.

    Raises OSError where the process is gone or not accessible, and TooLargeError for too large a range.
    """
    with PageMap(pid) as pages:
        yield from pages.ranges(low, high)


def _argument(low: int, high: int, found: ctypes.Array[ctypes.c_char], count: int) -> bytes:
    touched = _IS_PRESENT | _IS_SWAPPED
    return _ARGUMENT.pack(_ARGUMENT.size, 0, low, high, 0, ctypes.addressof(found), count, 0, 0, 0, touched, touched)


def _scanned(handle: int, low: int, high: int) -> Iterator[tuple[int, int]]:
    found = ctypes.create_string_buffer(_REGIONS * _REGION.size)
    while low < high:
        argument = bytearray(_argument(low, high, found, _REGIONS))
        count = fcntl.ioctl(handle, _SCAN, argument)
        for start, end, _ in _REGION.iter_unpack(memoryview(found)[: count * _REGION.size]):
            yield start, end
        walked = _ARGUMENT.unpack(argument)[4]
        if walked <= low:
            return
        low = walked


def _looked_at(handle: int, low: int, high: int) -> Iterator[tuple[int, int]]:
    start: int | None = None
    for page in range(low // PAGE, high // PAGE, _WINDOW):
        data = os.pread(handle, min(_WINDOW, high // PAGE - page) * 8, page * 8)
        if not data.strip(b"\0") and start is None:
            continue
        for at, (entry,) in enumerate(struct.iter_unpack("<Q", data[: len(data) & ~7]), page):
            if entry & (_PRESENT | _SWAPPED):
                start = at * PAGE if start is None else start
            elif start is not None:
                yield start, at * PAGE
                start = None
        if len(data) < 8:
            break
    if start is not None:
        yield start, high
