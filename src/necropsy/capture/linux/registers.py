"""The general registers of a stopped thread (x86-64)."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from necropsy.model import Address

_GETREGS = 12
_GETFPREGS = 14
_LAYOUT = struct.Struct("<27Q")
NAMES = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi"),
    *("orig_rax", "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs"),
)
"""The members of ``struct user_regs_struct`` (sys/user.h), in order; the first 21 are ``struct pt_regs``."""

_SHOWN = (
    *("rip", "rsp", "rbp", "rax", "rbx", "rcx", "rdx", "rsi", "rdi"),
    *("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "eflags", "fs_base"),
)


@dataclass(frozen=True)
class Registers:
    """The values by name."""

    values: Mapping[str, int]

    def __getitem__(self, name: str) -> int:
        return self.values[name]

    @property
    def rip(self) -> int:
        """The program counter."""
        return self.values["rip"]

    @property
    def rsp(self) -> int:
        """The stack pointer."""
        return self.values["rsp"]

    @property
    def rbp(self) -> int:
        """The frame pointer, where code keeps one."""
        return self.values["rbp"]

    def as_noun(self) -> dict[str, Address]:
        """As the model says it, in the order in which debuggers show them."""
        return {name: Address(self.values[name]) for name in _SHOWN}


def parse(raw: bytes) -> Registers:
    """216 bytes of ``struct user_regs_struct``.

    Raises:
        struct.error: fewer bytes.

    """
    return Registers(dict(zip(NAMES, _LAYOUT.unpack_from(raw), strict=True)))


def pack(now: Registers) -> bytes:
    """The 216 bytes of ``struct user_regs_struct``."""
    return _LAYOUT.pack(*(now.values[name] for name in NAMES))


def read(tid: int) -> Registers:
    """The registers of a thread that is ptrace-stopped by this process.

    Raises:
        OSError: it is not.

    """
    return parse(_ask(_GETREGS, tid, _LAYOUT.size))


def read_floating(tid: int) -> bytes:
    """The 512 bytes of ``struct user_fpregs_struct``: x87 and SSE registers of a stopped thread.

    Raises:
        OSError: it is not stopped by this process.

    """
    return _ask(_GETFPREGS, tid, 512)


def _ask(request: int, tid: int, size: int) -> bytes:
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(size)
    libc.ptrace.restype = ctypes.c_long
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    if libc.ptrace(request, tid, None, ctypes.cast(buffer, ctypes.c_void_p)) == -1:
        raise OSError(ctypes.get_errno(), f"registers of thread {tid}: {os.strerror(ctypes.get_errno())}")
    return buffer.raw
