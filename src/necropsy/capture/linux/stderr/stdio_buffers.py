"""Buffer contents of the C library's stdout and stderr in a process that can no longer flush them.

``struct _IO_FILE`` (glibc, libio/bits/types/struct_FILE.h): after an ``int`` of flags come the pointers read_ptr,
read_end, read_base, write_base, write_ptr, write_end, buf_base and buf_end. musl has another structure.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from necropsy.capture.linux.inspect.modules import MappedFiles
from necropsy.capture.process.memory import Memory

_POINTERS = struct.Struct("<8Q")
_LARGEST = 1 << 20
_SHOWN = 4096


@dataclass(frozen=True)
class Stream:
    """``pending``: the end of what was never written; ``buffer``: the whole buffer, with what was written from it."""

    name: str
    pending: bytes
    buffer: bytes


def streams(memory: Memory, files: MappedFiles) -> tuple[Stream, ...]:
    """The streams stderr and stdout, where glibc has them and they have a buffer that can be read."""
    libc = files.named("libc.so.6", "libc-2.")
    found = []
    for name in ("stderr", "stdout"):
        at = None if libc is None else libc.symbol(f"_IO_2_1_{name}_")
        data = None if at is None else memory.exactly(at + 8, _POINTERS.size)
        if data is None:
            continue
        _, _, _, base, pointer, _, low, high = _POINTERS.unpack(data)
        if not low <= base <= pointer <= high or not 1 < high - low <= _LARGEST:
            continue
        first = max(base, pointer - _SHOWN)
        found.append(Stream(name, memory.some(first, pointer - first), memory.some(low, high - low)))
    return tuple(found)
