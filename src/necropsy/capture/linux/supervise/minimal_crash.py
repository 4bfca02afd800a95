"""What is known of a death without reading the process: the signal, its sender, the log, the kernel's counters."""

from __future__ import annotations

import msgspec

from necropsy.capture.linux.inspect import memory_cgroup
from necropsy.capture.linux.stderr.log_source import Log
from necropsy.capture.linux.supervise.crash_context import CrashContext, Sent
from necropsy.capture.linux.supervise.traced_processes import Traced, now
from necropsy.formats import siginfo
from necropsy.model import Address, Crash, Fault, Gap, Message


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


def with_memory_events(crash: Crash, since: memory_cgroup.Since, ours: int) -> Crash:
    """Add the out-of-memory events that the kernel has counted and logged since the last call.

    ``ours``: how many processes of necropsy have been killed so far.
    """
    from necropsy.formats.log import scan

    events, lines = since.events(ours), since.log()
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
    """Whether the kernel has counted or logged an out-of-memory kill of this process."""
    counted = (crash.memory_events or {}).get("oom_kill", 0) > 0
    return counted or any(message.kind == "kernel-oom" for message in crash.messages or ())
