"""A limit on CPU time or file size was reached.

What happened
-------------
The process used more CPU time than RLIMIT_CPU allows (SIGXCPU), or wrote a file beyond RLIMIT_FSIZE (SIGXFSZ). The
kernel sends the signal, and by default it ends the process. Batch systems, shared machines and test runners set such
limits.

How to be sure
--------------
The signal itself: nothing else sends SIGXCPU or SIGXFSZ, unless another process sent it, which the kernel reports.
With a hard limit on CPU time, a SIGKILL follows. It comes at once if the soft limit is as high (``ulimit -t`` sets
both). If the process was killed, necropsy compares the CPU time that it had used with the hard limit.

How to fix it now
-----------------
``ulimit -t`` shows the limit on CPU seconds (of all threads together: with 8 busy threads, 8 per second), ``ulimit
-f`` that on file size in blocks of 1024 bytes. Raise them, or ask the batch system for more.

How to prevent it
-----------------
Write checkpoints; catch SIGXCPU to save and leave. Python ignores SIGXFSZ and gets EFBIG instead, native programs do
not.

What it is often mistaken for
-----------------------------
A crash of native code; a time limit on the wall clock (SIGTERM or SIGKILL by the batch system).

Sources
-------
- https://man7.org/linux/man-pages/man2/getrlimit.2.html
- https://man7.org/linux/man-pages/man7/signal.7.html
"""

from __future__ import annotations

from necropsy.model import Crash, Evidence, Fix
from necropsy.predicates import died_by, sent_by_another, signal_of
from necropsy.rule import NEVER, Finding, Found, Occurs, Rule, Tried
from necropsy.rules import requested
from necropsy.rules.culprit import culprit_of, python_line
from necropsy.rules.limits import evidence, limit_of
from necropsy.rules.wording import size

_LIMITS = {
    "SIGXCPU": ("RLIMIT_CPU", "used all its permitted CPU time", "seconds of CPU time", "ulimit -t"),
    "SIGXFSZ": ("RLIMIT_FSIZE", "wrote a file beyond the size limit", "bytes a file", "ulimit -f"),
}


def _match(crash: Crash) -> Finding | None:
    signal = signal_of(crash)
    if signal == "SIGKILL":
        return _at_hard_limit(crash)
    asked = crash.stop_request if signal == "SIGXCPU" else None
    if signal not in _LIMITS or sent_by_another(crash) or (asked is not None and asked.sender is not None):
        return None
    name, did, unit, command = _LIMITS[signal]
    limit = (crash.environment.limits or {}).get(name) if crash.environment else None
    if limit is not None and signal == "SIGXCPU" and (crash.fault is not None or asked is not None):
        # With each SIGXCPU the kernel raises the soft limit by a second (kernel/time/posix-cpu-timers.c).
        limit -= 1
    limits: Found = ()
    if limit is not None and limit >= 0:
        limits = (Evidence(claim="the limit", seen=f"{limit:,} {unit}", where=name),)
    used = limit_of(crash, name) if signal == "SIGXFSZ" else None
    if used is not None and used.used is not None:
        limits += (
            Evidence(claim="the largest file that was open for writing", seen=size(used.used), where=used.where),
        )
    told = f" ({limit:,} {unit})" if limits else ""
    return Finding(
        evidence=(*died_by(crash, signal), *limits, *python_line(crash), *requested.where_it_stood(crash)),
        summary=f"The program {did}{told}." + (f" {requested.standing(crash, asked)}." if asked is not None else ""),
        confidence="certain" if crash.fault is not None or (crash.exit and crash.exit.kind == "signaled") else "likely",
        culprit=culprit_of(crash) if asked is None else requested.stood_at(crash),
        fixes=(Fix(text="Check the limit, and raise it or ask the batch system for more.", command=command),),
    )


_TO_SAVE_S = 10
"""Seconds of CPU time between the soft limit that is proposed and the hard one."""
_SOFTER = (
    Fix(
        text="Set a soft limit below it: then SIGXCPU comes first, which shows where the program was, and which it can "
        "handle to save its work.",
        command=f"ulimit -S -t $(($(ulimit -H -t) - {_TO_SAVE_S}))",
    ),
)


def _at_hard_limit(crash: Crash) -> Finding | None:
    """At the hard limit on CPU time the kernel sends SIGKILL (``check_process_timers``); a soft one may be as high."""
    cpu = limit_of(crash, "RLIMIT_CPU")
    most = cpu.hard if cpu is not None else None
    killed = died_by(crash, "SIGKILL")
    if cpu is None or most is None or not killed or (cpu.used or 0) < most or sent_by_another(crash):
        return None
    counted = (crash.memory_events or {}).get("oom_kill", 0) > 0
    before, where = requested.before_a_kill(crash)
    return Finding(
        evidence=(*killed, *evidence(cpu), *python_line(crash), *where),
        summary=f"The program used all its permitted CPU time ({most:,} s, a hard limit), "
        f"and the kernel killed it.{before}",
        confidence="likely" if counted else "certain",
        title="A hard limit on CPU time was reached",
        fixes=(
            Fix(text="Check the limit, and raise it or ask the batch system for more.", command="ulimit -H -t"),
            *(_SOFTER if most > _TO_SAVE_S else ()),
        ),
    )


RULE = Rule(
    _match,
    needs=(),
    beats=("killed-by-signal", "exit-status-only"),
    occurs=Occurs(windows=NEVER),
    tried=Tried(
        advice="Check the limit by the printed command, and raise it.",
        result="crash gone",
        how=(
            "The printed command showed the limit that was hit; with ``unlimited`` in its place the program "
            "wrote its file."
        ),
        test="tests/rules/test_advice.py::test_file_limit",
    ),
    hit="""
        signal SIGXCPU SI_KERNEL
        thread 4711 python3 crashed
        frame Loop(int) @ ext.so in ext.cc:9 takes 64
        python main train.py:3
    """,
    miss="""
        signal SIGXCPU SI_USER
        sent-by 99
        thread 4711 python3 crashed
        frame Loop(int) @ ext.so in ext.cc:9 takes 64
    """,
)
