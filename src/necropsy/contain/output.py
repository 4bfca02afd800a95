"""What a worker writes to stdout and stderr: into unlinked files, from which the caller copies it to its own."""

from __future__ import annotations

import codecs
import contextlib
import sys
import threading
from typing import Any

from necropsy.contain.unnamed_files import UnnamedFile

_CHUNK = 1 << 20
_TAIL = 1 << 18
_NAMES = ("stdout", "stderr")


class Output:
    """The two files, and a third for faulthandler. Regular files, which can be read back when the worker has died."""

    def __init__(self) -> None:
        self._both = (UnnamedFile("stdout"), UnnamedFile("stderr"))
        self.faults = UnnamedFile("faults")
        """What faulthandler of a worker writes that nobody traces."""
        self._copied = [0, 0]
        self._faults_from = 0
        self._decoders = [codecs.getincrementaldecoder("utf-8")("replace") for _ in self._both]
        self._lock = threading.Lock()

    @property
    def files(self) -> tuple[int, int]:
        """The descriptors that become the worker's stdout and stderr."""
        return self._both[0].handle, self._both[1].handle

    def copy(self) -> None:
        """Write what is new to this process's own stdout and stderr."""
        with self._lock:
            for which, name in enumerate(_NAMES):
                file = self._both[which]
                while file.size() > self._copied[which]:
                    data = file.read(_CHUNK, self._copied[which])
                    if not data:
                        break
                    self._copied[which] += len(data)
                    with contextlib.suppress(OSError, ValueError):  # closed, or nobody reads it
                        _write(getattr(sys, name), data, self._decoders[which])

    def forget(self) -> None:
        """Empty the files before a call, so that a report quotes that call's output only."""
        self.copy()
        with self._lock:
            for which, file in enumerate(self._both):
                if self._copied[which]:
                    file.empty()
                    self._copied[which] = 0
            self._faults_from = self.faults.size()

    def tail(self) -> str:
        """The end of what was written to stderr since ``forget``."""
        return self._end_of(self._both[1])

    def fault(self) -> str:
        """The end of what faulthandler has written since then."""
        return self._end_of(self.faults, self._faults_from)

    def _end_of(self, file: UnnamedFile, begin: int = 0) -> str:
        with self._lock:
            return file.read(_TAIL, max(begin, file.size() - _TAIL)).decode("utf-8", "replace")

    def close(self) -> None:
        """Give up the files."""
        with self._lock:
            for file in (*self._both, self.faults):
                file.close()


def encodings() -> tuple[str, str]:
    """How a worker is to encode what it writes: as this process's own streams do, where they take bytes."""
    streams = (getattr(sys, name) for name in _NAMES)
    first, second = (getattr(one, "encoding", None) if hasattr(one, "buffer") else None for one in streams)
    return first or "utf-8", second or "utf-8"


def _write(stream: Any, data: bytes, decoder: codecs.IncrementalDecoder) -> None:
    if stream is None:
        return
    binary = getattr(stream, "buffer", None)
    if binary is not None:
        stream.flush()
        binary.write(data)
        binary.flush()
    else:
        text = decoder.decode(data)
        stream.write(text.replace("\r\n", "\n") if sys.platform == "win32" else text)
        stream.flush()
