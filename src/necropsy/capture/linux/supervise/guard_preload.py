"""The guard allocator (``csrc/guard/``) in the environment of a command: loaded before its other libraries.

The variables are inherited, so all that the command starts is guarded as well.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

from necropsy.errors import NecropsyError

LIBRARY = Path(__file__).parents[1] / f"_guard-{platform.machine()}.so"
OPTIONS = "NECROPSY_GUARD"
"""The variable with the guard's options, see ``csrc/guard/policy.c``."""
_PRELOAD = b"LD_PRELOAD"


def check() -> None:
    """Raise NecropsyError where programs cannot be guarded here."""
    if sys.platform != "linux":
        raise NecropsyError(f"--guard does not work on {sys.platform} yet")
    error = None
    if not LIBRARY.exists():
        error = NecropsyError("--guard needs a library that was not built when necropsy was installed")
        error.hint = "install necropsy's wheel for Linux (x86-64 or AArch64), or install it where a C compiler is"
    elif any(sign in str(LIBRARY) for sign in " :"):
        error = NecropsyError(f"--guard cannot load a library whose path has a space or a colon: {LIBRARY}")
        error.hint = "install necropsy into a folder without these characters"
    elif not _is_glibc():
        error = NecropsyError("--guard needs glibc: it has not been tested with another C library")
    if error is not None:
        raise error


def _is_glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError):  # musl has the name, and no such value
        return False


def added(environment: Iterable[bytes]) -> tuple[bytes, ...]:
    """The ``NAME=value`` entries with the guard behind the user's own LD_PRELOAD, whose libraries may wrap malloc."""
    entries = list(environment)
    ours = os.fsencode(LIBRARY)
    for at, entry in enumerate(entries):
        name, equals, value = entry.partition(b"=")
        if equals and name == _PRELOAD:
            if ours not in value.replace(b" ", b":").split(b":"):
                entries[at] = _PRELOAD + b"=" + b":".join(filter(None, (value, ours)))
            return tuple(entries)
    return (*entries, _PRELOAD + b"=" + ours)
