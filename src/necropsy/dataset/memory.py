"""How much memory this process may use."""

from __future__ import annotations

import contextlib
import os

_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def available() -> int | None:
    """Bytes: the limit of the control group where it is below the machine's memory; None where neither is known."""
    found = []
    for path in _LIMITS:
        try:
            with open(path, encoding="ascii") as file:
                text = file.read().strip()
        except OSError:
            continue
        if text.isdigit():
            found.append(int(text))
    with contextlib.suppress(AttributeError, ValueError, OSError):
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found, default=None)
