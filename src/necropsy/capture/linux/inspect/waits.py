"""What a stopped thread was waiting for in the kernel: the system call that the stop interrupted, and its argument.

Where a wait was interrupted, the kernel prepares to make the call again. On x86-64 it does so when the thread goes on:
the call's number is in ``orig_rax`` meanwhile. On AArch64 it has set the program counter back to the ``svc`` already,
with the arguments as they were; a call that is never restarted has its result, EINTR, in place of the first of them
(``do_signal`` in arch/arm64/kernel/signal.c).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from necropsy.capture.process.memory import Memory, Registers
from necropsy.data import table
from necropsy.formats.processors import X86_64
from necropsy.model import Address, Wait

_INTERRUPTED = frozenset(value & (1 << 64) - 1 for value in (-4, -512, -513, -514, -516))
"""EINTR and the kernel's own ERESTART codes (include/linux/errno.h): what an interrupted wait leaves as its result."""
_FUTEX = frozenset({"futex", "futex_waitv"})
_WAITS_FOR_ONE = "futex"
"""Its fourth argument is the limit of time, 0 where there is none."""
_ON_DESCRIPTOR = frozenset(
    {
        *("read", "write", "ioctl", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "sendfile"),
        *("connect", "accept", "accept4", "sendto", "recvfrom", "sendmsg", "recvmsg", "recvmmsg", "sendmmsg"),
        *("fcntl", "flock", "fsync", "fdatasync", "ftruncate", "sync_file_range", "fallocate"),
        *("epoll_wait", "epoll_pwait", "epoll_pwait2"),
    }
)
_ON_PROCESS = frozenset({"wait4", "waitid"})
_ON_PATH = {"open": 0, "access": 0, "openat": 1, "openat2": 1}
"""Which argument is the path (the first open of a FIFO waits for its other end)."""
_ENDS = frozenset({"rt_sigreturn", "exit", "restart_syscall", "exit_group"})
"""No call of the program's own stands behind them."""
_RESTART = "restart_syscall"
_RESTARTED = frozenset({"poll", "ppoll", "nanosleep", "futex", "clock_nanosleep"})
"""The kernel restarts them as restart_syscall (2), with their arguments."""
_NUMBER = re.compile(rb"\xb8(.{4})", re.DOTALL)
"""``mov $number, %eax``, which glibc and musl have a few instructions before their ``syscall``."""
_MOVES, _MOVE = 0x7FE0001F, 0x52800008
"""Of AArch64's ``mov x8, #number`` and ``mov w8, #number``: the bits that do not differ, and their values."""
_BEFORE_CALL = 24
_MUTEX = re.compile(r"_*(?:GI_)?_*pthread_mutex_(?:lock|timedlock|clocklock)(?:_full)?")
_OWNER = 8
"""Offset of ``__owner`` in glibc's ``struct __pthread_mutex_s`` (sysdeps/nptl/bits/struct_mutex.h), behind two ints."""


@dataclass(frozen=True)
class _Call:
    """A system call by name. ``interrupted``: it waited; else it had ended, or the thread was about to make it."""

    name: str
    interrupted: bool
    arguments: tuple[int | None, ...]
    """None: it is lost."""


def of(pid: int, registers: Registers, memory: Memory, functions: Iterable[str | None]) -> Wait | None:
    """What the thread waits for, or in which call it was; None where it ran code of its own.

    The kernel keeps the number of a call until the thread is back in the program, and -1 where the thread was
    interrupted outside any. A call that was not interrupted had just ended: it may have slept in it. ``functions`` are
    its innermost ones: only a mutex of glibc's says who holds it, and that may be a thread of the process that this one
    was forked from.
    """
    call = _of_x86(registers, memory) if registers.processor is X86_64 else _of_arm(registers, memory)
    if call is None:
        return None
    if not call.interrupted:
        return None if call.name in _ENDS else _told(pid, call, memory)
    first = call.arguments[0]
    if call.name in _FUTEX and first is not None:
        owner = None
        if any(name is not None and _MUTEX.fullmatch(name) for name in functions):
            word = memory.exactly(first + _OWNER, 4)
            owner = int.from_bytes(word, "little") or None if word else None
        return Wait(
            call=call.name,
            on=f"the lock at {first:#x}",
            address=Address(first),
            owner=owner,
            owner_by="lock" if owner is not None else None,
            limited=call.arguments[3] != 0 if call.name == _WAITS_FOR_ONE else None,
        )
    return _told(pid, call, memory)


def _of_x86(registers: Registers, memory: Memory) -> _Call | None:
    number = registers["orig_rax"]
    if number >> 31:
        return None
    interrupted, name = registers["rax"] in _INTERRUPTED, _name(registers, number)
    if name == _RESTART and interrupted:
        name = _restarted(registers, memory, registers.pc)
    return _Call(name, interrupted, tuple(registers[one] for one in registers.processor.arguments))


def _of_arm(registers: Registers, memory: Memory) -> _Call | None:
    cpu, pc = registers.processor, registers.pc
    name = _name(registers, registers[cpu.call_number] & 0xFFFFFFFF)
    arguments: tuple[int | None, ...] = tuple(registers[one] for one in cpu.arguments)
    size = len(cpu.system_call)
    if memory.exactly(pc, size) == cpu.system_call:
        return _Call(_restarted(registers, memory, pc + size) if name == _RESTART else name, True, arguments)
    if memory.exactly(pc - size, size) != cpu.system_call:
        return None
    return _Call(name, registers[cpu.call_result] in _INTERRUPTED, (None, *arguments[1:]))


def _name(registers: Registers, number: int) -> str:
    names: dict[str, str] = table("syscalls.json")[registers.processor.name]
    return names.get(str(number), f"system call {number}")


def _restarted(registers: Registers, memory: Memory, behind: int) -> str:
    """The call that the kernel restarts, by the program's own instructions before ``behind``, the end of the call."""
    cpu = registers.processor
    code = memory.exactly(behind - _BEFORE_CALL, _BEFORE_CALL)
    if code is None or not code.endswith(cpu.system_call):
        return _RESTART
    if cpu is X86_64:
        numbers = [int.from_bytes(found[1], "little") for found in _NUMBER.finditer(code)]
    else:
        words = (word for (word,) in struct.iter_unpack("<I", code))
        numbers = [word >> 5 & 0xFFFF for word in words if word & _MOVES == _MOVE]
    names = (_name(registers, number) for number in reversed(numbers))
    return next((name for name in names if name in _RESTARTED), _RESTART)


def _told(pid: int, call: _Call, memory: Memory) -> Wait:
    name, first, ended = call.name, call.arguments[0], not call.interrupted
    if name in _ON_DESCRIPTOR:
        return Wait(call=name, on=None if first is None else _descriptor(pid, first & 0xFFFFFFFF), ended=ended)
    if name in _ON_PROCESS:
        signed = 0 if first is None else (first & 0xFFFFFFFF) - (1 << 32 if first & 1 << 31 else 0)
        child = f"process {signed}" if name == "wait4" and signed > 0 else "a child"
        return Wait(call=name, on=child, ended=ended)
    path = call.arguments[_ON_PATH[name]] if name in _ON_PATH else None
    return Wait(call=name, on=None if path is None else memory.c_string(path), ended=ended)


def _descriptor(pid: int, number: int) -> str:
    try:
        return f"file descriptor {number}, {Path(f'/proc/{pid}/fd/{number}').readlink()}"
    except OSError:
        return f"file descriptor {number}"
