"""Regular files that are in no folder, or in none any more when the last process that has them open is gone."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile

_APPEND, _DELETE, _READ, _WRITE = 0x4, 0x10000, 0x80000000, 0x40000000
_SHARE_ALL = 0x7
_CREATE_NEW, _OPEN_EXISTING = 1, 3
_TEMPORARY = 0x100 | 0x4000000
"""``FILE_ATTRIBUTE_TEMPORARY | FILE_FLAG_DELETE_ON_CLOSE``."""


def unnamed_file(name: str) -> int:
    """A descriptor of one; for systems with fork."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.memfd_create(f"necropsy-{name}", os.MFD_CLOEXEC)
    handle, path = tempfile.mkstemp()
    os.unlink(path)  # noqa: PTH108
    return handle


class UnnamedFile:
    """One to which others append, while it is read here."""

    def __init__(self, name: str) -> None:
        self.path: str | None = None
        """Where others open it, on Windows only."""
        if sys.platform == "win32":
            self.path = os.path.join(tempfile.gettempdir(), f"necropsy-{name}-{os.getpid()}-{os.urandom(8).hex()}")  # noqa: PTH118
            # A descriptor that appends by itself, whoever inherits it; and another for us, with a position of its own.
            self.handle = _opened(self.path, _APPEND | _DELETE, _CREATE_NEW, _TEMPORARY)
            self._own = _opened(self.path, _READ | _WRITE, _OPEN_EXISTING, 0)
        else:
            import fcntl

            self.handle = self._own = unnamed_file(name)
            fcntl.fcntl(self.handle, fcntl.F_SETFL, fcntl.fcntl(self.handle, fcntl.F_GETFL) | os.O_APPEND)

    def size(self) -> int:
        """Bytes in it; 0 after ``close``."""
        return os.fstat(self._own).st_size if self._own >= 0 else 0

    def read(self, size: int, place: int) -> bytes:
        """Up to this many bytes from there on."""
        if self._own < 0:
            return b""
        if sys.platform == "win32":
            os.lseek(self._own, place, os.SEEK_SET)
            return os.read(self._own, size)
        return os.pread(self._own, size, place)

    def empty(self) -> None:
        """What is written from now on begins at offset 0."""
        if self._own >= 0:
            os.ftruncate(self._own, 0)

    def close(self) -> None:
        """Give it up."""
        for handle in {self.handle, self._own} - {-1}:
            os.close(handle)
        self.handle = self._own = -1


if sys.platform == "win32":

    def _opened(path: str, access: int, creation: int, flags: int) -> int:
        import _winapi
        import msvcrt

        found = _winapi.CreateFile(path, access, _SHARE_ALL, 0, creation, flags, 0)
        return msvcrt.open_osfhandle(found, os.O_BINARY | os.O_NOINHERIT)
