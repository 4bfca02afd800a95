"""There is no swap.

What happened
-------------
A machine without swap cannot move memory that is not in use to disk. When memory is used up, the kernel kills a process at once, usually the largest.

How to be sure
--------------
``swapon --show`` prints nothing, and ``free`` shows 0 for swap.

How to fix it now
-----------------
Most servers and all containers run this way, and nothing needs to be done. A machine of your own can be given a swap file:
``sudo fallocate -l 8G /swapfile; sudo chmod 600 /swapfile; sudo mkswap /swapfile; sudo swapon /swapfile``.

How to prevent it
-----------------
Know how much memory a program needs, and leave some of it free.

What it is often mistaken for
-----------------------------
A crash: exit code 137 without any text.

Sources
-------
- https://man7.org/linux/man-pages/man8/swapon.8.html
"""

from __future__ import annotations

from necropsy.model import Environment, Evidence
from necropsy.rule import NEVER, Finding, Occurs, Rule
from necropsy.rules.wording import size


def _match(environment: Environment) -> Finding | None:
    machine = environment.machine
    if machine is None or machine.swap != 0:
        return None
    memory = f" {size(machine.memory)} of" if machine.memory is not None else ""
    return Finding(
        evidence=(Evidence(claim="swap", seen="0", where="/proc/meminfo"),),
        summary=f"There is no swap: when the machine's{memory} memory is used up, the kernel kills a process at once.",
        confidence="certain",
        about=frozenset({"swap"}),
    )


RULE = Rule(
    _match,
    severity="note",
    needs=("machine",),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    checks="swap",
    hit="""
        machine swap 0
    """,
    miss="""
        machine swap 2147483648
    """,
)
