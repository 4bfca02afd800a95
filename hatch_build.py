"""Builds the supervisor's C library where there is a C compiler; without one, the loop in Python does its work.

The library needs no C library and no Python headers (see ``csrc/kernel.h``), so a wheel built anywhere on Linux x86-64
runs everywhere on Linux x86-64, with glibc and with musl.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDER = Path("src/necropsy/capture/linux")
NAME = "_supervisor-x86_64.so"
TAG = "py3-none-manylinux_2_17_x86_64.musllinux_1_1_x86_64"
FLAGS = (
    *("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror=implicit-function-declaration"),
    *("-ffreestanding", "-fno-builtin", "-fno-stack-protector", "-fno-tree-loop-distribute-patterns"),
    *("-fPIC", "-fvisibility=hidden", "-shared", "-nostdlib", "-s"),
    *("-Wl,--build-id=none", "-Wl,-z,noexecstack", f"-Wl,-soname,{NAME}"),
)


def compiler() -> str | None:
    """The C compiler: ``$CC``, else the first of the usual names that is installed."""
    named = os.environ.get("CC")
    names = (named,) if named else ("cc", "gcc", "clang")
    return next((found for name in names if name and (found := shutil.which(name.split()[0]))), None)


def compile_library(root: Path) -> Path | None:
    """Compile ``csrc/*.c`` into one library beside the Python modules; None where that is not possible."""
    built = root / FOLDER / NAME
    sources = sorted(str(path) for path in (root / FOLDER / "csrc").glob("*.c"))
    found = compiler()
    if sys.platform != "linux" or platform.machine() != "x86_64" or found is None or not sources:
        return None
    # Written beside and moved over: a process that has the old library mapped keeps the old one.
    fresh = built.with_suffix(f".{os.getpid()}")
    done = subprocess.run([found, *FLAGS, "-o", str(fresh), *sources], check=False, capture_output=True, text=True)
    if done.returncode:
        print(f"necropsy: the C loop was not built, the Python loop is used:\n{done.stderr}", file=sys.stderr)
        fresh.unlink(missing_ok=True)
        return None
    fresh.replace(built)
    return built


class BuildHook(BuildHookInterface[Any]):
    """Adds the library to the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; an editable install finds the library in the source tree."""
        if self.target_name != "wheel":
            return
        built = compile_library(Path(self.root))
        if built is not None:
            build_data["pure_python"] = False
            build_data["tag"] = TAG
            if version != "editable":
                build_data["force_include"][str(built)] = f"necropsy/capture/linux/{NAME}"


if __name__ == "__main__":
    print(compile_library(Path(__file__).parent))
