"""There is little shared memory.

What happened
-------------
Workers of PyTorch's DataLoader, NCCL and Python's ``multiprocessing.shared_memory`` pass arrays through /dev/shm.
Docker gives a container 64 MiB of it. A process that writes past the end dies with SIGBUS.

How to be sure
--------------
``df -h /dev/shm``. The message is ``Bus error`` or ``insufficient shared memory (shm)``.

How to fix it now
-----------------
``docker run --shm-size=8g``, or ``--ipc=host``; in Kubernetes an ``emptyDir`` with ``medium: Memory`` at /dev/shm; on a machine of your own ``sudo mount -o
remount,size=8g /dev/shm``.

How to prevent it
-----------------
Give it as much as all workers hold at a time: workers x prefetched batches x size of a batch.

What it is often mistaken for
-----------------------------
Faulty memory: SIGBUS is rare otherwise.

Sources
-------
- https://docs.docker.com/reference/cli/docker/container/run/#shm-size
- https://man7.org/linux/man-pages/man7/shm_overview.7.html
"""

from __future__ import annotations

from necropsy.model import Environment, Evidence, Fix, Severity
from necropsy.rule import NEVER, Finding, Occurs, Rule
from necropsy.rules import ulimit
from necropsy.rules.wording import size

_DOCKERS = 64 << 20
_FULL = 1 << 20


def _match(environment: Environment) -> Finding | None:
    one = ulimit.mount(environment, "/dev/shm")  # noqa: S108 - a name
    if one is None or one.size == 0:
        return None
    severity: Severity = "note"
    if one.size < _DOCKERS or one.free < _FULL:
        severity = "warning"
    elif one.size > _DOCKERS:
        return None
    return Finding(
        evidence=(Evidence(claim="shared memory", seen=f"{size(one.size)}, {size(one.free)} free", where=one.path),),
        summary=f"{one.path} has {size(one.size)}, {size(one.free)} of that free: arrays that workers pass on may not fit.",
        confidence="certain",
        severity=severity,
        about=frozenset({"mount /dev/shm"}),
        fixes=(_fix(environment),),
    )


def _fix(environment: Environment) -> Fix:
    if ulimit.is_container(environment):
        return Fix(
            text="Start the container with more: `docker run --shm-size=8g`, or a volume of medium Memory at /dev/shm."
        )
    mount = "mount -o remount,size=8g /dev/shm"
    return Fix(text="Make it larger.", command=mount if environment.user == 0 else f"sudo {mount}")


RULE = Rule(
    _match,
    severity="warning",
    needs=("mounts",),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    checks="shared memory",
    hit="""
        mount /dev/shm /dev/shm 8388608 8388608
    """,
    miss="""
        mount /dev/shm /dev/shm 8589934592 8589934592
    """,
)
