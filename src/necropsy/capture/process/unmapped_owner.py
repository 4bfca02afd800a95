"""The former owner of an unmapped address. The kernel forgets it; the program's own memory does not.

The owner of a mapping kept its address and size in a record. After the release that record is a freed block, mostly
unchanged: glibc's ``struct link_map`` of a library, and CPython's ``mmap`` object. Blocks of malloc that had a mapping
of their own begin 16 bytes behind a page, and malloc counts how much of them it has returned to the system
(``struct malloc_par``).

CPython 3.8 to 3.13 and glibc 2.26 and later on x86-64 (``include/link.h``, ``malloc/malloc.c``,
``Modules/mmapmodule.c``).
"""

from __future__ import annotations

import re
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from necropsy.capture.process.memory import Mapped, Mappings, Memory
from necropsy.model import Address, Former

LONGEST_S = 0.4
_MOST_SEARCHED, _LARGEST_PIECE = 192 << 20, 64 << 20
"""Bytes of the program's own memory that are searched, the smaller mappings first."""
_PAGE = 4096
_NEAR_BITS = 24
_FARTHEST = 64
"""How many spans of 16 MiB below the address a mapping may begin."""
_LARGEST_LIBRARY = 4 << 30
_RECORD = 0x600
"""Bytes of a ``link_map``, at most. Its range follows its tables of tags and of versions."""
_REAL, _LIBRARY_NAME = 0x28, 0x38
"""Of a ``link_map``: ``l_real``, which points to itself, and ``l_libname``."""
_NAME_POINTER = 24
"""Bytes of a ``struct libname_list``, which begins with a pointer to the text behind it."""
_CHUNK = 16
_TOP_PAD, _MOST_MAPPINGS = 131_072, 65_536
"""What ``M_TOP_PAD`` and ``M_MMAP_MAX`` are unless they are set."""
_COUNTS = struct.Struct("<QQQ")
_DYNAMIC = 2
"""The trim threshold is twice the mmap threshold once that follows the blocks that are freed."""


@dataclass(frozen=True)
class Candidate:
    """A value that leads to the address: ``holder`` says where it is (``rax``, ``the array `b```)."""

    value: int
    holder: str

    @property
    def is_variable(self) -> bool:
        """It is told by the user's own name."""
        return "`" in self.holder


@dataclass(frozen=True)
class Place:
    """Where to look: the memory of the process, its mappings, and the address that is not mapped."""

    memory: Memory
    maps: Mappings
    address: int


def of(
    place: Place, candidates: Sequence[Candidate], c_library: Iterable[Mapped], known: Loader | None
) -> Former | None:
    """What the address belonged to; None where nothing in memory says so. ``c_library``: its mappings."""
    return _recorded(place, known) or _block(place, candidates, c_library)


# ---------------------------------------------------------------- records of mappings


def _recorded(place: Place, known: Loader | None) -> Former | None:
    memory, maps, address = place.memory, place.maps, place.address
    until = time.monotonic() + LONGEST_S
    pattern = _near(address)
    for piece in _own_memory(maps):
        data = memory.some(piece.low, piece.high - piece.low)
        for match in pattern.finditer(data):
            at = match.start()
            if (piece.low + at) % 8 or at + 16 > len(data):
                continue
            low, other = struct.unpack_from("<QQ", data, at)
            if not 0 < low <= address:
                continue
            if maps.at(low) is not None:
                continue
            found = _library(memory, known, piece.low + at, low, other) if address < other else None
            if found is None and address < low + other:
                found = _of_python(memory, piece.low + at, low, other)
            if found is not None:
                return found
        if time.monotonic() > until:
            return None
    return None


def _near(address: int) -> re.Pattern[bytes]:
    """The addresses of pages that are not far below this one, as words of memory."""
    span = address >> _NEAR_BITS
    words = (one.to_bytes(5, "little") for one in range(span, max(span - _FARTHEST, 0), -1))
    by_rest: dict[bytes, list[bytes]] = {}
    for word in words:
        by_rest.setdefault(word[1:], []).append(word[:1])
    pages = b"[" + b"".join(re.escape(bytes([at << 4])) for at in range(16)) + b"]"
    parts = [
        b"\\x00" + pages + b"[\\x00-\\xff][" + b"".join(map(re.escape, firsts)) + b"]" + re.escape(rest)
        for rest, firsts in by_rest.items()
    ]
    return re.compile(b"|".join(parts), re.DOTALL)


def _own_memory(maps: Mappings) -> Iterator[Mapped]:
    """The heap, then other memory without a file, the smaller pieces first, up to a limit."""
    own = [one for one in maps if one.writable and (one.path is None or one.path == "[heap]")]
    left = _MOST_SEARCHED
    for one in sorted(own, key=lambda one: (one.path is None, one.high - one.low)):
        size = one.high - one.low
        if size > min(left, _LARGEST_PIECE):
            continue
        left -= size
        yield one


@dataclass(frozen=True)
class Loader:
    """Field offsets in the records of libraries, learned from those that are still loaded.

    ``start``: the library's range, ``name``: the text of its name, which is in the record itself.
    """

    start: int
    name: int


def loader(memory: Memory, records: Iterable[int]) -> Loader | None:
    """How this process's dynamic loader lays out its records; ``records``: the addresses of some."""
    found: Counter[Loader] = Counter()
    for record in records:
        data = memory.exactly(record, _RECORD)
        name = memory.u64(memory.u64(record + _LIBRARY_NAME) or 0)
        if data is None or not name or not 0 < name - record < 2 * _RECORD:
            continue
        words = [word for (word,) in struct.iter_unpack("<Q", data)]
        low = words[0]
        if low == 0 or words[_REAL // 8] != record:
            continue
        at = next((one for one in range(_RECORD // 16, len(words) - 1) if words[one] == low < words[one + 1]), None)
        if at is not None:
            found[Loader(8 * at, name - record)] += 1
    return found.most_common(1)[0][0] if found else None


def _library(memory: Memory, known: Loader | None, at: int, low: int, high: int) -> Former | None:
    """``at`` is ``l_map_start`` in the record of a library that was loaded at ``low``, and is no longer."""
    if known is None or high - low > _LARGEST_LIBRARY:
        return None
    record = at - known.start
    if memory.u64(record + known.name - _NAME_POINTER) != record + known.name:
        return None
    name = memory.c_string(record + known.name)
    if not name or not name.isprintable():
        return None
    return Former(
        kind="library",
        name=name,
        low=Address(low),
        high=Address(high),
        seen=f"{name} at {low:#x}-{high:#x}",
        where="the dynamic loader's record of the library, in freed memory",
    )


def _of_python(memory: Memory, at: int, low: int, size: int) -> Former | None:
    """``at`` is the address in an ``mmap`` object that has been freed."""
    if not 0 < size <= _LARGEST_LIBRARY * 256:
        return None
    kind = memory.u64(at - 8)
    name = memory.u64(kind + 24) if kind and kind % 8 == 0 else None
    if not name or memory.c_string(name, 16) != "mmap.mmap":
        return None
    return Former(
        kind="mmap",
        low=Address(low),
        high=Address(low + size),
        seen=f"mmap.mmap of {size:,} bytes at {low:#x}",
        where="Python's record of the mapping, in freed memory",
    )


# ---------------------------------------------------------------- large blocks of malloc


def _block(place: Place, candidates: Sequence[Candidate], c_library: Iterable[Mapped]) -> Former | None:
    """A malloc block that had a mapping of its own: its address is 16 bytes behind a page that is unmapped now."""
    maps, address = place.maps, place.address
    returned = _given_back(place.memory, c_library)
    if returned is None:
        return None
    largest, total = returned
    fits = [
        one
        for one in candidates
        if one.value % _PAGE == _CHUNK and 0 <= address - one.value < total and maps.at(one.value) is None
    ]
    if not fits:
        return None
    nearest = max(fits, key=lambda one: (one.value, one.is_variable))
    inside = address - nearest.value
    size = f", the largest of them {largest:,} bytes" if inside < largest else ""
    return Former(
        kind="heap-block",
        low=Address(nearest.value),
        holder=nearest.holder,
        seen=f"{nearest.holder} = {nearest.value:#x}, {_CHUNK} bytes behind a page, as malloc places large blocks; "
        f"malloc has returned such blocks to the system{size}",
        where="registers and variables, and malloc's counts",
    )


def _given_back(memory: Memory, c_library: Iterable[Mapped]) -> tuple[int, int] | None:
    """The size of the largest mapping that free() returned, and how much was mapped so at most; or None.

    ``struct malloc_par`` is found by what it holds: the defaults, and thresholds that follow each other.
    """
    for piece in c_library:
        if not piece.writable:
            continue
        data = memory.some(piece.low, piece.high - piece.low)
        needle = _TOP_PAD.to_bytes(8, "little")
        at = data.find(needle)
        while at >= 8:
            trim, _pad, threshold = _COUNTS.unpack_from(data, at - 8) if at + 16 <= len(data) else (0, 0, 1)
            if at % 8 == 0 and trim in {_DYNAMIC * threshold, _TOP_PAD} and threshold >= _TOP_PAD:
                found = _counts(data, at + 16)
                if found is not None:
                    now, most = found
                    largest = threshold if trim == _DYNAMIC * threshold else 0
                    return (largest, most) if most > now or largest else None
            at = data.find(needle, at + 1)
    return None


def _counts(data: bytes, start: int) -> tuple[int, int] | None:
    """``mmapped_mem`` and ``max_mmapped_mem``: behind ``n_mmaps, n_mmaps_max, max_n_mmaps, no_dyn_threshold``."""
    for at in range(start, min(start + 64, len(data) - 40), 4):
        count, limit, most = struct.unpack_from("<iii", data, at)
        if limit == _MOST_MAPPINGS and 0 <= count <= most:
            now, ever = struct.unpack_from("<QQ", data, -(-(at + 16) // 8) * 8)
            if now <= ever:
                return now, ever
    return None
