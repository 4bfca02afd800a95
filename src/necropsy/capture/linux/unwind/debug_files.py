"""Debug information in files of their own: what distributions put into packages named ``-dbg`` or ``-debuginfo``.

Looked for where gdb looks (its manual, *Debugging Information in Separate Files*), on this machine only: under the
library's build ID, and under the name that it gives in ``.gnu_debuglink``. A file is taken only where its build ID is
the library's. Nothing is ever asked of a server.
"""

from __future__ import annotations

import re
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from necropsy.capture.linux.inspect.modules import MappedFile
from necropsy.errors import InputError
from necropsy.formats.elf import ElfFile

ROOT = "/usr/lib/debug"
LARGEST = 512 << 20
"""Bytes of a file that is opened: a larger one would take longer than names are worth at a death."""
C_LIBRARY = re.compile(r"(?:libc|libm|libmvec|libpthread|libdl|librt|libresolv|ld(?:-linux[\w-]*)?)[-.]")
"""Who calls it is asked of a death, not what it does within: with its inner names a death would look like another one
than on a machine that lacks them."""
_SECTION = struct.Struct("<IIQQQQIIQQ")
_MOST_SECTIONS = 1024
_PROGBITS = 1
_LONGEST_NAME = 255
_NAME = re.compile(rb"[^/\0]{1,255}")


def of(file: MappedFile) -> str | None:
    """The path of the file with the debug information of ``file``; None where there is none that fits it."""
    if C_LIBRARY.match(file.name):
        return None
    build_id = file.build_id
    if build_id is None or len(build_id) < 4:
        return None
    return next((str(path) for path in _candidates(file, build_id) if _fits(path, build_id)), None)


def _candidates(file: MappedFile, build_id: str) -> Iterator[Path]:
    yield Path(ROOT, ".build-id", build_id[:2], f"{build_id[2:]}.debug")
    name = _linked(file.elf) if file.elf is not None else None
    if name is None:
        return
    folder = Path(file.path).parent
    yield from (folder / name, folder / ".debug" / name, Path(f"{ROOT}{folder}", name))


def _linked(elf: ElfFile) -> str | None:
    """The name in ``.gnu_debuglink``: a name, padding to 4 bytes, and a checksum, in a section that is never loaded.

    The section is known by its form: whether it was the right one, the build ID of the file says that it names.
    """
    try:
        rows = list(_SECTION.iter_unpack(elf.sections(_MOST_SECTIONS)))
        for _, kind, flags, _, offset, size, *_ in rows:
            if kind != _PROGBITS or flags or not 8 <= size <= _LONGEST_NAME + 9:
                continue
            name = elf.bytes_at(offset, size).split(b"\0", 1)[0]
            if (len(name) + 4 & ~3) + 4 == size and _NAME.fullmatch(name) and name not in {b".", b".."}:
                return name.decode("utf-8", "surrogateescape")
    except InputError:
        return None
    return None


def _fits(path: Path, build_id: str) -> bool:
    """Whether an ordinary file is there, not too large, whose build ID is the library's."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= LARGEST:
            return False
        with path.open("rb") as opened:
            return ElfFile(opened.read(_HEAD)).build_id() == build_id
    except (OSError, ValueError, InputError):
        return False


_HEAD = 1 << 20
"""Bytes from the start of a file: its headers and notes stand there."""
