"""What a stopped thread was waiting for in the kernel: the system call that the stop interrupted, and its argument."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from necropsy.capture.process.memory import Memory
from necropsy.capture.process.registers import Registers
from necropsy.data import table
from necropsy.formats.processors import X86_64
from necropsy.model import Address, Wait

_INTERRUPTED = frozenset(value & (1 << 64) - 1 for value in (-4, -512, -513, -514, -516))
"""EINTR and the kernel's own ERESTART codes (include/linux/errno.h): what an interrupted wait leaves in ``rax``."""
_FUTEX = {202: "futex", 449: "futex_waitv"}
_WAITS_FOR_ONE = 202
"""Its fourth argument is the limit of time, 0 where there is none."""
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
    18: "pwrite64",
    19: "readv",
    40: "sendfile",
    72: "fcntl",
    73: "flock",
    74: "fsync",
    75: "fdatasync",
    77: "ftruncate",
    277: "sync_file_range",
    285: "fallocate",
    295: "preadv",
    296: "pwritev",
    299: "recvmmsg",
    307: "sendmmsg",
    441: "epoll_pwait2",
    288: "accept4",
    232: "epoll_wait",
    281: "epoll_pwait",
}
_ON_PROCESS = {61: "wait4", 247: "waitid"}
_ON_PATH = {2: 0, 21: 0, 257: 1, 437: 1}
"""open, access, openat, openat2: which argument is the path (the first open of a FIFO waits for its other end)."""
_ENDS = frozenset({15, 60, 219, 231})
"""rt_sigreturn, exit, restart_syscall, exit_group: no call of the program's own stands behind them."""
_RESTART = 219
_RESTARTED = frozenset({7, 35, 202, 230})
"""poll, nanosleep, futex, clock_nanosleep: the kernel restarts them as restart_syscall (2), with their arguments."""
_NUMBER = re.compile(rb"\xb8(.{4})", re.DOTALL)
"""``mov $number, %eax``, which glibc and musl have a few instructions before their ``syscall``."""
_BEFORE_CALL = 24
_SYSCALL = b"\x0f\x05"
_MUTEX = re.compile(r"_*(?:GI_)?_*pthread_mutex_(?:lock|timedlock|clocklock)(?:_full)?")
_OWNER = 8
"""Offset of ``__owner`` in glibc's ``struct __pthread_mutex_s`` (sysdeps/nptl/bits/struct_mutex.h), behind two ints."""


def of(pid: int, registers: Registers, memory: Memory, functions: Iterable[str | None]) -> Wait | None:
    """What the thread waits for, or in which call it was; None where it ran code of its own. x86-64 alone.

    The kernel keeps the number of a call in ``orig_rax`` until the thread is back in the program, and -1 where the
    thread was interrupted outside any. A call that was not interrupted had just ended: it may have slept in it.
    ``functions`` are its innermost ones: only a mutex of glibc's says who holds it, and that may be a thread of the
    process that this one was forked from.
    """
    if registers.processor is not X86_64:
        return None
    number = registers["orig_rax"]
    if number >> 31:
        return None
    if registers["rax"] not in _INTERRUPTED:
        return None if number in _ENDS else _call(pid, number, registers, memory, ended=True)
    if number == _RESTART:
        number = _restarted(registers, memory)
    first = registers["rdi"]
    if number in _FUTEX:
        owner = None
        if any(name is not None and _MUTEX.fullmatch(name) for name in functions):
            word = memory.exactly(first + _OWNER, 4)
            owner = int.from_bytes(word, "little") or None if word else None
        return Wait(
            call=_FUTEX[number],
            on=f"the lock at {first:#x}",
            address=Address(first),
            owner=owner,
            owner_by="lock" if owner is not None else None,
            limited=registers["r10"] != 0 if number == _WAITS_FOR_ONE else None,
        )
    return _call(pid, number, registers, memory, ended=False)


def _restarted(registers: Registers, memory: Memory) -> int:
    """The call that the kernel restarts, by the program's own instructions before it."""
    code = memory.exactly(registers["rip"] - _BEFORE_CALL, _BEFORE_CALL)
    if code is None or not code.endswith(_SYSCALL):
        return _RESTART
    for found in reversed(list(_NUMBER.finditer(code))):
        if (number := int.from_bytes(found[1], "little")) in _RESTARTED:
            return number
    return _RESTART


def _call(pid: int, number: int, registers: Registers, memory: Memory, *, ended: bool) -> Wait:
    first = registers["rdi"]
    if number in _ON_DESCRIPTOR:
        return Wait(call=_ON_DESCRIPTOR[number], on=_descriptor(pid, first & 0xFFFFFFFF), ended=ended)
    if number in _ON_PROCESS:
        signed = (first & 0xFFFFFFFF) - (1 << 32 if first & 1 << 31 else 0)
        child = f"process {signed}" if number == 61 and signed > 0 else "a child"
        return Wait(call=_ON_PROCESS[number], on=child, ended=ended)
    on = memory.c_string(registers[("rdi", "rsi")[_ON_PATH[number]]]) if number in _ON_PATH else None
    name = table("syscalls.json")["x86_64"].get(str(number))
    return Wait(call=name or f"system call {number}", on=on, ended=ended)


def _descriptor(pid: int, number: int) -> str:
    try:
        return f"file descriptor {number}, {Path(f'/proc/{pid}/fd/{number}').readlink()}"
    except OSError:
        return f"file descriptor {number}"
