"""Memory that can be read by address: that of a stopped process here, that of a core in ``core_memory``."""

from __future__ import annotations

import os
import struct
from abc import ABC, abstractmethod
from types import TracebackType

PAGE = 4096
_U64 = struct.Struct("<Q")
_LAST = (1 << 63) - 1
"""``pread`` takes a signed offset; no address of user space lies above it."""


class Memory(ABC):
    """Reads memory; what is not mapped is ``None``, never an error."""

    @abstractmethod
    def some(self, address: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``address``: as many as are mapped without a hole, perhaps none."""

    def exactly(self, address: int, size: int) -> bytes | None:
        """``size`` bytes from ``address``, or None where one of them is not mapped."""
        data = self.some(address, size)
        return data if len(data) == size else None

    def u64(self, address: int) -> int | None:
        """The 8 bytes at ``address`` as an unsigned number."""
        data = self.exactly(address, 8)
        return None if data is None else int(_U64.unpack(data)[0])

    def c_string(self, address: int, limit: int = 4096) -> str | None:
        """The text at ``address`` up to its NUL; None where none comes in ``limit`` bytes."""
        data = self.some(address, limit)
        end = data.find(b"\0")
        return None if end < 0 else data[:end].decode("utf-8", "replace")


class ProcessMemory(Memory):
    """The memory of a process, through ``/proc/PID/mem``."""

    def __init__(self, pid: int) -> None:
        """Open the memory of ``pid``.

        Raises:
            OSError: the process is gone or may not be read.

        """
        self._fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> ProcessMemory:  # noqa: PYI034 - typing.Self is younger than Python 3.10
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._fd)

    def some(self, address: int, size: int) -> bytes:
        """As ``Memory.some``."""
        if size <= 0 or not 0 <= address <= _LAST - size:
            return b""
        pieces: list[bytes] = []
        while size > 0:
            try:
                piece = os.pread(self._fd, size, address)
            except OSError:
                break
            if not piece:
                break
            pieces.append(piece)
            address += len(piece)
            size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


class RecordingMemory(Memory):
    """Reads through another memory and notes the pages of all that is read in small: what evidence was taken from.

    Searches through large blocks are not noted, they are not evidence yet.
    """

    def __init__(self, inner: Memory) -> None:
        self._inner = inner
        self.pages: dict[int, None] = {}
        """The numbers of the pages, in the order in which they were read first."""

    def some(self, address: int, size: int) -> bytes:
        """As ``Memory.some``."""
        data = self._inner.some(address, size)
        if 0 < len(data) <= PAGE:
            first, last = address // PAGE, (address + len(data) - 1) // PAGE
            self.pages[first] = None
            if last != first:
                self.pages[last] = None
        return data
