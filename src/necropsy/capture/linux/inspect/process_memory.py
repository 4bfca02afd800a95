"""The memory of a stopped process, through ``/proc``."""

from __future__ import annotations

import mmap
import os
from types import TracebackType

from necropsy.capture.linux.supervise.ptrace import HERE
from necropsy.capture.process.memory import Memory, pieces

_LAST = (1 << 63) - 1
"""``pread`` takes a signed offset; no address of user space lies above it."""


class ProcessMemory(Memory):
    """The memory of a process, through ``/proc/PID/mem``."""

    def __init__(self, pid: int, opened: int | None = None) -> None:
        """Open the memory of ``pid``, or take over ``opened``. Raises OSError where the process cannot be read."""
        self.processor, self.page = HERE, mmap.PAGESIZE
        self._fd = opened if opened is not None else os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> ProcessMemory:  # noqa: PYI034 - typing.Self is younger than Python 3.10
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """It is read no more."""
        os.close(self._fd)

    def some(self, address: int, size: int) -> bytes:
        """As ``Memory.some``."""
        if size <= 0 or not 0 <= address <= _LAST - size:
            return b""
        return pieces(self._piece, address, size)

    def _piece(self, address: int, size: int) -> bytes:
        try:
            return os.pread(self._fd, size, address)
        except OSError:
            return b""
