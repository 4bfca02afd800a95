"""Runs a piece of work on a stack of a given size, with nothing below it that an overflow could hit instead."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Callable, List

_BELOW = 128 << 20
"""Bytes below the stack that may not be touched, as many as the kernel keeps free below a process's first stack."""
_ATTRIBUTES = 256
"""At least ``sizeof (pthread_attr_t)``."""
_NO_ACCESS, _READ_WRITE = 0, mmap.PROT_READ | mmap.PROT_WRITE if os.name != "nt" else 0
_PRIVATE = 0x4022
"""``MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE``, on x86-64 and AArch64."""


class NoStackError(Exception):
    """The system has no such thread."""


def run(size: int, work: Callable[[], None]) -> None:
    """Do the work in a thread whose stack has so many bytes, and wait for it.

    Raises:
        NoStackError: the system has no memory for it, or no such thread.
        BaseException: what the work raises.

    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    size = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    low = libc.mmap(None, _BELOW + size, _NO_ACCESS, _PRIVATE, -1, 0)
    if low is None or low == ctypes.c_void_p(-1).value:
        raise NoStackError("no memory for a stack of %d bytes" % size)
    raised: List[BaseException] = []

    def begin(_argument: Any) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised where the work was wanted
            raised.append(error)

    function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(begin)
    attributes, thread = ctypes.create_string_buffer(_ATTRIBUTES), ctypes.c_ulong()
    libc.pthread_attr_init(attributes)
    libc.pthread_attr_setstack(attributes, ctypes.c_void_p(low + _BELOW), ctypes.c_size_t(size))
    try:
        if libc.mprotect(ctypes.c_void_p(low + _BELOW), ctypes.c_size_t(size), _READ_WRITE):
            raise NoStackError("no memory for a stack of %d bytes" % size)
        failed = libc.pthread_create(ctypes.byref(thread), attributes, function, None)
        if failed:
            raise NoStackError("no thread: %s" % os.strerror(failed))
        libc.pthread_join(thread, None)
    finally:
        libc.pthread_attr_destroy(attributes)
        libc.munmap(ctypes.c_void_p(low), ctypes.c_size_t(_BELOW + size))
    if raised:
        raise raised[0]
