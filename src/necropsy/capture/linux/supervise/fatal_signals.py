"""From a stopped process to its ``Crash``: which signals kill, whether a handler is still at work, what is read."""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import signal
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from necropsy.capture.linux.inspect import memory_cgroup, siginfo
from necropsy.capture.linux.stderr.log_source import Log
from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.crash_context import CrashContext, Sent
from necropsy.capture.linux.supervise.traced_processes import Traced, has_signal, now, status_of
from necropsy.model import Address, Crash, Fault, Gap, Message

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

_REGISTER = struct.Struct("<Q")
_RAX, _ORIG_RAX, _RIP = 10 * 8, 15 * 8, 16 * 8
_SYSCALL = b"\x0f\x05"
_EXIT = 60
"""``__NR_exit`` of x86-64: one thread ends, not the process."""


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
    """A fault of the first process of a PID namespace, which it does not die of as long as it is traced.

    ``force_sig_info_to_task`` in kernel/signal.c. Of other signals without a handler it does not die untraced either.
    """
    numbers = status_of(pid).get("NSpid", "").split()
    return len(numbers) > 1 and numbers[-1] == "1" and info is not None and sent_by(info) is None


def ends_alone(tid: int) -> bool:
    """A thread at its EVENT_EXIT called exit(2) for itself; else the whole process ends. x86-64."""
    registers = ptrace.getregset(tid)
    return len(registers) != ptrace.REGISTERS_SIZE or _REGISTER.unpack_from(registers, _ORIG_RAX)[0] == _EXIT


def was_refused(pid: int, tid: int) -> bool:
    """A thread at its EVENT_EXIT stands right behind a system call that was not made: a seccomp filter ended it there.

    The kernel puts the call's number back before it ends the process by SIGSYS (``syscall_rollback`` in
    kernel/seccomp.c); it does not where it ends the thread alone (``SECCOMP_RET_KILL_THREAD``).
    """
    try:
        registers = ptrace.getregset(tid)
        if len(registers) != ptrace.REGISTERS_SIZE:
            return False
        number, result, counter = (_REGISTER.unpack_from(registers, at)[0] for at in (_ORIG_RAX, _RAX, _RIP))
        handle = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # it is gone
    try:
        return number == result and os.pread(handle, 2, counter - 2) == _SYSCALL
    except (OSError, OverflowError):
        return False
    finally:
        os.close(handle)


def is_to_be_read(process: Traced, tid: int, signo: int) -> bool:
    """The thread ends by a signal that was not seen to kill: it was refused a call, or had had a handler before."""
    if signo == signal.SIGSYS:
        return process.threads == 1 or was_refused(process.pid, tid)
    return signo in CORE


def loading() -> Iterator[None]:
    """Load what ``read`` needs, piece by piece; never raises."""
    here = "necropsy.capture.linux"
    ours = (
        f"{here}.{name}"
        for name in (
            "unwind.symbolizer",
            "unwind.unwinder",
            "inspect.framework_op",
            "core.small_core",
            "inspect.crash_builder",
        )
    )
    for name in ("drgn", "capstone", "capstone.x86_const", *ours):
        with contextlib.suppress(Exception):  # what is missing is told at the death
            importlib.import_module(name)
        yield
    with contextlib.suppress(Exception):
        messages_of("")
    yield
    with contextlib.suppress(Exception):
        from necropsy.capture.process.secret_bytes import literals

        literals()
    yield


def warming() -> Iterator[None]:
    """Get ready what is needed only by most deaths, for who has nothing else to do; never raises."""
    with contextlib.suppress(Exception):
        from necropsy import redact

        # The command's environment is much the same, and it is masked in the core.
        redact.variables(os.environ)
    yield
    with contextlib.suppress(Exception):
        from necropsy.secrets.forms import forms

        for form in itertools.chain(*forms()):
            _ = form.pattern  # memory is full of what looks like one
            yield


def read(death: CrashContext) -> Crash:
    """Everything that the stopped process shows. Never raises: the process must die its own death."""
    try:
        from necropsy.capture.linux.inspect import crash_builder

        return crash_builder.capture(death)
    except Exception as error:  # noqa: BLE001 - a defect in reading must cost the report, not the process
        return minimal(death, Gap(part="threads", why=f"reading failed: {type(error).__name__}: {error}"))


def minimal(death: CrashContext, *gaps: Gap) -> Crash:
    """What is known without reading the process: the signal, who sent it, the log."""
    name = siginfo.name_of(death.signo)
    fault = Fault(signal=name) if death.signo else None
    if death.siginfo is not None:
        info = siginfo.decode(death.siginfo)
        fault = Fault(
            signal=name,
            code=info.code,
            address=None if info.address is None else Address(info.address),
            sender=info.sender,
            sender_command=death.sender_command,
            sent_by_itself=None if info.sender is None else info.sender == death.pid,
        )
    return Crash(
        pid=death.pid,
        fault=fault,
        log_tail=death.log_tail,
        messages=messages_of(death.log_tail),
        gaps=(*death.gaps, *gaps),
    )


def messages_of(tail: str | None) -> tuple[Message, ...] | None:
    """The known phrases at the end of the log; None where it was not seen."""
    if tail is None:
        return None
    from necropsy.formats import log

    return log.scan(tail)


def killed(process: Traced, signo: int, log: Log) -> Crash:
    """A process ended by a signal that leaves no trace in it: somebody's SIGTERM, the kernel's SIGKILL."""
    pid, sent = process.pid, process.sent.get(signo, Sent(process.signals.get(signo)))
    tail, gaps = log.tail(pid)
    why = f"{siginfo.name_of(signo)} does not come from an error in the program's code: its threads were not read"
    unread = [Gap(part=part, why=why) for part in ("threads", "registers", "modules")]
    if sent.info is None:
        unread.append(Gap(part="fault", why="the kernel gives no details for this signal"))
    death = CrashContext(
        pid=pid,
        tid=pid,
        signo=signo,
        siginfo=sent.info,
        threads=(),
        log_tail=tail,
        gaps=(*gaps, *unread),
        sender_command=sent.command,
    )
    return msgspec.structs.replace(minimal(death), at=now(), limits=process.limits)


def with_memory_events(crash: Crash, since: memory_cgroup.Since) -> Crash:
    """What the kernel counted and logged for want of memory since it was last asked: who killed it, if it was it."""
    from necropsy.formats.log import scan

    events, lines = since.events(), since.log()
    said = tuple(
        message
        for line in lines
        for message in scan(line, where="kernel log")
        if message.kind != "kernel-oom" or message.fields.get("pid") == str(crash.pid)
    )
    return msgspec.structs.replace(
        crash,
        memory_events=events,
        memory_cgroup=str(since.folder) if events is not None else None,
        memory_limit=memory_cgroup.limit(since.folder) if events is not None and since.folder else None,
        messages=(*(crash.messages or ()), *said) if said else crash.messages,
    )


def lacked_memory(crash: Crash) -> bool:
    """The kernel counted or logged that it killed the process for want of memory."""
    counted = (crash.memory_events or {}).get("oom_kill", 0) > 0
    return counted or any(message.kind == "kernel-oom" for message in crash.messages or ())


def task_ids(pid: int) -> set[int]:
    """The threads that the process has now."""
    try:
        return {int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()}
    except OSError:
        return set()
