"""Processes cannot be traced here.

What happened
-------------
Debuggers, py-spy and necropsy look into a process by ptrace. A seccomp profile, Yama or a sandbox can forbid it: for all processes, or for all but a
program's own children. ``necropsy run`` then reports how a program ended, without stacks.

How to be sure
--------------
``cat /proc/sys/kernel/yama/ptrace_scope``: 0 allows it, 1 only for children, 2 only for administrators, and 3 for no
process. In a container, ``grep Seccomp /proc/self/status`` shows 2 if there is a profile.

How to fix it now
-----------------
In a container: ``docker run --cap-add=SYS_PTRACE``. With Yama: ``sudo sysctl kernel.yama.ptrace_scope=0``, or ``=1`` if ``necropsy run`` is all that is
needed. A value of 3 lasts until the next start: change it in ``/etc/sysctl.d``, and restart the machine.

How to prevent it
-----------------
Put the option into the job's or the pod's description (``securityContext.capabilities.add: [SYS_PTRACE]``).

What it is often mistaken for
-----------------------------
A fault of the debugger: ``Operation not permitted``.

Sources
-------
- https://docs.kernel.org/admin-guide/LSM/Yama.html
- https://man7.org/linux/man-pages/man2/ptrace.2.html
"""

from __future__ import annotations

from necropsy.model import Environment, Evidence, Fix
from necropsy.rule import NEVER, Finding, Occurs, Rule
from necropsy.rules import ulimit

_SCOPES = {
    1: "only a process's own children can be traced: `necropsy run` works, attaching to a running program takes root",
    2: "only administrators can trace processes",
    3: "no process can be traced until the machine is started again",
}
_YAMA = "/proc/sys/kernel/yama/ptrace_scope"


def _match(environment: Environment) -> Finding | None:
    machine = environment.machine
    if machine is None:
        return None
    scope = machine.ptrace_scope or 0
    seen = []
    if machine.tracing is not None:
        seen.append(Evidence(claim="a child could not be traced", seen=machine.tracing, where="ptrace(2)"))
    if scope and (environment.user != 0 or machine.tracing is not None):
        seen.append(Evidence(claim="Yama's scope", seen=str(scope), where=_YAMA))
    if not seen:
        return None
    refused = f"a child could not be traced ({machine.tracing}): `necropsy run` reports no stacks"
    why = _SCOPES.get(scope, refused)
    return Finding(
        evidence=tuple(seen),
        summary=f"Tracing is restricted here: {why}.",
        confidence="certain",
        about=frozenset({"ptrace"}),
        fixes=_fixes(environment, scope, is_refused=machine.tracing is not None),
    )


def _fixes(environment: Environment, scope: int, *, is_refused: bool) -> tuple[Fix, ...]:
    if scope == 3:
        return (Fix(text="Set kernel.yama.ptrace_scope to 0 or 1 in /etc/sysctl.d, and restart the machine."),)
    if scope and (scope > 1 or not is_refused):
        command = "sysctl kernel.yama.ptrace_scope=0"
        text = "Allow it (1 is enough for `necropsy run`)." if scope > 1 else "Allow it."
        return (Fix(text=text, command=command if environment.user == 0 else f"sudo {command}"),)
    if ulimit.is_container(environment):
        return (Fix(text="Start the container with `docker run --cap-add=SYS_PTRACE`."),)
    return (Fix(text="Run it outside the sandbox, or have the sandbox's seccomp profile allow ptrace."),)


RULE = Rule(
    _match,
    severity="note",
    needs=("machine",),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    checks="tracing",
    hit="""
        user 1000
        machine ptrace_scope 2
    """,
    miss="""
        user 1000
        machine ptrace_scope 0
    """,
)
