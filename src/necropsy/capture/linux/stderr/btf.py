"""Member offsets of the kernel's structures, from its own type information (BTF).

It has megabytes and more than 100,000 types, so it is searched for the names, piece by piece.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

VMLINUX = Path("/sys/kernel/btf/vmlinux")
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_MEMBER = struct.Struct("<III")
_STRUCT = 4
_PIECE = 64 * 1024


def member_offset(structure: str, member: str, file: Path = VMLINUX) -> int:
    """Offset of ``member`` in ``structure``, in bytes. Raises OSError for the file, LookupError if not found."""
    handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        header = os.pread(handle, _HEADER.size, 0)
        if len(header) < _HEADER.size:
            raise LookupError("no type information")
        magic, _, _, length, types, types_size, strings, strings_size = _HEADER.unpack(header)
        if magic != 0xEB9F:
            raise LookupError("no type information")
        types, strings = types + length, strings + length
        names = [_name(handle, strings, strings + strings_size, one) for one in (structure, member)]
        for at in _found(handle, struct.pack("<I", names[0]), types, types + types_size):
            _, info, _ = _TYPE.unpack(os.pread(handle, _TYPE.size, at).ljust(_TYPE.size, b"\0"))
            if (at - types) % 4 or info >> 24 & 0x1F != _STRUCT:
                continue
            members = os.pread(handle, _MEMBER.size * (info & 0xFFFF), at + _TYPE.size)
            for name, _, bits in _MEMBER.iter_unpack(members[: len(members) // _MEMBER.size * _MEMBER.size]):
                if name == names[1]:
                    return int(bits & 0xFFFFFF) // 8  # the rest is the size of a bit field, where there is one
    finally:
        os.close(handle)
    raise LookupError(f"no {structure}.{member}")


def _name(handle: int, begin: int, end: int, name: str) -> int:
    for at in _found(handle, b"\0" + name.encode() + b"\0", begin, end):
        return at + 1 - begin
    raise LookupError(f"no name {name}")


def _found(handle: int, pattern: bytes, begin: int, end: int) -> Iterator[int]:
    while begin + len(pattern) <= end:
        piece = os.pread(handle, min(_PIECE, end - begin), begin)
        at = piece.find(pattern)
        while at >= 0:
            yield begin + at
            at = piece.find(pattern, at + 1)
        if len(piece) < len(pattern):
            return
        begin += len(piece) - len(pattern) + 1
