"""The page faults of a command and all that comes of it, by thread: how deep stacks got that are gone by now.

The kernel writes the address of each page fault into a ring (perf_event_open(2), ``PERF_COUNT_SW_PAGE_FAULTS``), one
for each processor, and the names of threads as they change. Nobody is stopped. Faults that the kernel takes itself are
left out: the call into it has touched the page below. It needs no capability where ``kernel.perf_event_paranoid`` is 2
or less and no seccomp filter forbids the call.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from necropsy.capture.linux.supervise import hardware_breakpoint, ptrace

_SOFTWARE, _PAGE_FAULTS, _NOTHING = 1, 2, 9
"""PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS, PERF_COUNT_SW_DUMMY."""
_SIZE = 128
"""``PERF_ATTR_SIZE_VER7``."""
_TID_AND_ADDRESS = 1 << 1 | 1 << 3
"""PERF_SAMPLE_TID, PERF_SAMPLE_ADDR."""
_FLAGS, _NAMES = 1 << 1 | 1 << 5 | 1 << 6, 1 << 9 | 1 << 13
"""``inherit``, ``exclude_kernel``, ``exclude_hv``; ``comm`` and ``task``."""
_CLOSE_ON_EXEC = 8
_HEAD, _TAIL = 1024, 1032
"""``data_head`` and ``data_tail`` in ``struct perf_event_mmap_page``."""
_HEADER = struct.Struct("<IHH")
_NAMED, _STARTED, _FAULT = 3, 7, 9
"""PERF_RECORD_COMM, _FORK, _SAMPLE."""
_FAULT_RECORD, _STARTED_RECORD = struct.Struct("<I4x4xIQ"), struct.Struct("<8x4I")
"""A fault: the kind of record, the thread, the address. PERF_RECORD_LOST is as long."""
_LONGEST = 64
"""Bytes: no record is longer."""
_PROCESSORS = ("x86_64", "aarch64")
_MOST_PROCESSORS = 32
"""A new thread gets an event for each."""
_ROOM, _ROOM_OF_A_USER, _ROOM_FOR_NAMES = 8 << 20, 256 << 10, 64 << 10
"""Bytes of all rings together, and of one where locked memory counts: half of what ``perf_event_mlock_kb`` allows."""
_MOST_LOOSE = 4096
"""Addresses of one thread whose stack is not known yet."""
_ONLINE = Path("/sys/devices/system/cpu/online")
_HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_NO_HUGE_STACKS = (6, 7)
"""From there on MAP_STACK keeps huge pages away, of which only the first touch is a fault."""
_ONLINE_S = 1.0
_LIBC = ctypes.CDLL(None, use_errno=True)
_FENCE = threading.Lock()
_FENCE.acquire()


@dataclass
class _Range:
    """What a thread's stack may cover, and the lowest address of it that was touched since it is watched."""

    low: int
    high: int
    lowest: int


class PageFaults:
    """Those of a process that is about to begin, and of its descendants. All is for the thread that made it."""

    def __init__(self, pid: int) -> None:
        """Raises OSError where the kernel permits it not, or where it would not be complete or cost too much."""
        processors = _numbers(_ONLINE.read_text(encoding="ascii"))
        if platform.machine() not in _PROCESSORS:
            raise OSError("not tried on this processor")
        if len(processors) > _MOST_PROCESSORS:
            raise OSError(f"{len(processors)} processors")
        if _has_huge_pages() and hardware_breakpoint.release() < _NO_HUGE_STACKS:
            raise OSError("stacks may be of huge pages")
        self._online, self._online_next = processors, 0.0
        self._handles: list[int] = []
        self._rings: list[mmap.mmap] = []
        self._rings_of_names: list[mmap.mmap] = []
        self._ranges: dict[int, _Range] = {}
        self._loose: dict[int, list[int]] = {}
        """What threads touched before their stacks were known."""
        self._names: dict[int, str | int] = {}
        self._moved: set[int] = set()
        self._full: set[int] = set()
        """Rings that were full, and have not said yet how much they lost."""
        try:
            for event, flags in ((_PAGE_FAULTS, _FLAGS), (_NOTHING, _FLAGS | _NAMES)):
                for processor in processors:
                    self._handles.append(_opened(pid, processor, event, flags))
            self._rings += _mapped(self._handles[: len(processors)], _ROOM // len(processors))
            self._rings_of_names += _mapped(self._handles[len(processors) :], _ROOM_FOR_NAMES)
        except OSError:
            self.close()
            raise

    @property
    def rings(self) -> Sequence[mmap.mmap]:
        """Those of the faults."""
        return self._rings

    def read(self) -> bool:
        """Take in what has happened since; False where some of it was lost."""
        complete = self._all_are_watched()
        started: list[tuple[int, int]] = []
        named: dict[int, set[str]] = {}
        ranges = self._ranges
        for ring in self._rings_of_names:
            for kind, data, at in _records(_taken(ring)):
                if kind == _STARTED:
                    pid, _, tid, by = _STARTED_RECORD.unpack_from(data, at)
                    started += [(tid, by)] if tid != pid else ()
                elif kind == _NAMED:
                    tid, name = _named(data, at)
                    named.setdefault(tid, set()).add(name)
        self._note_names(started, named)
        for number, ring in enumerate(self._rings):
            data = _taken(ring)
            # How much was lost is written down when there is room again, and something else to write.
            owes = number in self._full
            is_full = len(data) > len(ring) - mmap.PAGESIZE - _LONGEST
            whole = len(data) - len(data) % _FAULT_RECORD.size
            complete = complete and not is_full and whole == len(data)
            for kind, tid, address in _FAULT_RECORD.iter_unpack(data[:whole]):
                known = ranges.get(tid)
                if known is not None and not known.low <= address < known.lowest:
                    continue
                if kind == _FAULT:
                    self._touched(tid, address)
                elif owes:
                    owes = False
                else:
                    complete = False
            (self._full.add if is_full or owes else self._full.discard)(number)
        return complete

    def _note_names(self, started: list[tuple[int, int]], named: dict[int, set[str]]) -> None:
        """The rings have no order among themselves: what depends on it is left unknown."""
        for tid, by in started:
            self._names.pop(tid, None)
            if by not in named:
                self._names[tid] = self._names.get(by, by)
        for tid, names in named.items():
            self._names.pop(tid, None)
            if len(names) == 1:
                self._names[tid] = names.pop()

    def _touched(self, tid: int, address: int) -> None:
        known = self._ranges.get(tid)
        if known is not None:
            known.lowest = address
            self._moved.add(tid)
            return
        loose = self._loose.setdefault(tid, [])
        if len(loose) < _MOST_LOOSE:
            loose.append(address)

    def watch(self, tid: int, low: int, high: int) -> bool:
        """The thread's stack is ``[low, high)``; False where not all that it has touched of it is known."""
        loose = self._loose.pop(tid, [])
        touched = min((one for one in loose if low <= one < high), default=high)
        self._ranges[tid] = _Range(low, high, touched)
        if touched < high:
            self._moved.add(tid)
        return len(loose) < _MOST_LOOSE

    def lowest(self, tid: int) -> int | None:
        """The lowest address that the thread was seen to touch of its stack; None where none was."""
        known = self._ranges.get(tid)
        return known.lowest if known is not None and known.lowest < known.high else None

    def moved(self) -> set[int]:
        """The threads whose lowest address is another one than at the last call."""
        moved, self._moved = self._moved, set()
        return moved

    def name(self, tid: int) -> str | int | None:
        """The thread's name, or the thread whose name it has as long as it has none of its own; None: not known."""
        return self._names.get(tid)

    def forget(self, tid: int) -> None:
        """The thread has ended."""
        for table in (self._ranges, self._loose, self._names):
            table.pop(tid, None)

    def close(self) -> None:
        """Watch no more."""
        for ring in (*self._rings, *self._rings_of_names):
            ring.close()
        for handle in self._handles:
            os.close(handle)
        self._rings, self._rings_of_names, self._handles = [], [], []

    def _all_are_watched(self) -> bool:
        """No processor was added meanwhile."""
        now = time.monotonic()
        if now < self._online_next:
            return True
        self._online_next = now + _ONLINE_S
        with contextlib.suppress(OSError, ValueError):
            online = _numbers(_ONLINE.read_text(encoding="ascii"))
            new, self._online = set(online) - set(self._online), online
            return not new
        return False


def _has_huge_pages() -> bool:
    """All memory may get them. A kernel that was built without them has no such file."""
    try:
        return "[always]" in _HUGE_PAGES.read_text(encoding="ascii")
    except FileNotFoundError:
        return False


def _opened(pid: int, processor: int, event: int, flags: int) -> int:
    attributes = bytearray(_SIZE)
    struct.pack_into("<IIQQQ", attributes, 0, _SOFTWARE, _SIZE, event, 1, _TID_AND_ADDRESS)
    struct.pack_into("<Q", attributes, 40, flags)
    structure = (ctypes.c_char * _SIZE).from_buffer(attributes)
    handle = int(_LIBC.syscall(ptrace.HERE.calls["perf_event_open"], structure, pid, processor, -1, _CLOSE_ON_EXEC))
    if handle < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return handle


def _mapped(handles: list[int], most: int) -> list[mmap.mmap]:
    """A ring for each. Raises OSError, also where a user may lock no more memory."""
    most = min(most, 2 << 20)
    sizes = [1 << size.bit_length() - 1 for size in (most, min(most, _ROOM_OF_A_USER), 32 << 10)]
    for size in sizes:
        rings: list[mmap.mmap] = []
        try:
            rings.extend(mmap.mmap(handle, mmap.PAGESIZE + size, mmap.MAP_SHARED) for handle in handles)
        except OSError:
            for ring in rings:
                ring.close()
            if size == sizes[-1]:
                raise
        else:
            return rings
    raise OSError("no room")


def _taken(ring: mmap.mmap) -> bytes:
    """What has come since."""
    head, tail = struct.unpack_from("<QQ", ring, _HEAD)
    _fence()
    size = len(ring) - mmap.PAGESIZE
    first = mmap.PAGESIZE + tail % size
    data = ring[first : min(first + head - tail, len(ring))]
    data += ring[mmap.PAGESIZE : mmap.PAGESIZE + head - tail - len(data)]
    _fence()
    struct.pack_into("<Q", ring, _TAIL, head)
    return data


def _fence() -> None:
    """Let no access to memory behind it overtake one before it (``struct perf_event_mmap_page`` asks for that).

    AArch64 orders what comes before a release before what comes behind an acquire that follows it, and these are both.
    """
    _FENCE.release()
    _FENCE.acquire()


def _records(data: bytes) -> Iterator[tuple[int, bytes, int]]:
    """The kind of each record, and where it begins."""
    at = 0
    while at + _HEADER.size <= len(data):
        kind, _, length = _HEADER.unpack_from(data, at)
        if length < _HEADER.size or at + length > len(data):
            return
        yield kind, data, at
        at += length


def _named(data: bytes, at: int) -> tuple[int, str]:
    size = _HEADER.unpack_from(data, at)[2]
    name = data[at + 16 : at + size].partition(b"\0")[0]
    return int.from_bytes(data[at + 12 : at + 16], "little"), name.decode(errors="replace")


def _numbers(text: str) -> list[int]:
    """``0-3,8`` as numbers."""
    found: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
