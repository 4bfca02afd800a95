"""The run nearly used up the number of threads that it may have.

What happened
-------------
Two limits count threads and processes together: ``RLIMIT_NPROC`` (``ulimit -u``) those of one user on the whole machine, and ``pids.max`` those of a
control group (a container, a Kubernetes pod, a systemd unit). The run came close to one of them. At the limit ``pthread_create`` and ``fork`` fail with
EAGAIN: Python raises ``RuntimeError: can't start new thread``, OpenMP ends the program, and TensorFlow dies while it starts a pool. A warning is
given where less than 12 % was left, a note where less than 25 % was.

How to be sure
--------------
``processes[].peaks.threads`` in the JSON document of ``necropsy profile`` says how many threads each process had. The limits count the threads
of others too: ``ps -eLo user= | sort | uniq -c`` by user, ``cat pids.current`` beside the limit's file for the group.

How to fix it now
-----------------
Start fewer threads: ``OMP_NUM_THREADS``, ``OPENBLAS_NUM_THREADS`` and ``TF_NUM_INTEROP_THREADS`` set the sizes of pools, which otherwise follow the
number of processors in every process. Or raise the limit: ``docker run --pids-limit``, ``TasksMax=`` in systemd, ``ulimit -u``.

How to prevent it
-----------------
Count before you scale: processes times threads for each. Eight data loader workers with a pool of 64 threads are 512.

What it is often mistaken for
-----------------------------
A lack of memory: both let the start of a thread fail, and the message is the same.

Sources
-------
- https://man7.org/linux/man-pages/man2/setrlimit.2.html
- https://docs.kernel.org/admin-guide/cgroup-v2.html#pid
- https://man7.org/linux/man-pages/man3/pthread_create.3.html
"""

from __future__ import annotations

from necropsy.model import Fix, Limit, Process
from necropsy.rule import Finding, Rule
from necropsy.rules.headroom import near, rounded, ulimit


def _match(process: Process) -> Finding | None:
    return near(process, ("pids.max", "RLIMIT_NPROC"), _fix)


def _fix(one: Limit, wanted: int) -> Fix:
    wanted = rounded(wanted, 64)
    if one.name == "RLIMIT_NPROC":
        return ulimit(one, "u", wanted, f"Start fewer threads, or raise the limit to {wanted:,}.")
    text = f"Start fewer threads (`OMP_NUM_THREADS`), or raise the limit of the control group to {wanted:,} where it is set:"
    return Fix(text=f"{text} `docker run --pids-limit {wanted}`, `TasksMax=` in systemd.")


RULE = Rule(
    _match,
    severity="warning",
    needs=("limits",),
    hit="""{"pid": 4211, "exit": {"kind": "exited", "code": 0}, "limits": [{"name": "pids.max", "limit": 512, "used": 40, "peak": 489,
        "where": "/sys/fs/cgroup/pids.max"}]}""",
    miss="""{"pid": 4211, "exit": {"kind": "exited", "code": 0}, "limits": [{"name": "pids.max", "limit": 512, "used": 40, "peak": 180,
        "where": "/sys/fs/cgroup/pids.max"}, {"name": "RLIMIT_NPROC", "limit": 4096}]}""",
)
