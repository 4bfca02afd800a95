"""``--log pipe``: the command's stderr is a pipe of ours, and a process beside it passes the bytes on, unchanged.

This file is run by itself, as ``python relay.py``, so that the supervisor's fate does not matter to the command: it
imports nothing of necropsy and nothing that must be installed. Where its process is ended, the supervisor goes on in
its place (``serve`` in a thread); only where both are ended at once, writes to stderr fail from then on.

The pipe's reading end is opened for overlapped reads: a query of its state then does not have to wait for another's
read. A question of the supervisor is answered when all that was in the pipe before it has been passed on: so the last
words of a dead program are known, and a report comes after them.
"""

from __future__ import annotations

import importlib
import mmap
import os
import signal
import struct
import sys
from typing import Any, Protocol

KEPT = 64 << 10
"""Bytes that are remembered, the last ones."""
PIPE_SIZE = 64 << 10
ALL_GONE, TARGET_GONE = 0, 3
"""Exit codes: nobody has the other end any more; nobody reads the real stderr, and the command must learn of it."""
_CHUNK = 64 << 10
_MOST_AT_ONCE = 64
_INFINITE = 0xFFFFFFFF
_HEAD = struct.Struct("<QQQQ")
_ANY = (1 << 64) - 1
"""The answer to all questions that will be asked: nothing can come any more."""


class RelayRing:
    """The last bytes that were passed on, in named memory that two processes share: one writes, one reads.

    ``answered``: the number of the last answered question; ``serving``: whether reading has begun; ``writing``:
    whether the writer is blocked in a write to the real stderr.
    """

    SIZE = _HEAD.size + KEPT

    def __init__(self, memory: Any) -> None:
        """``memory``: ``SIZE`` bytes that can be written, zeros at first."""
        self._memory = memory

    @classmethod
    def named(cls, name: str) -> RelayRing:
        """The first to name it creates it. Raises OSError where there is no such memory."""
        memory: Any = mmap.mmap
        return cls(memory(-1, cls.SIZE, tagname=name))

    @property
    def answered(self) -> int:
        """The number of the last question that was answered."""
        return int(_HEAD.unpack_from(self._memory, 0)[1])

    @property
    def serving(self) -> bool:
        """The writer has begun."""
        return bool(_HEAD.unpack_from(self._memory, 0)[2])

    @property
    def total(self) -> int:
        """Bytes appended so far."""
        return int(_HEAD.unpack_from(self._memory, 0)[0])

    @property
    def writing(self) -> bool:
        """The writer passes on what was appended last. It blocks if the real stderr is not read."""
        return bool(_HEAD.unpack_from(self._memory, 0)[3])

    def mark_writing(self, writing: bool) -> None:
        """Only for the writer."""
        struct.pack_into("<Q", self._memory, 24, writing)

    def begin(self) -> None:
        """Only for the writer."""
        self.mark_writing(False)
        struct.pack_into("<Q", self._memory, 16, 1)

    def answer(self, number: int) -> None:
        """Only for the writer."""
        struct.pack_into("<Q", self._memory, 8, number)

    def append(self, data: bytes) -> None:
        """Only for the writer."""
        total = self.total
        kept = data[-KEPT:]
        at = (total + len(data) - len(kept)) % KEPT
        first = kept[: KEPT - at]
        self._memory[_HEAD.size + at : _HEAD.size + at + len(first)] = first
        self._memory[_HEAD.size : _HEAD.size + len(kept) - len(first)] = kept[len(first) :]
        struct.pack_into("<Q", self._memory, 0, total + len(data))

    def tail(self) -> bytes:
        """What is remembered."""
        total = self.total
        data = bytes(self._memory[_HEAD.size : _HEAD.size + KEPT])
        return data[:total] if total <= KEPT else data[total % KEPT :] + data[: total % KEPT]


class _Write(Protocol):
    def __call__(self, data: bytes) -> bool: ...


def windows() -> Any:
    """CPython's own door to Windows, which its subprocess and multiprocessing use."""
    return importlib.import_module("_winapi")


class _Source:
    """A pipe from which the next bytes have been requested."""

    def __init__(self, handle: int) -> None:
        self._handle, self._api = handle, windows()
        self.open = True
        self._pending: Any = None
        self._begin()

    @property
    def event(self) -> int:
        """An event that is set when there is something to take."""
        return int(self._pending.event)

    @property
    def ready(self) -> bool:
        return self.open and self._api.WaitForSingleObject(self.event, 0) == 0

    def take(self) -> bytes:
        """The bytes that have come; none for an empty write, or where the other end is closed."""
        try:
            self._pending.GetOverlappedResult(True)
            data = bytes(self._pending.getbuffer() or b"")
        except OSError:
            self.open = False
            return b""
        self._begin()
        return data

    def _begin(self) -> None:
        try:
            self._pending, _ = self._api.ReadFile(self._handle, _CHUNK, overlapped=True)
        except OSError:
            self.open = False


def serve(data: int, questions: int, ring: RelayRing, write: _Write) -> int:
    """Pass on all that comes; how it ended, ``ALL_GONE`` or ``TARGET_GONE``.

    ``data``, ``questions``: the reading ends of two pipes; a question is its number in eight bytes. ``write(data) ->
    bool``: false where the target is closed.
    """
    api = windows()
    ring.begin()
    source, asked = _Source(data), _Source(questions)
    while source.open:
        waiting = [source.event, *([asked.event] if asked.open else [])]
        api.WaitForMultipleObjects(waiting, False, _INFINITE)
        question = asked.take() if asked.ready else b""
        # A question came after what the command had written before: that has come too, by now.
        for _ in range(_MOST_AT_ONCE):
            if not source.ready:
                break
            some = source.take()
            ring.append(some)
            if some and not _passed_on(some, ring, write):
                return TARGET_GONE
        if question:
            ring.answer(int.from_bytes(question[-8:], "little"))
    ring.answer(_ANY)
    return ALL_GONE


def _passed_on(data: bytes, ring: RelayRing, write: _Write) -> bool:
    ring.mark_writing(True)
    passed = write(data)
    ring.mark_writing(False)
    return passed


def to_stderr(data: bytes) -> bool:
    """Write to our own stderr; false where nobody reads it any more."""
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[os.write(2, rest) :]
    except OSError:
        return False
    return True


def main(words: list[str]) -> int:
    """``relay.py DATA QUESTIONS NAME``: two handles that were inherited, and the name of the shared memory."""
    # Ctrl-C and Ctrl-Break go to all of a console; what they do is for the command to decide.
    for name in ("SIGINT", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    return serve(int(words[0]), int(words[1]), RelayRing.named(words[2]), to_stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
