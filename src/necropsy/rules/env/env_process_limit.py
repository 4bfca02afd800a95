"""Few more threads or processes can be started.

What happened
-------------
RLIMIT_NPROC counts all threads of the user, in every program, and a control group counts its own (``pids.max``). Numerical libraries start a thread for each
processor, several times over, and data loaders start processes.

How to be sure
--------------
``ulimit -u`` and ``ps -L -u $USER | wc -l``; ``cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids.current``. The message is ``pthread_create failed: Resource
temporarily unavailable`` or ``can't start new thread``.

How to fix it now
-----------------
``ulimit -S -u 4096``; in a container ``docker run --pids-limit=-1``. Or start fewer threads: ``export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1``.

How to prevent it
-----------------
Set the number of threads of each worker if there are many workers.

What it is often mistaken for
-----------------------------
A machine that is out of memory: the message of OpenBLAS says that memory is short.

Sources
-------
- https://man7.org/linux/man-pages/man2/setrlimit.2.html
- https://docs.kernel.org/admin-guide/cgroup-v2.html#pid-interface-files
"""

from __future__ import annotations

from collections.abc import Iterator

from necropsy.model import Environment, Evidence, Fix
from necropsy.rule import NEVER, Finding, Occurs, Rule, several
from necropsy.rules import ulimit

_FEWEST = 64
_EACH = 4
"""Pools of threads, with a thread for each processor, that a framework starts."""


def _match(environment: Environment) -> Finding | None:
    return several(_findings(environment))


def _findings(environment: Environment) -> Iterator[Finding]:
    machine = environment.machine
    processors = machine.processors if machine is not None and machine.processors is not None else 1
    wanted = max(_FEWEST, _EACH * processors)
    limit = ulimit.soft(environment, "RLIMIT_NPROC")
    used = machine.user_threads if machine is not None else None
    # The kernel does not hold root to it.
    if limit is not None and used is not None and environment.user != 0 and limit - used < wanted:
        yield Finding(
            evidence=(
                ulimit.evidence(environment, "RLIMIT_NPROC"),
                Evidence(claim="threads of this user", seen=f"{used:,}", where="/proc"),
            ),
            summary=f"This user may have {limit:,} threads, and has {used:,} now: {_left(limit - used)}.",
            confidence="certain",
            about=frozenset({"limit RLIMIT_NPROC"}),
            fixes=ulimit.raised(environment, "RLIMIT_NPROC", max(4096, used + 2 * wanted)),
        )
    one = ulimit.group(environment, "pids.max")
    if one is not None and one.limit - (one.used or 0) < wanted:
        used = one.used or 0
        yield Finding(
            evidence=(
                Evidence(claim="the limit", seen=f"{one.limit:,}", where=one.where),
                Evidence(claim="in use", seen=f"{used:,}"),
            ),
            summary=f"The control group may have {one.limit:,} threads, and has {used:,} now: {_left(one.limit - used)}.",
            confidence="certain",
            about=frozenset({"limit pids.max"}),
            fixes=(
                Fix(
                    text="Give the group more, with `docker run --pids-limit=-1` or `systemd-run -p TasksMax=infinity`."
                ),
            ),
        )


def _left(count: int) -> str:
    return f"{max(count, 0):,} more can be started"


RULE = Rule(
    _match,
    severity="warning",
    needs=("limits",),
    occurs=Occurs(windows=NEVER),
    checks="limits on threads",
    hit="""
        user 1000
        machine user_threads 60
        limit RLIMIT_NPROC 100
    """,
    miss="""
        user 1000
        machine user_threads 60
        limit RLIMIT_NPROC 4096
    """,
)
