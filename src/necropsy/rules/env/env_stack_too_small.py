"""The stack limit is small.

What happened
-------------
The limit holds for the main thread, and is the size that glibc gives to every other thread, those of TensorFlow and OpenMP among them. Deep recursion and
large local arrays overflow it. With ``unlimited``, threads get 2 MiB instead of the usual 8 MiB.

How to be sure
--------------
``ulimit -s`` prints the limit in KiB. The crash is a SIGSEGV near the end of a stack; with a larger limit it is gone.

How to fix it now
-----------------
``ulimit -S -s 8192`` in the shell that starts the program. A running program keeps the size it was started with.

How to prevent it
-----------------
Look for ``ulimit -s`` in start-up files, in /etc/security/limits.conf and in the container's options.

What it is often mistaken for
-----------------------------
A bug of the library that happened to be called last: what overflows a stack is the sum of all calls.

Sources
-------
- https://man7.org/linux/man-pages/man2/setrlimit.2.html
- https://man7.org/linux/man-pages/man3/pthread_create.3.html
"""

from __future__ import annotations

from necropsy.model import Environment, Severity
from necropsy.rule import NEVER, Finding, Occurs, Rule
from necropsy.rules import ulimit
from necropsy.rules.wording import size

_USUAL = 8 << 20
_SMALL = 1 << 20
"""Less than this, and recursion that is usual in Python programs overflows it."""
_FEW = 4 << 20


def _match(environment: Environment) -> Finding | None:
    if "RLIMIT_STACK" not in (environment.limits or {}):
        return None
    limit = ulimit.soft(environment, "RLIMIT_STACK")
    severity: Severity = "note"
    if limit is None:
        summary = (
            "The stack limit is unlimited: the main thread may grow, but other threads get 2 MiB instead of 8 MiB."
        )
    elif limit < _FEW:
        severity = "warning" if limit < _SMALL else "note"
        summary = f"The stack limit is {size(limit)}, for the main thread and for each other thread; {size(_USUAL)} are usual."
    else:
        return None
    return Finding(
        evidence=(ulimit.evidence(environment, "RLIMIT_STACK"),),
        summary=summary,
        confidence="certain",
        severity=severity,
        about=frozenset({"limit RLIMIT_STACK"}),
        fixes=ulimit.raised(environment, "RLIMIT_STACK", _USUAL),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("limits",),
    occurs=Occurs(windows=NEVER),
    checks="the stack limit",
    hit="""
        limit RLIMIT_STACK 131072
    """,
    miss="""
        limit RLIMIT_STACK 8388608
    """,
)
