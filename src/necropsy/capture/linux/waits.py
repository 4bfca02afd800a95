"""What a stopped thread was waiting for in the kernel: the system call that the stop interrupted, and its argument."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from necropsy.capture.process.memory import Memory
from necropsy.capture.process.registers import Registers
from necropsy.model import Address, Wait

_INTERRUPTED = frozenset(value & (1 << 64) - 1 for value in (-4, -512, -513, -514, -516))
"""EINTR and the kernel's own ERESTART codes (include/linux/errno.h): what an interrupted wait leaves in ``rax``."""
_FUTEX = {202: "futex", 449: "futex_waitv"}
_ON_DESCRIPTOR = {
    0: "read",
    1: "write",
    16: "ioctl",
    17: "pread64",
    20: "writev",
    42: "connect",
    43: "accept",
    44: "sendto",
    45: "recvfrom",
    46: "sendmsg",
    47: "recvmsg",
    72: "fcntl",
    73: "flock",
    288: "accept4",
    232: "epoll_wait",
    281: "epoll_pwait",
}
_ON_PROCESS = {61: "wait4", 247: "waitid"}
_OTHERS = {
    7: "poll",
    23: "select",
    34: "pause",
    35: "nanosleep",
    65: "semop",
    128: "rt_sigtimedwait",
    230: "clock_nanosleep",
    270: "pselect6",
    271: "ppoll",
}
_MUTEX = re.compile(r"_*(?:GI_)?_*pthread_mutex_(?:lock|timedlock|clocklock)(?:_full)?")
_OWNER = 8
"""Offset of ``__owner`` in glibc's ``struct __pthread_mutex_s`` (sysdeps/nptl/bits/struct_mutex.h), behind two ints."""


def of(pid: int, registers: Registers, memory: Memory, functions: Iterable[str | None]) -> Wait | None:
    """What the thread waits for; None where it was not waiting in a system call. x86-64.

    ``functions`` are its innermost ones: only a mutex of glibc's says who holds it, and that may be a thread of the
    process that this one was forked from.
    """
    number = registers["orig_rax"]
    if registers["rax"] not in _INTERRUPTED:
        return None
    first = registers["rdi"]
    if number in _FUTEX:
        owner = None
        if any(name is not None and _MUTEX.fullmatch(name) for name in functions):
            word = memory.exactly(first + _OWNER, 4)
            owner = int.from_bytes(word, "little") or None if word else None
        return Wait(call=_FUTEX[number], on=f"the lock at {first:#x}", address=Address(first), owner=owner)
    if number in _ON_DESCRIPTOR:
        return Wait(call=_ON_DESCRIPTOR[number], on=_descriptor(pid, first & 0xFFFFFFFF))
    if number in _ON_PROCESS:
        signed = (first & 0xFFFFFFFF) - (1 << 32 if first & 1 << 31 else 0)
        return Wait(call=_ON_PROCESS[number], on=f"process {signed}" if number == 61 and signed > 0 else "a child")
    return Wait(call=_OTHERS[number]) if number in _OTHERS else None


def _descriptor(pid: int, number: int) -> str:
    try:
        return f"file descriptor {number}, {Path(f'/proc/{pid}/fd/{number}').readlink()}"
    except OSError:
        return f"file descriptor {number}"
