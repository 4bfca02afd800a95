"""Compile the crashers: each source once, kept by the hash of what goes into it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE / "build"
FLAGS = {
    "pointers.c": ["-O0"],
    "stack.c": ["-O0", "-pthread"],
    "moved_stacks.c": ["-O0"],
    "filters.c": ["-O0", "-pthread"],
    "smash.c": ["-O1", "-fstack-protector-all"],
    "bare.c": ["-O1", "-fno-stack-protector"],
    "fortify.c": ["-O2", "-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"],
    "heap.c": ["-O0"],
    "aborts.c": ["-O0"],
    "check.cc": ["-O0", "-std=c++17"],
    "arithmetic.c": ["-O0"],
    "memory_map.c": ["-O0"],
    "threads.c": ["-O0", "-pthread"],
    "hidden.c": ["-O1", "-s"],
    "jit.c": ["-O0"],
    "handlers.c": ["-O0"],
    "exceptions.cc": ["-O0", "-std=c++17", "-pthread"],
    "interpreter.c": ["-O0", "-I" + sysconfig.get_paths()["include"]],
}


def library(source: str) -> Path:
    """The compiled ``source``. Raises subprocess.CalledProcessError with the compiler's words on stderr."""
    path = HERE / source
    compiler = "g++" if path.suffix == ".cc" else "gcc"
    # The name is in the crash (`module`), so the hash goes into the folder.
    digest = hashlib.sha256(path.read_bytes() + repr((compiler, FLAGS[source])).encode()).hexdigest()[:16]
    made = BUILD / digest / f"{path.stem}.so"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True)
        unfinished = made.with_suffix(f".{os.getpid()}")
        command = [compiler, "-w", "-shared", "-fPIC", *FLAGS[source], "-o", str(unfinished), str(path)]
        subprocess.run(command, check=True, timeout=120)
        # Another worker may have been faster, and what runs already must not lie in a file that was replaced.
        with contextlib.suppress(FileExistsError):
            os.link(unfinished, made)
        unfinished.unlink()
    return made
