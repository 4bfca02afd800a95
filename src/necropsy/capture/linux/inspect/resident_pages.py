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

PAGE = os.sysconf("SC_PAGE_SIZE")
_PRESENT, _SWAPPED = 1 << 63, 1 << 62
_SCAN = 0xC0606610
"""``PAGEMAP_SCAN``: _IOWR('f', 16, struct pm_scan_arg)."""
_ARGUMENT = struct.Struct("<12Q")
"""size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted, _mask, _anyof_mask, return_mask."""
_REGION = struct.Struct("<3Q")
_IS_PRESENT, _IS_SWAPPED = 1 << 3, 1 << 4
_REGIONS = 1024
_WINDOW = 1 << 16
"""Pages that are looked at together."""
MOST_LOOKED_AT = 16 << 30
"""Bytes of address space of one range, where each page has to be looked at."""


class TooLargeError(Exception):
    """The kernel is older than Linux 6.7, and there are too many pages to look at each."""


def ranges(pid: int, low: int, high: int) -> Iterator[tuple[int, int]]:
    """``[low, high)`` of the touched pages in this range, ascending; neighbours are joined as far as they are seen.

    Raises OSError where the process is gone or not accessible, and TooLargeError for too large a range.
    """
    first, last = low // PAGE * PAGE, -(-high // PAGE) * PAGE
    # For each thread of a program, ten times a second: Path takes longer.
    handle = os.open(f"/proc/{pid}/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield from _scanned(handle, first, last)
    except OSError as error:
        if error.errno not in {errno.ENOTTY, errno.EINVAL}:
            raise
        if last - first > MOST_LOOKED_AT:
            raise TooLargeError(f"{last - first:,} bytes") from None
        yield from _looked_at(handle, first, last)
    finally:
        os.close(handle)


def _scanned(handle: int, low: int, high: int) -> Iterator[tuple[int, int]]:
    found = ctypes.create_string_buffer(_REGIONS * _REGION.size)
    touched = _IS_PRESENT | _IS_SWAPPED
    while low < high:
        argument = bytearray(
            _ARGUMENT.pack(
                _ARGUMENT.size, 0, low, high, 0, ctypes.addressof(found), _REGIONS, 0, 0, 0, touched, touched
            )
        )
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
