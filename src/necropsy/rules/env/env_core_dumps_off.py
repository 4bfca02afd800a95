"""A program that crashes leaves no core dump.

What happened
-------------
The limit on the size of core files is 0, and the kernel writes core dumps to files. So a crash outside ``necropsy
run`` leaves nothing to examine.

How to be sure
--------------
``ulimit -c`` prints 0, and /proc/sys/kernel/core_pattern does not begin with ``|``.

How to fix it now
-----------------
``ulimit -S -c unlimited`` in the shell that starts the program. Core dumps hold all memory of a process, secrets too.

How to prevent it
-----------------
Nothing needs to be done if programs run under ``necropsy run``, which needs no core dump.

What it is often mistaken for
-----------------------------
A program that left no trace because it did not crash.

Sources
-------
- https://man7.org/linux/man-pages/man5/core.5.html
"""

from __future__ import annotations

from necropsy.model import Environment, Evidence
from necropsy.rule import NEVER, Finding, Occurs, Rule
from necropsy.rules import ulimit


def _match(environment: Environment) -> Finding | None:
    pattern = environment.machine.core_pattern if environment.machine is not None else None
    # The limit does not count for a program that takes core dumps (core(5)).
    if pattern is None or pattern.startswith("|") or ulimit.soft(environment, "RLIMIT_CORE") != 0:
        return None
    return Finding(
        evidence=(
            ulimit.evidence(environment, "RLIMIT_CORE"),
            Evidence(claim="where core dumps go", seen=pattern or "nowhere", where="/proc/sys/kernel/core_pattern"),
        ),
        summary="A crash leaves no core dump, unless it happens under `necropsy run`.",
        confidence="certain",
        about=frozenset({"limit RLIMIT_CORE"}),
        fixes=ulimit.raised(environment, "RLIMIT_CORE", ulimit.UNLIMITED),
    )


RULE = Rule(
    _match,
    severity="note",
    needs=("limits", "machine"),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    checks="core dumps",
    hit="""
        limit RLIMIT_CORE 0
        machine core_pattern core
    """,
    miss="""
        limit RLIMIT_CORE 0
        machine core_pattern '|/usr/lib/systemd/systemd-coredump %P'
    """,
)
