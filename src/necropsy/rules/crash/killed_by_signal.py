"""Somebody else ended the program.

What happened
-------------
Another process, the kernel or the terminal sent a signal that ends a program: SIGKILL, SIGTERM, SIGINT (Ctrl-C), SIGHUP (the terminal was closed). Nothing was wrong
with the program's code at that moment.

How to be sure
--------------
The signal is one that processors do not raise, or the kernel names another process as its sender. SIGKILL (exit code 137, status -9) leaves no trace in the
process itself. **137 alone does not mean out of memory**: the OOM killer sends it, and so do ``kill -9``, a batch system at its time limit, ``docker stop`` after ten
seconds, and a supervisor. Out of memory is proved by the kernel's log or the cgroup's counters only.

How to fix it now
-----------------
Find who sent it. For memory: ``dmesg | grep -i 'killed process'`` and ``oom_kill`` in ``/sys/fs/cgroup/memory.events``. For a batch system: its log of the job, time limit and memory
limit. For a container: ``docker inspect`` (``OOMKilled``). For a notebook: its server's log.

How to prevent it
-----------------
Write checkpoints; handle SIGTERM (``signal.signal``) to save and leave; ask for the memory and time that the job needs.

What it is often mistaken for
-----------------------------
A crash of the program; and, for 137, always for a lack of memory.

Sources
-------
- https://man7.org/linux/man-pages/man7/signal.7.html
- https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files (memory.events)
"""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Fix
from necropsy.questions import died_by, messages, quote, sent_by_another, signal_of
from necropsy.rule import Finding, Rule
from necropsy.rules.culprit import culprit_of, python_line

_SENT = {
    "SIGKILL": "SIGKILL, which nothing can catch",
    "SIGTERM": "SIGTERM, the polite request to end",
    "SIGINT": "SIGINT, as Ctrl-C sends it",
    "SIGHUP": "SIGHUP, sent when the terminal or the connection is closed",
    "SIGQUIT": "SIGQUIT, as Ctrl-\\ sends it",
    "SIGPIPE": "SIGPIPE: it wrote to a pipe that nobody reads any more",
    "SIGALRM": "SIGALRM, a timer that ran out",
    "SIGUSR1": "SIGUSR1, which it did not expect",
    "SIGUSR2": "SIGUSR2, which it did not expect",
}


def _match(crash: Crash) -> Finding | None:
    signal = signal_of(crash)
    other = sent_by_another(crash)
    itself = crash.fault is not None and crash.fault.sent_by_itself is True and signal not in {"SIGABRT", "SIGTRAP"}
    if signal is None or (signal not in _SENT and not other and not itself):
        return None
    died = died_by(crash, signal)
    oom = tuple(quote(message, "the kernel's log speaks of memory") for message in messages(crash, "kernel-oom")[-1:])
    sender = crash.fault.sender if crash.fault else None
    by = f"Process {sender} sent it" if sender and other else "It was sent"
    what = _SENT.get(signal, _spell(signal))
    doubt = ""
    if signal == "SIGKILL" and not sender:
        counted = crash.memory_events is not None and not crash.memory_events.get("oom_kill")
        doubt = (
            "; who sent it is not known, but it was no lack of memory in its control group"
            if counted
            else "; who sent it is not known, and 137 alone does not prove a lack of memory"
        )
        if counted:
            oom += (
                Evidence(
                    claim="the kernel counted no kill for want of memory in its control group",
                    seen="oom_kill +0",
                    where=crash.memory_cgroup,
                ),
            )
    return Finding(
        evidence=died + other + oom + (python_line(crash) if itself else ()),
        summary=f"The program was ended from outside. {by} {what}{doubt}."
        if not itself
        else f"The program sent itself {what}.",
        confidence="certain" if other or itself else "likely",
        culprit=culprit_of(crash) if itself else None,
        title="The program sent itself a signal" if itself else None,
        fixes=_fixes(signal),
    )


def _spell(signal: str) -> str:
    crashes = signal in {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT", "SIGTRAP", "SIGSYS"}
    return f"{signal}, a signal that usually means a crash, but here it did not crash" if crashes else signal


def _fixes(signal: str) -> tuple[Fix, ...]:
    if signal == "SIGKILL":
        return (
            Fix(
                text="Ask the kernel whether it was a lack of memory.",
                command="dmesg | grep -i 'killed process'; grep oom_kill /sys/fs/cgroup/memory.events",
            ),
            Fix(
                text="If not, look into the log of the batch system, the container or the notebook server that runs it."
            ),
        )
    if signal == "SIGPIPE":
        return (
            Fix(text="Keep the reader of its output alive, or let Python ignore the signal, as it does by default."),
        )
    return (
        Fix(
            text="Find who sent it: the terminal, a batch system's time limit, a supervisor; and save the work on SIGTERM."
        ),
    )


RULE = Rule(
    name="killed-by-signal",
    subject=Crash,
    title="The program was ended from outside",
    match=_match,
    page=__doc__ or "",
    severity="warning",
    beats=("exit-status-only",),
    hit="""
        exit 137
    """,
    miss="""
        signal SIGSEGV SEGV_MAPERR 0x7f1000000000 read
        at 0x7f0000001000 mov eax, dword ptr [rdi]
        operand read [rdi] = 0x7f1000000000 size 4 rdi=0x7f1000000000
        thread 4711 python3 crashed
        frame Load(int*) @ op.so in op.cc:31 takes 32
    """,
    references=("https://man7.org/linux/man-pages/man7/signal.7.html",),
)
