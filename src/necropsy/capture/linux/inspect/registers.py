"""The registers of a thread that is ptrace-stopped (x86-64): asked for, and as bytes."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable
from functools import cache

from necropsy.capture.process.registers import Registers

_GETREGS = 12
_GETFPREGS = 14
_LAYOUT = struct.Struct("<27Q")
NAMES = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi"),
    *("orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs"),
)
"""The members of ``struct user_regs_struct`` (sys/user.h), in order; the first 21 are ``struct pt_regs``."""


def parse(raw: bytes) -> Registers:
    """216 bytes of ``struct user_regs_struct``. Raises struct.error for fewer."""
    return Registers(dict(zip(NAMES, _LAYOUT.unpack_from(raw), strict=True)))


def pack(now: Registers) -> bytes:
    """The 216 bytes of ``struct user_regs_struct``."""
    return _LAYOUT.pack(*(now.values[name] for name in NAMES))


def read(tid: int) -> Registers:
    """The registers of a thread; raises OSError unless this process has ptrace-stopped it."""
    return parse(_ask(_GETREGS, tid, _LAYOUT.size))


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
            found[_GETREGS, tid] = _ask(_GETREGS, tid, _LAYOUT.size)
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
