"""The control group limits memory.

What happened
-------------
A container, a job of SLURM or a systemd unit has a limit on memory. A process that needs more is killed by the kernel with SIGKILL, without a message of its
own. Programs that ask how much memory the machine has see all of it.

How to be sure
--------------
``cat /sys/fs/cgroup/memory.max`` (version 2) or ``/sys/fs/cgroup/memory/memory.limit_in_bytes`` (version 1). After a kill, ``memory.events`` counts it.

How to fix it now
-----------------
Give the group more: ``docker run -m 16g``, ``resources.limits.memory`` of the pod, ``sbatch --mem``. Or use less: smaller batches, fewer workers.

How to prevent it
-----------------
Measure the peak of a whole run (``memory.peak``) before you choose a limit.

What it is often mistaken for
-----------------------------
A crash: exit code 137 without any text.

Sources
-------
- https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
- https://docs.docker.com/engine/containers/resource_constraints/
"""

from __future__ import annotations

from necropsy.model import Environment, Evidence, Fix, Severity
from necropsy.rule import NEVER, Finding, Occurs, Rule
from necropsy.rules import ulimit
from necropsy.rules.wording import size

_TOO_LITTLE = 512 << 20
"""About what importing TensorFlow or PyTorch takes."""


def _match(environment: Environment) -> Finding | None:
    one = ulimit.group(environment, "memory.max")
    if one is None:
        return None
    room = one.limit - (one.used or 0)
    memory = environment.machine.memory if environment.machine is not None else None
    severity: Severity = "note"
    if ulimit.frameworks(environment) and room < _TOO_LITTLE:
        severity = "warning"
        more = f", and {size(max(room, 0))} of that are left: importing a framework takes about as much"
    elif memory is not None and one.limit >= memory:
        return None
    else:
        more = f"; programs see the machine's {size(memory)}" if memory is not None else ""
    return Finding(
        evidence=(Evidence(claim="the limit", seen=size(one.limit), where=one.where),),
        summary=f"The control group may use {size(one.limit)} of memory{more}. The kernel kills what needs more.",
        confidence="certain",
        severity=severity,
        about=frozenset({"limit memory.max"}),
        fixes=(
            Fix(
                text="Give the group more if that is too little: `docker run -m 16g`, the pod's limits, `sbatch --mem`."
            ),
        ),
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("groups",),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    checks="the control group's memory",
    hit="""
        machine memory 67108864000
        group memory.max 1073741824 805306368
    """,
    miss="""
        machine memory 67108864000
        group memory.max 68719476736 805306368
    """,
)
