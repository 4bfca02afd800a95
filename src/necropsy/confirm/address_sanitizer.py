"""AddressSanitizer in one library of a process whose other code was not built with it: flags, runtime, variables."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

COMPILER = "g++"
FLAGS = (
    *("-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"),
    "-fsanitize=address,bounds,signed-integer-overflow",
)
"""With the checks of UndefinedBehaviorSanitizer that see what AddressSanitizer does not: members of a struct.

No compiler makes a loop of a recursion, which would hide how deep it is; clang may do so at -O1.
"""


def runtime() -> str | None:
    """g++'s runtime of AddressSanitizer; None where there is none."""
    if shutil.which(COMPILER) is None:
        return None
    words = [COMPILER, "-print-file-name=libasan.so"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    path = done.stdout.strip()
    return path if done.returncode == 0 and Path(path).is_absolute() else None


def preload(library: str) -> tuple[str, str]:
    """What a process loads first, for the runtime ``library`` to work in it."""
    # The C++ library as well: the runtime looks at its start for what throws exceptions, and gives up without it.
    return (library, "libstdc++.so.6")


def options(**more: int | str) -> str:
    """The value of ``ASAN_OPTIONS``: what a program that is not our own leaks is no matter, and ``more``."""
    return spelled({**_OPTIONS, **more})


def spelled(chosen: Mapping[str, int | str]) -> str:
    """Options of a sanitizer as the value of a variable."""
    return ":".join(f"{name}={value}" for name, value in chosen.items())


_OPTIONS: Mapping[str, int | str] = {
    "detect_leaks": 0,
    "detect_odr_violation": 0,
    # It would keep local variables on the heap, and a recursion would end elsewhere.
    "detect_stack_use_after_return": 0,
}
