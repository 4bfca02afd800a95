"""The registers of a thread: of one that is ptrace-stopped (x86-64), and as a core has them."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable
from functools import cache

from necropsy.capture.process.registers import Registers
from necropsy.formats.processors import X86_64, Processor

_GETREGS = 12
_GETFPREGS = 14
_SIZE = X86_64.size


def parse(raw: bytes, processor: Processor = X86_64) -> Registers:
    """The registers of NT_PRSTATUS (x86-64: ``struct user_regs_struct``). Raises struct.error for too few bytes."""
    return Registers(processor.parse(raw), processor)


def pack(now: Registers) -> bytes:
    """The same as bytes."""
    return now.processor.pack(now.values)


def read(tid: int) -> Registers:
    """The registers of a thread; raises OSError unless this process has ptrace-stopped it."""
    return parse(_ask(_GETREGS, tid, _SIZE))


def read_floating(tid: int) -> bytes:
    """512 bytes of ``struct user_fpregs_struct`` (x87 and SSE); raises OSError unless the thread is stopped by us."""
    return _ask(_GETFPREGS, tid, 512)


@cache
def _libc() -> ctypes.CDLL:
    """Not at import: a core is read on other systems too."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    return libc


Taken = dict[tuple[int, int], bytes]
"""What was read of stopped threads, by request and thread."""
_taken: Taken = {}


def take(tids: Iterable[int], *, floating: int) -> Taken:
    """The registers of stopped threads, for another process to use; of the first ``floating`` those of SSE too."""
    found: Taken = {}
    for place, tid in enumerate(tids):
        with contextlib.suppress(OSError):
            found[_GETREGS, tid] = _ask(_GETREGS, tid, _SIZE)
            if place < floating:
                found[_GETFPREGS, tid] = _ask(_GETFPREGS, tid, 512)
    return found


def hand_over(taken: Taken) -> None:
    """In this process, which traces nobody, ``read`` answers with what another process has taken."""
    _taken.clear()
    _taken.update(taken)


def _ask(request: int, tid: int, size: int) -> bytes:
    if (request, tid) in _taken:
        return _taken[request, tid]
    buffer = ctypes.create_string_buffer(size)
    if _libc().ptrace(request, tid, None, ctypes.cast(buffer, ctypes.c_void_p)) == -1:
        raise OSError(ctypes.get_errno(), f"registers of thread {tid}: {os.strerror(ctypes.get_errno())}")
    return buffer.raw
