"""What the session writes down about itself, so that another process can go on where it died.

A record is written by one system call to a file without a name, and survives whatever happens to its writer.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

_HEAD = struct.Struct("<cI")
_LOWEST = 100
"""The file's number: tests that close and reuse the low ones do not meet it."""

STAGE = b"S"
"""The session has come to a stage: ``configure``, ``collect``, ``run``, ``finish``, ``end``."""
CONFTEST, CONFTEST_DONE = b"I", b"i"
"""A conftest.py is being imported: its path."""
COLLECTOR, COLLECTOR_DONE = b"C", b"c"
"""Something is being collected: its node id."""
TEST, TEST_DONE = b"T", b"F"
"""A test has begun: its node id."""
BURIED = b"B"
"""A test that a process died of is being reported: its node id."""
PHASE = b"P"
"""Setup, call or teardown of the test begins: the moment and the name."""
REPORT, WARNING = b"R", b"W"
"""What pytest reported of the test: pickled."""
LEAVES = b"X"
"""``os._exit`` was called: where, as text."""
OUTPUT = b"O"
"""Where a worker's output is captured: two file descriptors, as text."""
WATCHED, UNWATCHED = b"w", b"U"
"""The session is traced: the address of its watcher. It is not: why. Both as text."""


class Journal:
    """The file; whoever has it may read it, and the process that called ``own`` writes."""

    def __init__(self, handle: int | None = None) -> None:
        """Make it: a file without a name, or take over the file ``handle``.

        Raises OSError where there is no room, or no descriptor.
        """
        if handle is None:
            handle, path = tempfile.mkstemp(prefix="necropsy-journal-")
            Path(path).unlink()
        self._handle = _lifted(handle)
        self._inode = os.fstat(self._handle).st_ino
        self._owner, self._held = 0, b""
        self.broken = False

    @classmethod
    def at(cls, path: Path) -> Journal:
        """A journal that another process reads by its name. Raises OSError where it cannot be written there."""
        return cls(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def own(self) -> None:
        """Let this process write."""
        self._owner = os.getpid()

    @property
    def is_ours(self) -> bool:
        """Whether this process writes; its forked children do not."""
        return os.getpid() == self._owner

    def hold(self, kind: bytes, payload: bytes = b"") -> None:
        """Add a record with the next one that is written: no code of the user's runs until then."""
        self._held += _HEAD.pack(kind, len(payload)) + payload

    def write(self, kind: bytes, payload: bytes = b"") -> None:
        """Add a record. Never raises: without the journal, the tests still run."""
        data, self._held = self._held + _HEAD.pack(kind, len(payload)) + payload, b""
        if self.broken or os.getpid() != self._owner:
            return
        try:
            if os.fstat(self._handle).st_ino != self._inode:  # a test closed it, and opened something else
                self.broken = True
                return
            while data:
                data = data[os.write(self._handle, data) :]
        except OSError:
            self.broken = True

    def text(self, kind: bytes, text: str) -> None:
        """Add a record that is text."""
        self.write(kind, text.encode("utf-8", "surrogatepass"))

    def read(self, offset: int) -> tuple[list[tuple[bytes, bytes]], int]:
        """The records from ``offset`` on, and where the next one will be; one that was cut off is left out."""
        data = b""
        while part := os.pread(self._handle, 1 << 20, offset + len(data)):
            data += part
        records = list(_records(data))
        return records, offset + sum(_HEAD.size + len(payload) for _, payload in records)


def read_file(path: Path) -> list[tuple[bytes, bytes]]:
    """The records of a journal that has a name. Raises OSError where there is none."""
    return list(_records(path.read_bytes()))


def as_text(payload: bytes) -> str:
    """The text of a record."""
    try:
        return payload.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:  # a process with damaged memory has written it
        return payload.decode("utf-8", "replace")


def _records(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 0
    while at + _HEAD.size <= len(data):
        kind, size = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if at + size > len(data):
            return
        yield kind, data[at : at + size]
        at += size


def _lifted(handle: int) -> int:
    """The same file at a high number."""
    import fcntl

    try:
        lifted = fcntl.fcntl(handle, fcntl.F_DUPFD_CLOEXEC, _LOWEST)
    except OSError:  # the limit is lower
        return handle
    os.close(handle)
    return lifted
