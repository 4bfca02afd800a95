"""Anonymous memory that a run's processes share over fork: log tail and facts; no lock, one writer for each field."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import time
from typing import NamedTuple

_PAGE = 4096
_U64 = struct.Struct("<Q")
_FLAG = struct.Struct("<I")
_DELIVERY = struct.Struct("<qd")
_TIMED_OUT = 0
_LOG_ERROR = 4
_READING = 8
_AT_REST = 12
_BEATS = 16
_REPORTER = 24
_LATE = 32
_DELIVERIES = 1024
_FORWARDED = 2304
_ORIGIN = struct.Struct("<iqq")
_COMMAND = struct.Struct("<iI")
_COMMAND_AT = 3712
_NOTICE = 1024
_SIGNALS = 65


class Ring:
    """The last ``size`` bytes of what one process appends; any other may read.

    The first page holds counters, the data follow. ``csrc/tap.c`` writes the same fields: total (8 bytes), busy (4),
    missed (4), the last write's number (8), where the current write begins (8), its number (8).
    """

    def __init__(self, size: int = 256 * 1024) -> None:
        self._size = size
        self._memory = mmap.mmap(-1, _PAGE + size)

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        return self._size

    @property
    def address(self) -> int:
        """Where the memory begins, for C code; valid as long as this object lives."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._memory))

    @property
    def total(self) -> int:
        """Bytes appended so far."""
        return int(_U64.unpack_from(self._memory, 0)[0])

    @property
    def busy(self) -> bool:
        """The writer has taken bytes that it has not yet passed on."""
        return bool(_FLAG.unpack_from(self._memory, 8)[0])

    def mark_busy(self, busy: bool) -> None:
        """Only for the writer."""
        _FLAG.pack_into(self._memory, 8, busy)

    def notice(self, size: int) -> ctypes.Array[ctypes.c_char]:
        """``size`` bytes of shared memory for the tap: what it has in hand outlives it."""
        return (ctypes.c_char * size).from_buffer(self._memory, _NOTICE)

    @property
    def last(self) -> int:
        """The number of the write that was appended last."""
        return int(_U64.unpack_from(self._memory, 16)[0])

    def append_once(self, number: int, data: bytes) -> None:
        """For the tap: append a write unless its killed predecessor did, else at the place where that had begun."""
        if self.last == number:
            return
        if _U64.unpack_from(self._memory, 32)[0] != number:
            _U64.pack_into(self._memory, 24, self.total)
            _U64.pack_into(self._memory, 32, number)
        self._put(int(_U64.unpack_from(self._memory, 24)[0]), data)
        _U64.pack_into(self._memory, 16, number)

    @property
    def missed(self) -> int:
        """How many writes could not be read."""
        return int(_FLAG.unpack_from(self._memory, 12)[0])

    def miss(self) -> None:
        """Only for the writer: there was a write, but its bytes could not be read."""
        _FLAG.pack_into(self._memory, 12, self.missed + 1)

    def append(self, data: bytes) -> None:
        """Only for the writer."""
        self._put(self.total, data)

    def _put(self, total: int, data: bytes) -> None:
        data = data[-self._size :] if len(data) > self._size else data
        at = total % self._size
        first = data[: self._size - at]
        self._memory[_PAGE + at : _PAGE + at + len(first)] = first
        rest = data[len(first) :]
        self._memory[_PAGE : _PAGE + len(rest)] = rest
        _U64.pack_into(self._memory, 0, total + len(data))

    def tail(self) -> bytes:
        """What the ring holds, oldest first."""
        total = self.total
        if total <= self._size:
            return self._memory[_PAGE : _PAGE + total]
        at = total % self._size
        return self._memory[_PAGE + at : _PAGE + self._size] + self._memory[_PAGE : _PAGE + at]


class Addresses(NamedTuple):
    """Where the C loop writes what the front reads, and reads what it writes: objects that keep the memory alive."""

    beats: ctypes.c_uint64
    deliveries: ctypes.Array[ctypes.c_char]
    timed_out: ctypes.c_uint32


class Origin(NamedTuple):
    """Who sent a signal that the front passed on: ``code`` is its ``si_code``, ``command`` the words of the sender."""

    code: int
    sender: int
    command: tuple[str, ...] | None


class Facts:
    """What the front and the tracer tell each other without a message."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _PAGE)

    @property
    def timed_out(self) -> bool:
        """The time limit passed: written by the front."""
        return bool(_FLAG.unpack_from(self._memory, _TIMED_OUT)[0])

    def set_timed_out(self) -> None:
        """Only for the front."""
        _FLAG.pack_into(self._memory, _TIMED_OUT, 1)

    @property
    def reading(self) -> bool:
        """A dead or dying process is being read, which may take its time without a sign of life."""
        return bool(_FLAG.unpack_from(self._memory, _READING)[0])

    def mark_reading(self, reads: bool) -> None:
        """Only for the tracer, or for its reporter while the tracer waits for that."""
        _FLAG.pack_into(self._memory, _READING, reads)

    @property
    def at_rest(self) -> bool:
        """A signal has stopped the command, and it waits for SIGCONT."""
        return bool(_FLAG.unpack_from(self._memory, _AT_REST)[0])

    def mark_at_rest(self, rests: bool) -> None:
        """Only for the tracer."""
        _FLAG.pack_into(self._memory, _AT_REST, rests)

    @property
    def beats(self) -> int:
        """How many events the tracer has served."""
        return int(_U64.unpack_from(self._memory, _BEATS)[0])

    def beat(self) -> None:
        """Only for the tracer: one more is served."""
        _U64.pack_into(self._memory, _BEATS, self.beats + 1)

    @property
    def reporter(self) -> int:
        """The process that tells the end of the run; 0 where there is none yet."""
        return int(_U64.unpack_from(self._memory, _REPORTER)[0])

    def set_reporter(self, pid: int) -> None:
        """Only for the tracer."""
        _U64.pack_into(self._memory, _REPORTER, pid)

    @property
    def log_error(self) -> int:
        """The errno with which the log could not be tapped, or 0: written by the command before it is executed."""
        return int(_FLAG.unpack_from(self._memory, _LOG_ERROR)[0])

    def set_log_error(self, number: int) -> None:
        """Only for the command's side of the fork."""
        _FLAG.pack_into(self._memory, _LOG_ERROR, number)

    @property
    def late(self) -> bool:
        """The command did not wait any longer for the tracer: written by the command before it is executed."""
        return bool(_FLAG.unpack_from(self._memory, _LATE)[0])

    def mark_late(self) -> None:
        """Only for the command's side of the fork."""
        _FLAG.pack_into(self._memory, _LATE, 1)

    def addresses(self) -> Addresses:
        """Only for the tracer's C loop."""
        memory = self._memory
        return Addresses(
            beats=ctypes.c_uint64.from_buffer(memory, _BEATS),
            deliveries=(ctypes.c_char * (_SIGNALS * _DELIVERY.size)).from_buffer(memory, _DELIVERIES),
            timed_out=ctypes.c_uint32.from_buffer(memory, _TIMED_OUT),
        )

    def delivered(self, signo: int, sender: int) -> None:
        """The tracer saw the command take ``signo``, sent by process ``sender``."""
        if 0 < signo < _SIGNALS:
            _DELIVERY.pack_into(self._memory, _DELIVERIES + signo * _DELIVERY.size, sender, time.monotonic())

    def was_delivered(self, signo: int, sender: int, since: float) -> bool:
        """The command took ``signo`` from ``sender`` after ``since`` (of the monotonic clock, in seconds)."""
        if not 0 < signo < _SIGNALS:
            return False
        by, when = _DELIVERY.unpack_from(self._memory, _DELIVERIES + signo * _DELIVERY.size)
        return bool(by == sender and when >= since)

    def forward(self, signo: int, origin: Origin) -> None:
        """Only for the front, before it passes a signal on, which then names the front as its sender."""
        if not 0 < signo < _SIGNALS:
            return
        line = b"\0".join(os.fsencode(word) for word in origin.command or ())[: _PAGE - _COMMAND_AT - _COMMAND.size]
        self._memory[_COMMAND_AT + _COMMAND.size : _COMMAND_AT + _COMMAND.size + len(line)] = line
        _COMMAND.pack_into(self._memory, _COMMAND_AT, signo, len(line))
        _ORIGIN.pack_into(self._memory, _FORWARDED + signo * _ORIGIN.size, 1, origin.code, origin.sender)

    def forwarded(self, signo: int) -> Origin | None:
        """Who sent the signal that the front has passed on last; None where it has passed on none of these."""
        if not 0 < signo < _SIGNALS:
            return None
        known, code, sender = _ORIGIN.unpack_from(self._memory, _FORWARDED + signo * _ORIGIN.size)
        last, size = _COMMAND.unpack_from(self._memory, _COMMAND_AT)
        at = _COMMAND_AT + _COMMAND.size
        line = self._memory[at : at + size] if last == signo else b""
        command = tuple(os.fsdecode(word) for word in line.split(b"\0")) if line else None
        return Origin(code, sender, command) if known else None
