"""The cores of a run, from the moment that a process was read until the report is written."""

from __future__ import annotations

import io
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
        if not self.full_memory:
            return io.BytesIO()
        import tempfile

        try:
            return tempfile.TemporaryFile()
        except OSError:
            return None

    def keep(self, pid: int, at: str | None, file: BinaryIO | None) -> None:
        """Keep what was written, if anything was, ready to be read from its beginning."""
        if file is not None and file.tell():
            file.seek(0)
            self.kept[pid, at] = file
