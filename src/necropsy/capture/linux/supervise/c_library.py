"""The supervisor's C library (``csrc/``), loaded through ctypes; where it was not built, Python does the same work."""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import struct
from pathlib import Path

_FOR = ("x86_64", "aarch64")
"""The processors that it can be built for, as ``uname -m`` calls them."""
_PATH = Path(__file__).parents[1] / f"_supervisor-{platform.machine()}.so"
CHOICE = "NECROPSY_LOOP"
"""Environment variable: ``python`` leaves the library alone, for comparing the two."""
RECORD = struct.Struct("<5i7IQQ")
"""``struct record``: kind, tid, pid, parent, value, peaks and stack in KiB, place and lengths of a text, ns, base."""


@functools.cache
def load() -> ctypes.CDLL | None:
    """The library; None where it is missing, of another machine or version, or not wanted. Calls release the GIL."""
    if os.environ.get(CHOICE) == "python" or platform.machine() not in _FOR:
        return None
    try:
        library = ctypes.CDLL(str(_PATH))
    except OSError:
        return None
    return library if _is_of_this_version(library) else None


def _is_of_this_version(library: ctypes.CDLL) -> bool:
    """False for one that an older installation has left: its records would be misread, or it lacks a function."""
    try:
        return int(library.necropsy_record_size()) == RECORD.size and bool(library.necropsy_baseline)
    except AttributeError:
        return False


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
    return "the C loop cannot be loaded here, or is of another version of necropsy: install necropsy again"
