"""The running kernel's version."""

from __future__ import annotations

import platform
import re


def version() -> tuple[int, int]:
    """Its first two numbers; (0, 0) where they cannot be read."""
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return (int(found[1]), int(found[2])) if found else (0, 0)
