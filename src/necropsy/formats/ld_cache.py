"""``/etc/ld.so.cache``: where the loader looks for libraries by name. Bytes to values.

Layout from glibc's ``sysdeps/generic/dl-cache.h`` (``cache_file_new``), which may stand behind the old format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_MAGIC = b"glibc-ld.so.cache1.1"
_ENTRY = struct.Struct("<iIIIQ")
_ELF_LIBC6 = 3
_FLAGS_OF_MACHINE = {"x86_64": 0x0300, "aarch64": 0x0A00, "ppc64le": 0x0500, "s390x": 0x0400, "riscv64": 0x1000}
_MOST = 200_000


def entries(data: bytes, machine: str) -> Iterator[tuple[str, str]]:
    """``(name, path)`` of each library for ``machine``, in the file's order; nothing from a file of another format."""
    start = data.find(_MAGIC)
    if start < 0 or len(data) < start + 48:
        return
    count, _strings = struct.unpack_from("<II", data, start + len(_MAGIC))
    wanted = _FLAGS_OF_MACHINE.get(machine)
    for index in range(min(count, _MOST)):
        at = start + 48 + index * _ENTRY.size
        if at + _ENTRY.size > len(data):
            return
        flags, name, path, _, hwcap = _ENTRY.unpack_from(data, at)
        if flags & 0xFF != _ELF_LIBC6 or (wanted is not None and flags & 0xFF00 != wanted):
            continue
        if hwcap >> 32 & 1 << 30:  # for glibc-hwcaps, of processors that need not be this one
            continue
        yield _text(data, start + name), _text(data, start + path)


def _text(data: bytes, at: int) -> str:
    end = data.find(b"\0", at)
    return data[at : end if end >= 0 else at].decode("utf-8", "surrogateescape")
