"""A process nearly used up the number of its memory mappings.

What happened
-------------
Linux allows each process a fixed number of memory mappings, ``vm.max_map_count``: 65,530 by default. The run came close to it. Beyond it, ``mmap``,
``mprotect`` and ``munmap`` fail with ENOMEM while memory is free: an allocation or the start of a thread fails, or a library aborts. A warning is
given where less than 12 % was left, a note where less than 25 % was.

How to be sure
--------------
``wc -l /proc/PID/maps`` while the program runs. ``sort -k6 /proc/PID/maps`` shows what they are: many of the same file, many small anonymous ones
(an allocator, a JIT compiler, memory that is protected piece by piece), or two for each thread (its stack and the guard page).

How to fix it now
-----------------
Raise ``vm.max_map_count`` as root. It holds for the whole machine, and for all its containers.

How to prevent it
-----------------
Find out what maps. Usual causes are data sets that map thousands of files, thousands of threads, ``mprotect`` on parts of large mappings, and shared
memory blocks of data loaders. Close mappings that are no longer needed, and map few large files instead of many small ones.

What it is often mistaken for
-----------------------------
A lack of memory: the message is *Cannot allocate memory*, but the count is exhausted, not the memory.

Sources
-------
- https://docs.kernel.org/admin-guide/sysctl/vm.html#max-map-count
- https://man7.org/linux/man-pages/man2/mmap.2.html
"""

from __future__ import annotations

from necropsy.model import Fix, Limit, Process
from necropsy.rule import NEVER, Finding, Occurs, Rule
from necropsy.rules.headroom import near, rounded


def _match(process: Process) -> Finding | None:
    return near(process, ("vm.max_map_count",), _fix)


def _fix(_: Limit, wanted: int) -> Fix:
    return Fix(
        text="Raise the limit of the machine, as root; a line in /etc/sysctl.d keeps it.",
        command=f"sysctl -w vm.max_map_count={rounded(wanted, 1 << 16)}",
    )


RULE = Rule(
    _match,
    severity="warning",
    needs=("limits",),
    occurs=Occurs(windows=NEVER, macos=NEVER),
    hit="""{"pid": 4211, "exit": {"kind": "exited", "code": 0}, "limits": [{"name": "vm.max_map_count", "limit": 65530, "used": 912,
        "peak": 61204, "where": "/proc/sys/vm/max_map_count"}]}""",
    miss="""{"pid": 4211, "exit": {"kind": "exited", "code": 0}, "limits": [{"name": "vm.max_map_count", "limit": 65530, "used": 912,
        "peak": 9412, "where": "/proc/sys/vm/max_map_count"}]}""",
)
