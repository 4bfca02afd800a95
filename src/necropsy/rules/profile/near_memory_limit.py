"""A process nearly used up the memory that a limit allows it.

What happened
-------------
The run ended well, but its memory came close to a limit: that of its control group (a container, a Kubernetes pod, a systemd unit, a batch job),
or one that ``ulimit`` set for the process. At the limit of a control group the kernel kills a process with SIGKILL; at the limits of ``ulimit``
an allocation fails, which Python reports as ``MemoryError`` and C++ as ``std::bad_alloc``, and which code that does not check turns into a
crash. A warning is given where less than 12 % of the limit was left, a note where less than 25 % was.

How to be sure
--------------
``processes[].memory`` in the JSON document of ``necropsy profile`` shows memory over time, and ``processes[].limits`` the limit and the most
that was in use. ``RLIMIT_AS`` counts address space, including memory that was reserved and never touched; its peak is the kernel's own.
``RLIMIT_DATA`` counts private writable mappings. For a control group, file cache that the kernel would drop is not counted from half of the limit on.

How to fix it now
-----------------
Raise the limit where it is set: ``docker run -m``, ``resources.limits.memory`` in Kubernetes, ``MemoryMax=`` in systemd, ``--mem`` in Slurm;
``ulimit -v`` or ``ulimit -d`` in the shell that starts the program. Or let it use less: a smaller batch, fewer workers, shorter prefetch and
shuffle buffers.

How to prevent it
-----------------
Profile your largest input before a release, under the limit that it will run with, and leave a quarter of it free.

What it is often mistaken for
-----------------------------
A memory leak: a program with a large but constant need comes close too (``memory-growth`` reports a steady rise). Memory that the machine lacks:
the limit is that of the group or the process, and the machine may have plenty.

Sources
-------
- https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
- https://man7.org/linux/man-pages/man2/setrlimit.2.html
- https://docs.docker.com/engine/containers/resource_constraints/
"""

from __future__ import annotations

from necropsy.model import Fix, Limit, Process
from necropsy.rule import Finding, Rule
from necropsy.rules.headroom import near, rounded, ulimit, with_line_at_peak
from necropsy.rules.wording import size

_OPTIONS = {"RLIMIT_AS": "v", "RLIMIT_DATA": "d"}
_MIB = 1 << 20


def _match(process: Process) -> Finding | None:
    return with_line_at_peak(near(process, ("memory.max", *_OPTIONS), _fix), process)


def _fix(one: Limit, wanted: int) -> Fix:
    wanted = rounded(wanted, 64 * _MIB)
    if one.name in _OPTIONS:
        text = f"Raise the limit to {size(wanted)} in the shell that starts the program."
        return ulimit(one, _OPTIONS[one.name], wanted // 1024, text)
    text = (
        f"Raise the limit of the control group to {size(wanted)} where it is set: `docker run -m {wanted // _MIB}m`, "
    )
    return Fix(text=f"{text}`resources.limits.memory: {wanted // _MIB}Mi` in Kubernetes, `MemoryMax=` in systemd.")


RULE = Rule(
    _match,
    severity="warning",
    needs=("limits",),
    hit="""{"pid": 4211, "exit": {"kind": "exited", "code": 0}, "limits": [{"name": "memory.max", "limit": 4294967296, "used": 3221225472,
        "peak": 4080218931, "where": "/sys/fs/cgroup/memory.max"}]}""",
    miss="""{"pid": 4211, "exit": {"kind": "exited", "code": 0}, "limits": [{"name": "memory.max", "limit": 4294967296, "used": 1073741824,
        "peak": 2040109465, "where": "/sys/fs/cgroup/memory.max"}, {"name": "RLIMIT_AS", "limit": 4294967296}]}""",
)
