"""The supervisor's C library (``csrc/``), loaded through ctypes; where it was not built, Python does the same work."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
from pathlib import Path

_FOR = ("x86_64", "aarch64")
"""The processors that it can be built for, as ``uname -m`` calls them."""
_PATH = Path(__file__).parents[1] / f"_supervisor-{platform.machine()}.so"
CHOICE = "NECROPSY_LOOP"
"""Environment variable: ``python`` leaves the library alone, for comparing the two."""


@functools.cache
def load() -> ctypes.CDLL | None:
    """The library; None where it is missing, made for another machine, or not wanted. Calls release the GIL."""
    if os.environ.get(CHOICE) == "python" or platform.machine() not in _FOR:
        return None
    try:
        return ctypes.CDLL(str(_PATH))
    except OSError:
        return None


def why_missing() -> str | None:
    """Why the Python loop is in use, for a report's gaps and for `doctor`; None where the library is."""
    if load() is not None:
        return None
    if os.environ.get(CHOICE) == "python":
        return f"{CHOICE}=python selects the Python loop"
    if platform.machine() not in _FOR:
        return f"the C loop is for x86-64 and AArch64, and this is {platform.machine()}"
    if not _PATH.exists():
        return "the C loop was not built when necropsy was installed: there was no C compiler"
    return "the C loop cannot be loaded here"
