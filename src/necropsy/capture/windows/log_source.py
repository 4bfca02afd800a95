"""The end of the command's stderr, as far as it is available without a change.

A regular file is read back at the death. What goes to a console or into a pipe is gone: to see it, it has to pass
through a pipe of ours, and then isatty and the order beside stdout are no longer the program's own, so that is opt-in
(``--log pipe``).
"""

from __future__ import annotations

import os
from pathlib import Path

from necropsy.capture.windows import winapi
from necropsy.capture.windows.stderr_pipe import StderrPipe
from necropsy.model import Gap

TAIL = 64 << 10
"""Bytes that are kept."""
_KINDS = {winapi.FILE_TYPE_CHAR: "the console", winapi.FILE_TYPE_PIPE: "a pipe"}


class Stderr:
    """Our own stderr, which is the command's."""

    def __init__(self, mode: str) -> None:
        """``mode``: ``off`` reads nothing, ``pipe`` passes on what does not go to a file."""
        handle = winapi.std_handle(winapi.STD_ERROR_HANDLE)
        kind = winapi.call("GetFileType", handle) if handle else 0
        self._path = winapi.final_path(handle) if kind == winapi.FILE_TYPE_DISK and mode != "off" else None
        where = _KINDS.get(kind, "nowhere that can be read back")
        self._why = "it was not to be read (--log off)" if mode == "off" else f"it went to {where}"
        if mode == "auto" and kind in _KINDS:
            self._why += "; run again with --log pipe, or with 2> log.txt"
        self._piped: StderrPipe | None = None
        if mode == "pipe" and kind in _KINDS:
            try:
                self._piped = StderrPipe()
            except (OSError, ImportError) as error:
                self._why = f"no pipe could be put in front of it: {error}"
        self._start = 0
        if self._path is not None:
            self._start, self._why = self._size(), "its file could not be read"

    @property
    def theirs(self) -> winapi.Handle | None:
        """What the command is to have as its stderr; None: our own."""
        return self._piped.theirs if self._piped is not None else None

    def given(self) -> None:
        """The command has been started."""
        if self._piped is not None:
            self._piped.given()

    def _size(self) -> int:
        try:
            return Path(self._path or "").stat().st_size
        except OSError:
            return 0

    def tail(self) -> tuple[str | None, tuple[Gap, ...]]:
        """The last of what was written since the start, and why there is nothing where that is so."""
        if self._piped is not None:
            late = not self._piped.settle()
            gap = Gap(
                part="log_tail",
                why="its end had not been passed on yet, because the pipe was not being read",
            )
            return _text(self._piped.tail()), (gap,) if late else ()
        if self._path is not None:
            try:
                with Path(self._path).open("rb") as file:
                    size = file.seek(0, os.SEEK_END)
                    # A file that is shorter now was emptied meanwhile.
                    start = self._start if size >= self._start else 0
                    file.seek(max(start, size - TAIL))
                    return _text(file.read(TAIL)), ()
            except OSError:
                pass
        return None, (Gap(part="log_tail", why=f"what the program wrote to stderr was not seen: {self._why}"),)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace").replace("\r\n", "\n")
