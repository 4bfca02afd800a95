"""What the kinds of targets share when they are loaded: the names for calls, and why a target cannot be called."""

from __future__ import annotations

import builtins
import contextlib
import os
import re
from typing import Any

_WORDS = 300


class RefusedError(Exception):
    """The target cannot be called; ``what``: ``framework``, ``library``, ``op`` or ``module``."""

    def __init__(self, what: str, text: str) -> None:
        self.what = what
        super().__init__(text)


def last_line(error: Exception) -> str:
    """The first line of what an error says, without the place in a graph and the current folder."""
    lines = re.sub(r"\{\{.*?\}\} *| \[Op:\w+\]", "", str(error)).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    with contextlib.suppress(OSError):
        text = text.replace(os.getcwd() + "/", "")
    return text[:_WORDS]


def is_mapped(path: str) -> bool:
    """Whether this process has loaded the library."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as file:
        return any(line.rstrip("\n").endswith(path) for line in file)


def namespace(**names: Any) -> dict[str, Any]:
    """The names that calls are made of."""
    return {"__builtins__": builtins, **names}
