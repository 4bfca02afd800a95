"""Shared memory was nearly full.

What happened
-------------
``/dev/shm`` is a file system in memory with a size of its own: 64 MiB in a Docker container, half of the machine's memory elsewhere. The run came close
to filling it. A process that writes to shared memory which no longer fits dies of SIGBUS, without an error message: the mapping was granted, the
memory behind it was not. A warning is given where less than 12 % was left, a note where less than 25 % was.

How to be sure
--------------
``df -h /dev/shm`` and ``ls -l /dev/shm`` while the program runs. ``processes[].memory[].shm`` in the JSON document of ``necropsy profile`` has it over time.
All processes that see this ``/dev/shm`` count, those of other programs too. A name may be gone while the memory is still in use.

How to fix it now
-----------------
Make it larger: ``docker run --shm-size``, or ``--ipc=host``; in Kubernetes an ``emptyDir`` with ``medium: Memory`` that is mounted at ``/dev/shm``;
elsewhere ``mount -o remount,size=...`` as root.

How to prevent it
-----------------
Data loaders with worker processes pass batches through shared memory: workers times prefetched batches times the size of a batch must fit. Use fewer
workers, or let them prefetch less.

What it is often mistaken for
-----------------------------
A lack of memory: the machine may have plenty. A bus error by a misaligned access.

Sources
-------
- https://man7.org/linux/man-pages/man7/shm_overview.7.html
- https://docs.docker.com/reference/cli/docker/container/run/#shm-size
- https://kubernetes.io/docs/concepts/storage/volumes/#emptydir
"""

from __future__ import annotations

from necropsy.model import Fix, Limit, Process
from necropsy.rule import NEVER, Finding, Occurs, Rule
from necropsy.rules.headroom import near, rounded
from necropsy.rules.wording import size

_MIB = 1 << 20


def _match(process: Process) -> Finding | None:
    return near(process, ("/dev/shm",), _fix)  # noqa: S108 - a name


def _fix(_: Limit, wanted: int) -> Fix:
    wanted = rounded(wanted, 64 * _MIB)
    return Fix(
        text=f"Make /dev/shm {size(wanted)} large: `docker run --shm-size {wanted // _MIB}m` in a container; elsewhere, as root:",
        command=f"mount -o remount,size={wanted // _MIB}m /dev/shm",
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("limits",),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    hit="""{"pid": 4211, "exit": {"kind": "exited", "code": 0}, "limits": [{"name": "/dev/shm", "limit": 67108864, "used": 0,
        "peak": 62914560, "where": "/dev/shm"}]}""",
    miss="""{"pid": 4211, "exit": {"kind": "exited", "code": 0}, "limits": [{"name": "/dev/shm", "limit": 67108864, "used": 0,
        "peak": 20971520, "where": "/dev/shm"}]}""",
)
