"""Memory rose steadily until the end of the run.

What happened
-------------
Over the second half of the run the memory of a process rose all the time, at an even rate. The run ended before it mattered. A longer run at this
rate reaches the limit on its memory, if one is set, at the time that is given. It is a warning where that is within ten times the length of
this run, a note elsewhere.

How to be sure
--------------
Run it longer, or with more steps. If the program only fills a buffer or a cache, the rise ends. Growth is reported only for runs of at least 20
seconds, where each fifth of the second half has more memory than the one before, no rise is less than half or more than twice the average one, the
last one is not much smaller than the first, and all of them together make 16 MiB and 5 % or more. A program that is still warming up slows
down, and is not reported. What counts is anonymous and shared memory, without files that are mapped. ``processes[].memory`` in the JSON document of
``necropsy profile`` is the series that was judged.

How to fix it now
-----------------
Find what is kept. ``memray`` records who allocated what was never freed, in Python and in native code. Usual causes are lists of results that grow with each
step (losses that are kept as tensors keep their graph), ``tf.function`` that is traced again for each new Python value, new operations in
a loop in graph mode, caches without a bound, and extension modules that do not release what they took.

How to prevent it
-----------------
Profile a run of some minutes before one of some days. Convert what you log to Python numbers. Bound caches. As a stopgap, let workers end after a
number of tasks (``maxtasksperchild``).

What it is often mistaken for
-----------------------------
Memory that comes in steps with the first batches: pools, compiled kernels, and the allocator's own reserve. Fragmentation: the program frees what it
took, but the allocator cannot give it back; another allocator or ``MALLOC_ARENA_MAX=2`` shows the difference. File cache, which the kernel drops.

Sources
-------
- https://bloomberg.github.io/memray/
- https://docs.python.org/3/library/tracemalloc.html
- https://www.tensorflow.org/guide/function
- https://man7.org/linux/man-pages/man3/mallopt.3.html
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from necropsy.model import Evidence, Fix, Limit, Process, ResourceUse
from necropsy.rule import Finding, Rule
from necropsy.rules.headroom import most, who
from necropsy.rules.limits import WHAT
from necropsy.rules.wording import sentence, size

_SHORTEST_S = 20.0
_PARTS, _POINTS = 5, 3
"""Parts of the second half, and the looks that each of them has at least."""
_EVEN = (0.5, 2.0)
"""The rise from one part to the next, as a multiple of the average one."""
_SLOWER = 0.6
"""The last rise as a multiple of the first one: below that it is coming to an end."""
_LEAST, _LEAST_SHARE = 16 << 20, 0.05
_SOON = 10
"""Times the length of the run."""
_MEMORY = ("memory.max", "RLIMIT_AS", "RLIMIT_DATA")


@dataclass(frozen=True)
class _Rise:
    """The second half: bytes at its first part and at its last one, seconds between the two, and of the whole run."""

    first: float
    last: float
    apart_s: float
    run_s: float

    @property
    def rate(self) -> float:
        return (self.last - self.first) / self.apart_s


def _match(process: Process) -> Finding | None:
    rise = _steady(process.memory or ())
    if rise is None:
        return None
    reached = min(((_left(one) / rise.rate, one) for one in _limits(process)), key=lambda pair: pair[0], default=None)
    figures = f"{size(rise.first)} to {size(rise.last)}, {size(rise.rate * 60)} a minute"
    summary = f"{sentence(who(process))} took more and more memory over the second half of the run: {figures}."
    if reached is not None:
        then = f"At this rate a longer run would reach the limit on {WHAT[reached[1].name]}, {size(reached[1].limit)},"
        summary += f" {then} after {_span(reached[0])} more."
    seen = f"{figures}, each of {_PARTS} parts above the one before"
    return Finding(
        evidence=(
            Evidence(claim="memory rose steadily", seen=seen, where=f"{rise.run_s:.0f} s of process {process.pid}"),
        ),
        summary=summary,
        confidence="likely",
        severity="warning" if reached is not None and reached[0] <= _SOON * rise.run_s else "note",
        fixes=(
            Fix(
                text="Find out what is kept, on a run of some minutes. For a Python program:",
                command="memray run -o run.bin PROGRAM.py && memray flamegraph --leaks run.bin",
            ),
        ),
    )


def _steady(points: tuple[ResourceUse, ...]) -> _Rise | None:
    """The rise over the second half, if it was an even one."""
    if not points or points[-1].at - points[0].at < _SHORTEST_S:
        return None
    begin, end = (points[0].at + points[-1].at) / 2, points[-1].at
    part_s = (end - begin) / _PARTS
    parts: list[list[ResourceUse]] = [[] for _ in range(_PARTS)]
    for one in points:
        if one.at >= begin:
            parts[min(int((one.at - begin) / part_s), _PARTS - 1)].append(one)
    if any(len(part) < _POINTS for part in parts):
        return None
    # The median: garbage collection makes teeth, and at the last look the program may have given all back.
    levels = [median(map(_own, part)) for part in parts]
    whole = levels[-1] - levels[0]
    before = [_own(one) for one in points if (points[0].at + begin) / 2 <= one.at < begin]
    if whole < max(_LEAST, _LEAST_SHARE * levels[0]) or (before and median(before) >= levels[0]):
        return None
    steps = [(after - before) / whole * (_PARTS - 1) for before, after in pairwise(levels)]
    if not all(_EVEN[0] <= step <= _EVEN[1] for step in steps) or steps[-1] < _SLOWER * steps[0]:
        return None
    first, last = (median(one.at for one in part) for part in (parts[0], parts[-1]))
    return _Rise(levels[0], levels[-1], last - first, points[-1].at - points[0].at)


def _own(one: ResourceUse) -> float:
    """Memory that is not a copy of files."""
    return one.anonymous + (one.shared or 0) + (one.swap or 0) if one.anonymous is not None else one.rss or 0


def _limits(process: Process) -> list[Limit]:
    return [one for one in process.limits or () if one.name in _MEMORY and most(one) is not None]


def _left(one: Limit) -> int:
    return max(one.limit - (most(one) or 0), 0)


def _span(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3.5 h``, ``2 days``."""
    for unit, whole in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * whole:
            return f"{float(f'{seconds / whole:.2g}'):,g} {unit}"
    return f"{seconds:.0f} s"


RULE = Rule(
    _match,
    severity="note",
    needs=("memory",),
    hit="""{"pid": 4211, "exit": {"kind": "exited", "code": 0}, "limits": [{"name": "memory.max", "limit": 4294967296, "peak": 1426063360, "where":
        "/sys/fs/cgroup/memory.max"}], "memory": [{"at":0,"rss":419430400}, {"at":60,"rss":922746880}, {"at":64,"rss":956301312},
        {"at":68,"rss":989855744}, {"at":72,"rss":1023410176}, {"at":76,"rss":1056964608}, {"at":80,"rss":1090519040}, {"at":84,"rss":1124073472},
        {"at":88,"rss":1157627904}, {"at":92,"rss":1191182336}, {"at":96,"rss":1224736768}, {"at":100,"rss":1258291200},
        {"at":104,"rss":1291845632}, {"at":108,"rss":1325400064}, {"at":112,"rss":1358954496}, {"at":116,"rss":1392508928},
        {"at":120,"rss":1426063360}]}""",
    miss="""{"pid": 4211, "exit": {"kind": "exited", "code": 0}, "limits": [{"name": "memory.max", "limit": 4294967296, "peak": 1426063360, "where":
        "/sys/fs/cgroup/memory.max"}], "memory": [{"at":0,"rss":419430400}, {"at":60,"rss":922746880}, {"at":64,"rss":956301312},
        {"at":68,"rss":989855744}, {"at":72,"rss":1023410176}, {"at":76,"rss":1056964608}, {"at":80,"rss":1090519040}, {"at":84,"rss":1124073472},
        {"at":88,"rss":1124073472}, {"at":92,"rss":1124073472}, {"at":96,"rss":1124073472}, {"at":100,"rss":1124073472},
        {"at":104,"rss":1124073472}, {"at":108,"rss":1124073472}, {"at":112,"rss":1124073472}, {"at":116,"rss":1124073472},
        {"at":120,"rss":1124073472}]}""",
)
