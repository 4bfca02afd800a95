"""Waits for the end of a worker, and looks where it stands when a fatal signal comes: ptrace(2) by ctypes.

Where ptrace is not allowed, only the signal is known. A worker's death is looked at for a cheap signature; the
diagnosis is made elsewhere, of a run of its own.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import signal
import struct
from typing import Any, List, Tuple

_CONT, _GETSIGINFO, _GETREGSET, _SEIZE = 7, 0x4202, 0x4204, 0x4206
_TRACE_CLONE = 1 << 3
_STATUS = 1
_WALL = 0x40000000
_FATAL = frozenset(
    {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS, signal.SIGTRAP}
)
_SEEN = 16384
"""Bytes of the stack that are searched for return addresses."""
_BELOW, _ABOVE = 1 << 16, 1 << 20
_MACHINE = platform.machine()
_PC, _SP = {"x86_64": (16 * 8, 19 * 8), "aarch64": (32 * 8, 31 * 8)}.get(_MACHINE, (0, 0))
_SYSTEM = re.compile(
    r"/(?:libc|libstdc\+\+|libm|libpthread|libgcc_s|ld-linux[^/]*|libasan|_guard-|libpython[^/]*|python3[^/]*)\b"
)

_libc = ctypes.CDLL(None, use_errno=True)


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def _ptrace(request: int, tid: int, address: int = 0, data: int = 0) -> bool:
    _libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
    _libc.ptrace.restype = ctypes.c_long
    return bool(_libc.ptrace(request, tid, address, data) != -1)


def trace(pid: int) -> bool:
    """Begin to trace a process and the threads that it starts; false where that is not allowed."""
    return bool(_PC) and _ptrace(_SEIZE, pid, 0, _TRACE_CLONE)


def ended(pid: int, *, is_traced: bool, wanted: str | None = None) -> dict[str, Any]:
    """Wait for the end of a process. ``wanted``: the library whose code is named first, if it is on the stack."""
    seen: dict[str, Any] = {}
    while True:
        try:
            tid, status = os.waitpid(-1 if is_traced else pid, _WALL if is_traced else 0)
        except ChildProcessError:
            return {"signal": None, "code": None}
        if not os.WIFSTOPPED(status):
            if tid != pid:
                continue
            number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            return {"signal": number, "code": None if number else os.WEXITSTATUS(status), **(seen if number else {})}
        number = os.WSTOPSIG(status)
        if status >> 16:
            number = 0  # an event of ptrace
        elif number in _FATAL:
            try:
                seen = _look(pid, tid, wanted)
            except (OSError, ValueError, struct.error):
                seen = {}
        _ptrace(_CONT, tid, 0, number)


def _look(pid: int, tid: int, wanted: str | None) -> dict[str, Any]:
    """Where a thread stands: in which library, and whether it has left its stack."""
    buffer = ctypes.create_string_buffer(1024)
    vector = _Vector(ctypes.cast(buffer, ctypes.c_void_p), len(buffer))
    if not _ptrace(_GETREGSET, tid, _STATUS, ctypes.addressof(vector)):
        return {}
    (pc,) = struct.unpack_from("=Q", buffer.raw, _PC)
    (sp,) = struct.unpack_from("=Q", buffer.raw, _SP)
    information = ctypes.create_string_buffer(128)
    number = address = 0
    if _ptrace(_GETSIGINFO, tid, 0, ctypes.addressof(information)):
        number, _, code = struct.unpack_from("=3i", information.raw)
        address = struct.unpack_from("=Q", information.raw, 16)[0] if 0 < code < 128 else 0
    mapped = _mapped(pid)
    left_stack = (
        number == signal.SIGSEGV
        and -_BELOW <= address - sp <= _ABOVE
        and not any(low <= address < high for low, high, _, _, _ in mapped)
    )
    return {"place": _place(pid, pc, sp, mapped, wanted), "stack": left_stack}


Mapped = List[Tuple[int, int, int, str, bool]]


def _mapped(pid: int) -> Mapped:
    found = []
    with open("/proc/%d/maps" % pid, encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            words = line.split(None, 5)
            low, high = (int(one, 16) for one in words[0].split("-"))
            if words[1][0] == "r":
                path = words[5].strip() if len(words) > 5 else ""
                found.append((low, high, int(words[2], 16), path, "x" in words[1]))
    return found


def _place(pid: int, pc: int, sp: int, mapped: Mapped, wanted: str | None) -> str | None:
    """``my_op.so+0x1a2b``: the code at ``pc``, or, where that is the C library's, whose call it is in."""
    here = _named(pc, mapped)
    if here is not None and not _SYSTEM.search("/" + here):
        return here
    with open("/proc/%d/mem" % pid, "rb", buffering=0) as memory:
        try:
            memory.seek(sp)
            stack = memory.read(_SEEN)
        except OSError:
            return here
    words = struct.unpack_from("=%dQ" % (len(stack) // 8), stack)
    first = None
    for word in words:
        name = _named(word, mapped)
        if name is None or _SYSTEM.search("/" + name):
            continue
        first = first or name
        if wanted is None or name.startswith(os.path.basename(wanted) + "+"):
            return name
    return first or here


def _named(address: int, mapped: Mapped) -> str | None:
    for low, high, offset, path, is_code in mapped:
        if low <= address < high:
            return "%s+%#x" % (os.path.basename(path), address - low + offset) if is_code and path[:1] == "/" else None
    return None
