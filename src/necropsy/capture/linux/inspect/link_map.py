"""The dynamic linker's list of libraries, which a debugger must read before it shows one of them.

``struct r_debug`` and ``struct link_map`` are those of glibc's and musl's ``link.h``; they are found as debuggers do,
by the program's DT_DEBUG.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from necropsy.capture.process.memory import PAGE, Memory
from necropsy.formats.elf import PT_DYNAMIC

_AT_PHDR, _AT_PHENT, _AT_PHNUM, _AT_PAGESZ = 3, 4, 5, 6
_DT_DEBUG = 21
_LARGEST_PAGE = 64 << 10
_MOST_LIBRARIES = 10_000
_MOST_TAGS = 512
_LONGEST_NAME = 4096
_PT_PHDR = 6
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")


def auxiliary(auxv: bytes) -> dict[int, int]:
    """``/proc/PID/auxv`` or NT_AUXV: type to value (getauxval(3))."""
    pairs = struct.iter_unpack("<QQ", auxv[: len(auxv) & ~15])
    return {kind: value for kind, value in pairs if kind}


def page_size(auxv: bytes) -> int:
    """Bytes of a page, by the auxiliary vector; 4,096 where it does not say it in a way that can be."""
    found = auxiliary(auxv).get(_AT_PAGESZ, PAGE)
    return found if PAGE <= found <= _LARGEST_PAGE and not found & found - 1 else PAGE


def ranges(memory: Memory, auxv: bytes) -> Iterator[tuple[int, int]]:
    """``(address, size)`` of everything that the list of libraries consists of; ends where it makes no sense."""
    dynamic = _dynamic(memory, auxiliary(auxv))
    if dynamic is None:
        return
    size, debug = _debug(memory, dynamic)
    yield dynamic, size
    if not debug:
        return
    yield debug, 40
    link = memory.u64(debug + 8)
    seen: set[int] = set()
    while link and link not in seen and len(seen) < _MOST_LIBRARIES:
        seen.add(link)
        head = memory.exactly(link, 40)
        if head is None:
            return
        _bias, name, own_dynamic, following, _previous = struct.unpack("<QQQQQ", head)
        yield link, 40
        text = memory.some(name, _LONGEST_NAME)
        yield name, text.find(b"\0") + 1
        if own_dynamic:
            yield own_dynamic, _debug(memory, own_dynamic)[0]
        link = following


def _dynamic(memory: Memory, auxv: dict[int, int]) -> int | None:
    """The address of the program's dynamic section, from its program headers in memory."""
    at, count = auxv.get(_AT_PHDR, 0), min(auxv.get(_AT_PHNUM, 0), 512)
    if auxv.get(_AT_PHENT) != _PROGRAM_HEADER.size:
        return None
    data = memory.exactly(at, count * _PROGRAM_HEADER.size)
    if not data:
        return None
    headers = list(_PROGRAM_HEADER.iter_unpack(data))
    bias = next((at - header[3] for header in headers if header[0] == _PT_PHDR), 0)
    return next((header[3] + bias for header in headers if header[0] == PT_DYNAMIC), None)


def _debug(memory: Memory, dynamic: int) -> tuple[int, int]:
    """The size of a dynamic section in bytes, and the value of its DT_DEBUG (0: none)."""
    data = memory.some(dynamic, _MOST_TAGS * 16)
    debug = 0
    for index, (tag, value) in enumerate(struct.iter_unpack("<QQ", data[: len(data) & ~15])):
        if tag == _DT_DEBUG:
            debug = value
        if tag == 0:
            return (index + 1) * 16, debug
    return len(data), debug
