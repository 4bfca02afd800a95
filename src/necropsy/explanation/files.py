"""What a path leads to: a file whose end is known, a pipe, or what has no end or no text at all."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from necropsy.errors import NoInputError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

_PACKED = (b"PK", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd")
"""Magic numbers of zip, gzip, bzip2, xz and zstd."""
_GIVEN = 1 << 20
"""Bytes kept from a run of zeros."""
_AT_ONCE = 64 << 20
"""Bytes of zeros skipped between progress updates."""


class Regular(io.RawIOBase):
    """A regular file up to its size when opened, without its long runs of zeros.

    A program may write faster than it is read. If a log was truncated under its writer (``copytruncate`` of logrotate),
    it begins with a hole of gigabytes: only the beginning of zeros is given, and holes are not read (lseek(2),
    ``SEEK_DATA``). ``packed`` files are read completely.
    """

    def __init__(self, file: io.FileIO, size: int, *, packed: bool = False) -> None:
        super().__init__()
        self._file, self._size, self._packed = file, size, packed
        self._zeros = 0

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes: an archive is read from its end."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """As of any file."""
        self._zeros = 0
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """As of any file."""
        return self._file.tell()

    def close(self) -> None:
        """Close the file too."""
        self._file.close()
        super().close()

    def readinto(self, buffer: Buffer, /) -> int:
        """The next bytes; of a long run of zeros the rest is left out."""
        view = memoryview(buffer)
        passed = 0
        while True:
            count = self._file.readinto(view[: max(0, self._size - self._file.tell())]) or 0
            if not count or self._packed or bytes(view[:count]).count(0) < count:
                self._zeros = 0
                return count
            if self._zeros < _GIVEN or passed >= _AT_ONCE:
                self._zeros += count
                return count
            passed += count
            self._skip_hole()

    def _skip_hole(self) -> None:
        if not hasattr(os, "SEEK_DATA"):
            return
        try:
            self._file.seek(self._file.tell(), os.SEEK_DATA)
        except OSError as error:
            # EINVAL: this file system does not know of holes, so that the zeros are read.
            if error.errno == errno.ENXIO:
                self._file.seek(self._size)


class Typed(io.RawIOBase):
    """What is typed at a terminal, up to the first Ctrl-D: a terminal would go on, and ask for a second one."""

    def __init__(self, terminal: io.BufferedReader) -> None:
        super().__init__()
        self._terminal, self._ended = terminal, False

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        """A line, or nothing once that was the end."""
        view = memoryview(buffer)
        part = b"" if self._ended else self._terminal.read1(len(view))
        self._ended = not part
        view[: len(part)] = part
        return len(part)


def typed(stream: BinaryIO) -> BinaryIO:
    """``stream``, as ``Typed`` where it is a terminal."""
    if isinstance(stream, io.BufferedReader) and stream.isatty():
        return io.BufferedReader(Typed(stream))
    return stream


def opened(path: Path) -> tuple[BinaryIO, int | None]:
    """The file at ``path``, and its size if known; raises ``NoInputError`` for a device or socket, or ``OSError``."""
    if stat.S_ISSOCK(path.stat().st_mode):
        raise NoInputError(f"{path} is a socket")
    file = path.open("rb", buffering=0)
    try:
        refuse_devices(file, str(path))
        status = os.fstat(file.fileno())
        # The files of /proc say 0, whatever is in them.
        if stat.S_ISREG(status.st_mode) and status.st_size:
            packed = file.read(len(max(_PACKED, key=len))).startswith(_PACKED)
            file.seek(0)
            return io.BufferedReader(Regular(file, status.st_size, packed=packed), 1 << 18), status.st_size
        return io.BufferedReader(file, 1 << 18), status.st_size if stat.S_ISREG(status.st_mode) else None
    except BaseException:
        file.close()
        raise


def refuse_devices(stream: BinaryIO | io.FileIO, name: str) -> None:
    """Raise ``NoInputError`` for endless devices (``/dev/zero``, ``/dev/kmsg``), not terminals and ``/dev/null``."""
    if sys.platform == "win32":
        return  # NUL, CON and a pipe are all character devices there
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return
    if not stat.S_ISCHR(status.st_mode) and not stat.S_ISBLK(status.st_mode):
        return
    if os.isatty(stream.fileno()) or status.st_rdev == Path(os.devnull).stat().st_rdev:
        return
    raise NoInputError(
        f"{name} is a device, which may never end: use a file or a pipe, such as `dmesg | necropsy explain -`"
    )
