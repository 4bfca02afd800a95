"""Stops a thread before it executes an address, without a change to its memory. Linux 5.19 and later.

The processor watches the address (perf_event_open(2), ``PERF_TYPE_BREAKPOINT``). The kernel sends SIGTRAP, and the
tracer continues the thread without it. The breakpoint belongs to a descriptor of the tracer: it disappears with the
tracer and at an exec, and children do not inherit it, so no process gets the signal untraced. It needs no capability
where ``kernel.perf_event_paranoid`` is 2 or less and no seccomp filter forbids the call (Docker's does).
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import re
import signal
import struct

from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.traced_processes import has_signal, status_of

_OURS = int.from_bytes(b"necropsy", "little")
"""What the kernel repeats in the siginfo; also in ``csrc/signals.c``."""
_TYPE_BREAKPOINT, _EXECUTED = 5, 4
_LENGTHS = {"x86_64": 8, "aarch64": 4}
"""What the kernel asks for where code is watched (``arch_build_bp_info`` of both): ``sizeof(long)``, an instruction."""
_SIZE = 128
"""``PERF_ATTR_SIZE_VER7``."""
_FLAGS = 1 << 5 | 1 << 6 | 1 << 36 | 1 << 37
"""``exclude_kernel``, ``exclude_hv``, ``remove_on_exec``, ``sigtrap``."""
_INHERITED = 1 << 1 | 1 << 35
"""``inherit``, ``inherit_thread``: by threads, not by processes."""
_CLOSE_ON_EXEC = 8
_TRAP_PERF = 6
_SIGINFO = struct.Struct("<8xi4xQQ")
"""``si_code``, ``si_addr``, ``si_perf_data``."""
_OLDEST = (5, 19)
"""Before, the kernel forced SIGTRAP upon a thread that blocks it."""
_SIGSETXID = 33
"""Of glibc, which lets nobody block it: it does so itself, with all others, while ``pthread_create`` calls clone(2)."""
_LIBC = ctypes.CDLL(None, use_errno=True)


@functools.cache
def is_supported() -> bool:
    """The processor and the kernel have such breakpoints; permission is another matter."""
    return platform.machine() in _LENGTHS and release() >= _OLDEST


def release() -> tuple[int, int]:
    """The version of Linux, as far as it is a number."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found[1]), int(found[2])) if found is not None else (0, 0)


def opened(tid: int, address: int, *, with_new_threads: bool = False) -> int:
    """A descriptor: while it is open, a SIGTRAP stops the thread before it executes ``address``.

    ``with_new_threads``: the threads that it creates from now on, too, and those that they create.

    Raises OSError where it is not permitted, the thread is gone, or another program uses all breakpoints.
    """
    status = status_of(tid)
    is_creating = has_signal(status, "SigBlk", _SIGSETXID)
    masks = ("SigIgn", "SigCgt") if is_creating else ("SigBlk", "SigIgn", "SigCgt")
    if not is_supported() or any(has_signal(status, name, signal.SIGTRAP) for name in masks):
        raise PermissionError("SIGTRAP is not free for a breakpoint")
    attributes = bytearray(_SIZE)
    struct.pack_into("<II8xQ", attributes, 0, _TYPE_BREAKPOINT, _SIZE, 1)
    flags = _FLAGS | (_INHERITED if with_new_threads else 0)
    struct.pack_into("<Q4xIQQ", attributes, 40, flags, _EXECUTED, address, _LENGTHS[platform.machine()])
    struct.pack_into("<Q", attributes, 120, _OURS)
    structure = (ctypes.c_char * _SIZE).from_buffer(attributes)
    handle = int(_LIBC.syscall(ptrace.HERE.calls["perf_event_open"], structure, tid, -1, -1, _CLOSE_ON_EXEC))
    if handle < 0:
        raise OSError(ctypes.get_errno(), "perf_event_open")
    return handle


def is_hit(tid: int, signo: int) -> bool:
    """The signal that the thread is stopped at comes from a breakpoint of ours."""
    return signo == signal.SIGTRAP and address_of(ptrace.getsiginfo(tid)) is not None


def address_of(info: bytes) -> int | None:
    """Of a siginfo: the address of the breakpoint of ours that was hit; None of any other signal."""
    code, address, data = _SIGINFO.unpack_from(info)
    return int(address) if code == _TRAP_PERF and data == _OURS else None
