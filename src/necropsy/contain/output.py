"""What a worker writes to stdout and stderr: into unlinked files, from which the caller copies it to its own."""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import os
import sys
import tempfile
import threading
from typing import Any

_CHUNK = 1 << 20


class Output:
    """The two files. A regular file, and not a pipe: the supervisor can read it back when the worker dies."""

    def __init__(self) -> None:
        self.files = (_appending(unnamed_file("stdout")), _appending(unnamed_file("stderr")))
        self._copied = [0, 0]
        self._decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in self.files]
        self._lock = threading.Lock()

    def copy(self) -> None:
        """Write what is new to this process's own stdout and stderr."""
        with self._lock:
            for which, name in enumerate(("stdout", "stderr")):
                handle = self.files[which]
                while handle >= 0 and os.fstat(handle).st_size > self._copied[which]:
                    data = os.pread(handle, _CHUNK, self._copied[which])
                    if not data:
                        break
                    self._copied[which] += len(data)
                    with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it
                        _write(getattr(sys, name), data, self._decoders[which])

    def forget(self) -> None:
        """Empty the files before a call, so that a report quotes that call's output only."""
        self.copy()
        with self._lock:
            for which, handle in enumerate(self.files):
                if self._copied[which]:
                    os.ftruncate(handle, 0)
                    self._copied[which] = 0

    def close(self) -> None:
        """Give up the files."""
        with self._lock:
            for handle in self.files:
                if handle >= 0:
                    os.close(handle)
            self.files = (-1, -1)


def unnamed_file(name: str) -> int:
    """A regular file that is in no folder."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.memfd_create(f"necropsy-{name}", os.MFD_CLOEXEC)
    handle, path = tempfile.mkstemp()
    os.unlink(path)  # noqa: PTH108
    return handle


def _appending(handle: int) -> int:
    fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | os.O_APPEND)
    return handle


def _write(stream: Any, data: bytes, decoder: codecs.IncrementalDecoder) -> None:
    if stream is None:
        return
    binary = getattr(stream, "buffer", None)
    if binary is not None:
        stream.flush()
        binary.write(data)
        binary.flush()
    else:
        stream.write(decoder.decode(data))
        stream.flush()
