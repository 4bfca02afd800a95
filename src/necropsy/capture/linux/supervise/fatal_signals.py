"""Which signals kill a process, who sent one, and whether a handler is still at work."""

from __future__ import annotations

import os
import signal
import struct
from pathlib import Path

from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.ptrace import HERE
from necropsy.capture.linux.supervise.traced_processes import Traced, has_signal, status_of
from necropsy.formats.processors import X86_64

CORE = frozenset(
    {
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGFPE,
        signal.SIGILL,
        signal.SIGABRT,
        signal.SIGTRAP,
        signal.SIGSYS,
        signal.SIGQUIT,
        signal.SIGXCPU,
        signal.SIGXFSZ,
    }
)
"""Their default action is to dump core (signal(7)): the process is read before it dies of one."""
HARMLESS = frozenset({signal.SIGCHLD, signal.SIGURG, signal.SIGWINCH, signal.SIGCONT})
STOPS = frozenset({signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
_DEAD_MODE, _HAS_DEAD_MODE = "3", (5, 17)
"""``SECCOMP_MODE_DEAD`` (kernel/seccomp.c), the mode of a thread that was ended, and the first kernel that has it."""


def is_default(pid: int, signo: int) -> bool:
    """The process neither handles nor ignores the signal."""
    status = status_of(pid)
    return bool(status) and not has_signal(status, "SigCgt", signo) and not has_signal(status, "SigIgn", signo)


def is_fatal(tid: int, stop: int) -> bool:
    """A thread stopped at ``stop`` (event << 8 | signal) is stopped at a signal that kills."""
    return stop >> 8 == 0 and stop in CORE and is_default(tid, stop)


def sent_by(info: bytes) -> int | None:
    """The process that sent the signal; None where the kernel raised it."""
    _, _, code = struct.unpack_from("<iii", info)
    return int(struct.unpack_from("<i", info, 16)[0]) if code <= 0 else None


def is_unkillable(pid: int, info: bytes | None) -> bool:
    """A fault in the init process of a PID namespace, which does not kill it as long as it is traced.

    ``force_sig_info_to_task`` in kernel/signal.c. Other signals without a handler do not kill it untraced either.
    """
    numbers = status_of(pid).get("NSpid", "").split()
    return numbers[-1:] == ["1"] and info is not None and sent_by(info) is None


def ends_alone(tid: int) -> bool:
    """A thread at its EVENT_EXIT called exit(2) for itself; else the whole process ends."""
    registers = ptrace.getregset(tid)
    return len(registers) != ptrace.REGISTERS_SIZE or HERE.in_call(registers) == HERE.calls["exit"]


def was_refused(pid: int, tid: int) -> bool:
    """A thread at its EVENT_EXIT is right behind a system call for which a seccomp filter ended the whole process.

    The kernel ends it by SIGSYS (``__seccomp_filter`` in kernel/seccomp.c), and not where only the thread is ended
    (``SECCOMP_RET_KILL_THREAD``). On x86-64 it then has the call's number where the result would be
    (``syscall_rollback``). On AArch64 it has left the call (``do_signal`` in arch/arm64/kernel/signal.c), and a thread
    that is ended alone has not; the process's other threads may look the same, but are in another seccomp mode.
    """
    try:
        registers = ptrace.getregset(tid)
        if len(registers) != ptrace.REGISTERS_SIZE:
            return False
        number, counter = HERE.in_call(registers), HERE.word(registers, HERE.counter)
        if HERE is X86_64:
            is_ended = number is not None and number == HERE.word(registers, HERE.call_result)
        else:
            is_known = ptrace.kernel_version() >= _HAS_DEAD_MODE
            is_ended = number is None and (not is_known or status_of(tid).get("Seccomp") == _DEAD_MODE)
        if not is_ended:
            return False
        handle = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # it is gone
    try:
        size = len(HERE.system_call)
        return os.pread(handle, size, counter - size) == HERE.system_call
    except (OSError, OverflowError):
        return False
    finally:
        os.close(handle)


def is_to_be_read(process: Traced, tid: int, signo: int) -> bool:
    """The thread ends by a signal that was not seen to kill: it was refused a call, or had had a handler before."""
    if signo == signal.SIGSYS:
        return process.threads == 1 or was_refused(process.pid, tid)
    return signo in CORE


def task_ids(pid: int) -> set[int]:
    """The threads that the process has now."""
    try:
        return {int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()}
    except OSError:
        return set()
