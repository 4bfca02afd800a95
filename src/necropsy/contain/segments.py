"""Large buffers go through shared memory: unnamed files, which the receiver maps and the sender uses again.

A segment is handed over: from then on its memory is the receiver's alone, who may write to it. The first byte says
whether it is in use; the receiver clears it when the last array on it has died. No message is needed for that.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import weakref
from collections.abc import Sequence
from typing import NamedTuple

AVAILABLE = hasattr(os, "memfd_create")
_DATA = mmap.PAGESIZE
"""The first page has the byte, the rest the buffers."""
_ALIGNED = 64
_KEPT = 8
_KEPT_BYTES = 1 << 29
"""How many segments, and how many bytes of them, are kept for reuse."""
_FREE, _USED = b"\0", b"\1"
_MAP_FIXED = 0x10

Span = tuple[int, int]
"""Where a buffer begins in its segment, and where it ends."""


class _Segment:
    def __init__(self, ident: int) -> None:
        self.ident, self.size = ident, 0
        self.handle = os.memfd_create("necropsy-segment", os.MFD_CLOEXEC)

    @property
    def is_free(self) -> bool:
        return os.pread(self.handle, 1, 0) != _USED


class Placed(NamedTuple):
    """Buffers in a segment. ``dropped``: segments that the sender has given up since the last time."""

    ident: int
    handle: int
    spans: tuple[Span, ...]
    dropped: tuple[int, ...]


class Arena:
    """The sender's segments."""

    def __init__(self) -> None:
        self._segments: list[_Segment] = []
        self._made = 0
        self._dropped: list[int] = []

    def place(self, buffers: Sequence[memoryview]) -> Placed:
        """Copy the buffers into a segment that nobody uses.

        Raises OSError where there is no memory or descriptor for it.
        """
        spans: list[Span] = []
        end = _DATA
        for buffer in buffers:
            begin = -(-end // _ALIGNED) * _ALIGNED
            end = begin + buffer.nbytes
            spans.append((begin, end))
        segment = self._take(end)
        try:
            # Written, not mapped and copied: a new page then costs no page fault, and other threads run meanwhile.
            for buffer, (begin, _) in zip(buffers, spans, strict=True):
                _write(segment.handle, buffer, begin)
            os.pwrite(segment.handle, _USED, 0)
        except OSError:
            self._drop(segment)
            raise
        segment.size = max(segment.size, end)
        dropped, self._dropped = tuple(self._dropped), []
        return Placed(segment.ident, segment.handle, tuple(spans), dropped)

    def trim(self) -> None:
        """After sending: give up what is too much, first what is in use; the receiver keeps it as long as it needs."""
        while len(self._segments) > _KEPT or sum(one.size for one in self._segments) > _KEPT_BYTES:
            self._drop(min(self._segments, key=lambda one: (one.is_free, one.size)))

    def close(self) -> None:
        """Give up all segments; the receiver keeps what it has mapped."""
        for segment in self._segments:
            os.close(segment.handle)
        self._segments = []

    def _take(self, size: int) -> _Segment:
        free = [one for one in self._segments if one.is_free]
        fitting = [one for one in free if one.size >= size]
        chosen = (
            min(fitting, key=lambda one: one.size) if fitting else max(free, key=lambda one: one.size, default=None)
        )
        if chosen is None:
            self._made += 1
            chosen = _Segment(self._made)
            self._segments.append(chosen)
        return chosen

    def _drop(self, segment: _Segment) -> None:
        self._segments.remove(segment)
        self._dropped.append(segment.ident)
        os.close(segment.handle)


def _write(handle: int, data: memoryview, place: int) -> None:
    while data:
        count = os.pwrite(handle, data, place)
        data, place = data[count:], place + count


class _Mapping:
    """A segment in the receiver's memory."""

    def __init__(self, handle: int) -> None:
        """``handle``: becomes the mapping's own."""
        self.handle = handle
        try:
            self.memory = mmap.mmap(handle, os.fstat(handle).st_size)
        except BaseException:
            os.close(handle)
            raise

    def lease(self, spans: Sequence[Span]) -> list[memoryview]:
        """The buffers. When the last reference to any of them is gone, the sender may use the segment again."""
        import ctypes

        owner = (ctypes.c_char * len(self.memory)).from_buffer(self.memory)
        weakref.finalize(owner, _give_back, self).atexit = False
        _LEASED.add(self)
        whole = memoryview(owner).cast("B")
        return [whole[begin:end] for begin, end in spans]

    def make_private(self) -> None:
        """Before this process forks: parent and child then have the contents, and each its own changes."""
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (
            *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int),
            ctypes.c_long,
        )
        begin = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        flags = mmap.MAP_PRIVATE | _MAP_FIXED
        libc.mmap(begin, len(self.memory), mmap.PROT_READ | mmap.PROT_WRITE, flags, self.handle, 0)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.handle)


_LEASED: weakref.WeakSet[_Mapping] = weakref.WeakSet()
"""Those with arrays on them."""


def _give_back(mapping: _Mapping) -> None:
    # Where it was made private, this is seen by nobody: the file is never changed again.
    mapping.memory[:1] = _FREE
    _LEASED.discard(mapping)


class Mapped:
    """The receiver's side of an ``Arena``."""

    def __init__(self) -> None:
        self._mappings: dict[int, _Mapping] = {}

    def buffers(self, placed: Placed) -> list[memoryview]:
        """The buffers, writeable; ``placed.handle`` becomes ours. Raises OSError where the segment cannot be mapped."""
        for ident in placed.dropped:
            self._mappings.pop(ident, None)
        mapping = self._mappings.get(placed.ident)
        if mapping is not None and len(mapping.memory) >= placed.spans[-1][1]:
            os.close(placed.handle)
        else:
            mapping = self._mappings[placed.ident] = _Mapping(placed.handle)
        return mapping.lease(placed.spans)


def _before_fork() -> None:
    for mapping in list(_LEASED):
        mapping.make_private()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)
