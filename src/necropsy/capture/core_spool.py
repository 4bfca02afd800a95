"""The cores of a run, from the moment that a process was read until the report is written."""

from __future__ import annotations

import io
import os
import sys
from typing import BinaryIO, Literal, get_args

CoreMode = Literal["off", "small", "full"]
CORE_MODES: tuple[str, ...] = get_args(CoreMode)
MOST = 16
"""Cores of one run: a small one is a megabyte, and a program that dies of the same thing a thousand times needs few."""


class Cores:
    """Files that hold a core in gzip each, by the process and the moment of its death."""

    def __init__(self, mode: str) -> None:
        """``mode``: small ones are kept in memory, full ones in unnamed files below ``TMPDIR``."""
        self.mode = mode
        self.kept: dict[tuple[int, str | None], BinaryIO] = {}

    @property
    def full_memory(self) -> bool:
        """Everything that the process could write belongs into the core."""
        return self.mode == "full"

    def new(self) -> BinaryIO | None:
        """A file to write the next core to; None where none is wanted, there are enough, or there is no room."""
        if self.mode == "off" or len(self.kept) >= MOST:
            return None
        try:
            return _on_disk() if self.full_memory else _in_memory()
        except OSError:
            return None

    def keep(self, pid: int, at: str | None, file: BinaryIO | None) -> None:
        """Keep what was written, if anything was, ready to be read from its beginning."""
        if file is not None and file.seek(0, io.SEEK_END):
            file.seek(0)
            self.kept[pid, at] = file

    def forget(self, pid: int) -> None:
        """The report of this process is being written by another one, which has its own descriptors."""
        for key in [key for key in self.kept if key[0] == pid]:
            self.kept.pop(key).close()


def _on_disk() -> BinaryIO:
    import tempfile

    return tempfile.TemporaryFile()


def _in_memory() -> BinaryIO:
    """A file that a forked process can fill; only Linux forks. Raises OSError without descriptors or room."""
    if sys.platform != "linux":
        return io.BytesIO()
    try:
        return open(os.memfd_create("necropsy-core", os.MFD_CLOEXEC), "w+b")  # noqa: PTH123 - a descriptor
    except OSError:  # a seccomp profile may forbid it
        return _on_disk()
