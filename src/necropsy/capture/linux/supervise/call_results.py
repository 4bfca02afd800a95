"""System calls that return EINTR to a stopped thread: which they are, and how to have them made again.

On x86-64 the kernel looks at the result when the thread goes on: its own ERESTARTNOHAND in the place of EINTR has the
call made again if no handler runs, and returns EINTR if one does. On AArch64 (``do_signal`` in
arch/arm64/kernel/signal.c) it has looked before the tracer may write anything. There the program counter is set back to
the ``svc``, with the first argument in its register again, which the result took; if a handler is to run after all,
both are undone. The kernel still knows that argument, and tells it (``/proc/TID/syscall``) if the thread is said to be
in the call.

There nothing tells a call that has just been interrupted from one whose EINTR a handler has returned to, with the next
signal behind it. The thread then has not waited in between.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.ptrace import HERE
from necropsy.capture.linux.supervise.traced_processes import status_of
from necropsy.formats.processors import AARCH64, X86_64

ERESTARTNOHAND = -514
_EINTR = -4
_RAX = 8 * X86_64.status.index("rax")
_USER_64 = 0x33
"""``__USER_CS``: the thread runs 64-bit code."""
_SIGNED = struct.Struct("<q")
_NAMES = {
    X86_64.name: {
        232: "epoll_wait",
        281: "epoll_pwait",
        441: "epoll_pwait2",
        65: "semop",
        220: "semtimedop",
        128: "rt_sigtimedwait",
        208: "io_getevents",
        333: "io_pgetevents",
        426: "io_uring_enter",
        42: "connect",
        0: "read",
        19: "readv",
        43: "accept",
        45: "recvfrom",
        47: "recvmsg",
        288: "accept4",
        299: "recvmmsg",
        1: "write",
        20: "writev",
        44: "sendto",
        46: "sendmsg",
        307: "sendmmsg",
    },
    AARCH64.name: {
        22: "epoll_pwait",
        441: "epoll_pwait2",
        193: "semop",
        192: "semtimedop",
        137: "rt_sigtimedwait",
        4: "io_getevents",
        292: "io_pgetevents",
        426: "io_uring_enter",
        203: "connect",
        63: "read",
        65: "readv",
        202: "accept",
        207: "recvfrom",
        212: "recvmsg",
        242: "accept4",
        243: "recvmmsg",
        64: "write",
        66: "writev",
        206: "sendto",
        211: "sendmsg",
        269: "sendmmsg",
    },
}
"""Those that are never restarted after a signal (signal(7)), and may be repeated, unlike close(2)."""
_CALLS = _NAMES[HERE.name]
_MOST_THREADS = 1024


@dataclass(frozen=True)
class CallRegisters:
    """Those of a system call, signed: its arguments; the counters tell calls apart."""

    name: str
    arguments: tuple[int, ...]
    counter: int
    stack: int


_Known = dict[int, tuple[int, ...]]
_again: _Known = {}
"""AArch64: of threads that were set back, the program counter and the first argument."""
_handled: _Known = {}
"""AArch64: of threads that took a signal instead, the counters, and how often they had given up the processor."""


def of_interrupted(tid: int) -> CallRegisters | None:
    """The call of a stopped thread, made by 64-bit code, that returns EINTR and may be made again; else None.

    Raises OSError where the thread is gone.
    """
    data = ptrace.getregset(tid)
    if len(data) != ptrace.REGISTERS_SIZE or _signed(data, HERE.call_result) != _EINTR:
        return None
    number = HERE.word(data, HERE.call_number)
    if number not in _CALLS or (HERE is X86_64 and HERE.word(data, "cs") != _USER_64):
        return None
    arguments = [_signed(data, name) for name in HERE.arguments]
    if HERE is AARCH64:
        first = _first_argument(tid, data, number)
        if first is None:
            return None
        arguments[0] = first
    return CallRegisters(_CALLS[number], tuple(arguments), HERE.word(data, HERE.counter), HERE.word(data, HERE.pointer))


def replace(tid: int, call: CallRegisters, result: int) -> None:
    """Have the call of a stopped thread return ``result``, or be made again (ERESTARTNOHAND).

    Raises OSError where the thread is gone.
    """
    if HERE is X86_64:
        ptrace.pokeuser(tid, _RAX, result)
    elif result == ERESTARTNOHAND:
        counter = call.counter - len(HERE.system_call)
        _remember(_again, tid, (counter, call.arguments[0]))
        _set(tid, counter, call.arguments[0])
    else:
        _set(tid, call.counter, result)


def takes_signal(tid: int) -> None:
    """Before a stopped thread takes a signal that it does not ignore: a call that was set back returns EINTR after all.

    Raises OSError where the thread is gone.
    """
    if HERE is not AARCH64:
        return
    data = ptrace.getregset(tid)
    if len(data) != ptrace.REGISTERS_SIZE:
        return
    counter, result = HERE.word(data, HERE.counter), _signed(data, HERE.call_result)
    if _again.pop(tid, None) == (counter, result):
        counter, result = counter + len(HERE.system_call), _EINTR
        _set(tid, counter, result)
    if result == _EINTR:
        _remember(_handled, tid, (counter, HERE.word(data, HERE.pointer), switches_of(status_of(tid))))


def is_set_back(tid: int) -> bool:
    """Whether a stopped thread has not made its call again yet. Raises OSError where the thread is gone."""
    if tid not in _again:
        return False
    data = ptrace.getregset(tid)
    return len(data) == ptrace.REGISTERS_SIZE and _again[tid] == (
        HERE.word(data, HERE.counter),
        _signed(data, HERE.call_result),
    )


def switches_of(status: dict[str, str]) -> int:
    """How often a thread with this ``/proc/TID/status`` has given up the processor."""
    return int(status.get("voluntary_ctxt_switches", "0"))


def _first_argument(tid: int, data: bytes, number: int) -> int | None:
    """What the result has overwritten; None where the thread has not been in the call just now."""
    counter, pointer = HERE.word(data, HERE.counter), HERE.word(data, HERE.pointer)
    size = len(HERE.system_call)
    if HERE.in_call(data) is not None or _read(tid, counter - size, size) != HERE.system_call:
        return None
    last = _handled.get(tid)
    if last is not None and last[:2] == (counter, pointer):
        switches = switches_of(status_of(tid))
        if switches <= last[2] + 1:  # it has done nothing but run a handler, if there is one, and stop again
            _remember(_handled, tid, (counter, pointer, switches))
            return None
    ptrace.set_call(tid, number)
    try:
        words = Path(f"/proc/{tid}/syscall").read_text(encoding="ascii").split()
    finally:
        ptrace.set_call(tid, -1)
    if len(words) < 2 or words[0] != str(number):
        return None
    first = int(_SIGNED.unpack(struct.pack("<Q", int(words[1], 16)))[0])
    # Debian's Linux 6.12 for pages of 16 KiB has the result there too: the argument is lost, and EINTR stays.
    return None if first == _EINTR else first


def _read(tid: int, address: int, size: int) -> bytes:
    handle = os.open(f"/proc/{tid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(handle, size, address)
    except (OSError, OverflowError):
        return b""
    finally:
        os.close(handle)


def _set(tid: int, counter: int, result: int) -> None:
    data = ptrace.getregset(tid)
    values = HERE.parse(data) | {HERE.counter: counter, HERE.call_result: result & (1 << 64) - 1}
    ptrace.setregset(tid, HERE.pack(values))


def _remember(known: _Known, tid: int, what: tuple[int, ...]) -> None:
    if len(known) >= _MOST_THREADS:
        known.pop(next(iter(known)))
    known[tid] = what


def _signed(data: bytes, name: str) -> int:
    return int(_SIGNED.unpack(struct.pack("<Q", HERE.word(data, name)))[0])
