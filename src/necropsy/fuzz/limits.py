"""What a call may take: seconds, and memory, so that an allocation fails before a call has filled it for long."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

_OF_AN_OP, _OF_A_FUNCTION = 256 << 20, 1 << 30
"""Bytes of data. A function may load what it needs in its first call; an op that fills a large result takes long."""
_THREADS = 4
"""Threads that a framework may start for each processor, whose stacks count as data."""
_LEAST_STACK = 8 << 20


@dataclass(frozen=True)
class Limits:
    """What a call may take: seconds, and bytes of memory."""

    seconds: float = 8.0
    data: int | None = 4 << 30
    """What the process may ask for (RLIMIT_DATA); None for as much as there is."""
    resident: int = 4 << 30
    """What it may use."""


def limits_of(pid: int, *, is_python: bool) -> Limits:
    """The limits of the workers that the process ``pid`` forks, from the memory that it has.

    ``is_python``: they call a Python function, not an op.
    """
    import resource  # not for Windows

    with contextlib.suppress(OSError, ValueError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        has = max(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData:"))
        stack = max(resource.getrlimit(resource.RLIMIT_STACK)[0], _LEAST_STACK)
        stacks = (os.cpu_count() or 1) * _THREADS * stack
        return Limits(data=has + stacks + (_OF_A_FUNCTION if is_python else _OF_AN_OP))
    return Limits()
