"""The address space is limited.

What happened
-------------
``ulimit -v`` limits what a process may map, used or not. Each thread maps 8 MiB for its stack, libraries are mapped as a whole, and CUDA reserves many
gigabytes. Importing TensorFlow and running one operation takes between 1.0 and 1.5 GB.

How to be sure
--------------
``ulimit -v`` prints the limit in KiB. The program ends with ``std::bad_alloc``, MemoryError or ``cannot allocate memory``, while memory is free.

How to fix it now
-----------------
``ulimit -S -v unlimited`` in the shell that starts the program.

How to prevent it
-----------------
Limit memory by a control group (``systemd-run -p MemoryMax=``, ``docker run -m``), which counts what is used.

What it is often mistaken for
-----------------------------
A machine that is out of memory: here ``free`` shows enough of it.

Sources
-------
- https://man7.org/linux/man-pages/man2/setrlimit.2.html
"""

from __future__ import annotations

from necropsy.model import Environment, Severity
from necropsy.rule import NEVER, Finding, Occurs, Rule
from necropsy.rules import ulimit
from necropsy.rules.wording import size

_TOO_LITTLE = 1000 << 20
"""TensorFlow for the CPU ended with less, on two processors."""
_LITTLE = 2 << 30
_SOME = 4 << 30


def _match(environment: Environment) -> Finding | None:
    limit = ulimit.soft(environment, "RLIMIT_AS")
    if limit is None or limit >= _SOME:
        return None
    needy = ulimit.frameworks(environment)
    severity: Severity = "note"
    more = ""
    if needy:
        severity = (
            "error" if limit < _TOO_LITTLE and "tensorflow" in needy else "warning" if limit < _LITTLE else "note"
        )
        more = f"; {needy[0]} alone maps 1.0 to 1.5 GB" if needy[0].startswith("tensorflow") else ""
    return Finding(
        evidence=(ulimit.evidence(environment, "RLIMIT_AS"),),
        summary=f"A process may map no more than {size(limit)} of address space, used or not{more}.",
        confidence="certain" if severity != "note" else "likely",
        severity=severity,
        about=frozenset({"limit RLIMIT_AS"}),
        fixes=ulimit.raised(environment, "RLIMIT_AS", ulimit.UNLIMITED),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("limits",),
    occurs=Occurs(windows=NEVER),
    checks="the limit on address space",
    hit="""
        distribution tensorflow 2.20.0 checked
        limit RLIMIT_AS 1073741824
    """,
    miss="""
        distribution tensorflow 2.20.0 checked
        limit RLIMIT_AS 34359738368
    """,
)
