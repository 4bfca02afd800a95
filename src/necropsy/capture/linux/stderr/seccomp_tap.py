"""The log tap: a process that is shown each write to fd 2 before the kernel does it, and keeps the last of them.

It is in a session of its own, so that neither a terminal's signals nor the end of the command in front reach it; it
lives as long as a process with the filter does. The front holds the listener too and replaces a tap that dies, so that
no waiting write is lost. The loop is in C (``csrc/tap.c``); the one in Python below does the same where the C library
is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import select
import struct
from pathlib import Path

from necropsy.capture.linux.stderr import seccomp_filter
from necropsy.capture.linux.supervise import c_library, ptrace
from necropsy.capture.linux.supervise.shared_memory import Ring

MOST = 64 * 1024
"""Of one write, its last bytes."""
_MOST_VECTORS = 64
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.process_vm_readv.restype = ctypes.c_ssize_t


class _IoVec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def _memory(tid: int, address: int, size: int) -> bytes | None:
    buffer = ctypes.create_string_buffer(size)
    here, there = _IoVec(ctypes.addressof(buffer), size), _IoVec(address, size)
    got = _LIBC.process_vm_readv(
        tid, ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1), ctypes.c_ulong(0)
    )
    return buffer.raw[:got] if got >= 0 else None


def _last(tid: int, address: int, size: int) -> bytes | None:
    skipped = max(size - MOST, 0)
    return _memory(tid, address + skipped, size - skipped) if size else b""


def content(write: seccomp_filter.Write) -> bytes | None:
    """The bytes about to be written; None where they cannot be read."""
    if not write.is_vector:
        return _last(write.tid, write.buffer, write.count)
    count = min(write.count, _MOST_VECTORS)
    table = _memory(write.tid, write.buffer, 16 * count)
    if table is None:
        return None
    pieces = [_last(write.tid, *entry) for entry in struct.iter_unpack("<QQ", table[: len(table) // 16 * 16])]
    return b"".join(piece for piece in pieces if piece)


def serve(listener: int, ring: Ring) -> None:
    """Answer every write until no process with the filter is left."""
    with contextlib.suppress(OSError):
        # The command's writes wait for this process: it must not be what a full machine kills first.
        Path("/proc/self/oom_score_adj").write_text("-1000", encoding="ascii")
    native = c_library.load()
    if native is not None:
        native.tap_serve(
            ctypes.c_int(listener),
            ctypes.c_void_p(ring.address),
            ctypes.c_uint64(ring.size),
            ctypes.c_int(ptrace.kernel_version() >= seccomp_filter.RECEIVE_ENDS),
        )
        return
    seccomp_filter.wake_in_place(listener)
    notice = ring.notice(seccomp_filter.NOTICE_SIZE)
    waiting = select.poll()
    waiting.register(listener, select.POLLIN)
    while True:
        _answer(listener, notice, ring)  # first of all what a predecessor left
        events = waiting.poll()
        if any(event & select.POLLIN for _, event in events):
            with contextlib.suppress(OSError):  # interrupted, or dead by now
                seccomp_filter.receive(listener, notice)
        elif events:
            return


def _answer(listener: int, notice: seccomp_filter.Notice, ring: Ring) -> None:
    write = seccomp_filter.in_hand(notice)
    if write is None:
        return
    try:
        data = content(write)
        if data is None:
            ring.miss()
        else:
            ring.append_once(write.id, data)
    finally:
        seccomp_filter.proceed(listener, notice, write)
