"""A process nearly used up the file descriptors that it may open.

What happened
-------------
Files, sockets, pipes and event queues each take a descriptor, and ``RLIMIT_NOFILE`` (``ulimit -n``) limits their number for each process, usually to
1,024. The run came close to it. At the limit ``open`` and ``socket`` fail with EMFILE: *Too many open files*. Code that uses ``select`` breaks earlier
and worse: a descriptor of 1,024 or higher makes ``FD_SET`` write outside of its set. A warning is given where less than 12 % was left, a note where
less than 25 % was.

How to be sure
--------------
``ls -l /proc/PID/fd`` while the program runs shows what is open. The same file many times is a leak; ``python -X dev`` warns of files that were never
closed. ``processes[].memory[].descriptors`` in the JSON document of ``necropsy profile`` shows whether the number rises all the time.

How to fix it now
-----------------
Raise the soft limit: it can be raised up to the hard limit without being root.

How to prevent it
-----------------
Close files with ``with``. PyTorch's data loaders keep a descriptor for each tensor that is shared; ``set_sharing_strategy("file_system")`` does not.

What it is often mistaken for
-----------------------------
The limit of the whole machine (``fs.file-max``), where the error is ENFILE: *Too many open files in system*.

Sources
-------
- https://man7.org/linux/man-pages/man2/setrlimit.2.html
- https://man7.org/linux/man-pages/man2/select.2.html
- https://docs.pytorch.org/docs/stable/multiprocessing.html#sharing-strategies
"""

from __future__ import annotations

from necropsy.model import Fix, Limit, Process
from necropsy.rule import Finding, Rule
from necropsy.rules.headroom import near, rounded, ulimit


def _match(process: Process) -> Finding | None:
    return near(process, ("RLIMIT_NOFILE",), _fix)


def _fix(one: Limit, wanted: int) -> Fix:
    wanted = rounded(wanted, 1024)
    return ulimit(
        one, "n", wanted, "Raise the soft limit in the shell that starts the program, or look for files left open."
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("limits",),
    hit="""{"pid": 4211, "exit": {"kind": "exited", "code": 0}, "limits": [{"name": "RLIMIT_NOFILE", "limit": 1024, "hard": 1048576,
        "used": 12, "peak": 988}]}""",
    miss="""{"pid": 4211, "exit": {"kind": "exited", "code": 0}, "limits": [{"name": "RLIMIT_NOFILE", "limit": 1024, "hard": 1048576,
        "used": 12, "peak": 200}]}""",
)
