"""The compiler that builds a source with the sanitizers: g++, or clang++ where that is what there is."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from necropsy.errors import NecropsyError

FAMILIES = (("gcc", "g++"), ("clang", "clang++"))
"""The compilers of C and of C++, in the order in which they are tried."""
_OF_GCC = "libasan.so"
_OF_CLANG = ("libclang_rt.asan.so", "libclang_rt.asan-x86_64.so", "libclang_rt.asan-aarch64.so")
"""What clang's runtime of AddressSanitizer may be called. It finds gcc's as well, which lacks half of UBSan."""


@dataclass(frozen=True)
class SanitizingCompiler:
    """The commands for C and C++, and the runtime of AddressSanitizer that belongs to them."""

    c: str
    cpp: str
    runtime: str

    @property
    def comparisons(self) -> str:
        """The flag for what collects the constants. Clang looks at no comparison unless it also counts functions."""
        kinds = "func,trace-pc-guard,trace-cmp" if is_clang(self.cpp) else "trace-cmp"
        return f"-fsanitize-coverage={kinds}"

    def variables(self) -> dict[str, str]:
        """What the runtime needs to name functions: clang's asks a program, which need not be on ``PATH``."""
        if not is_clang(self.cpp):
            return {}
        symbolizer = _said([self.cpp, "-print-prog-name=llvm-symbolizer"])
        return {"ASAN_SYMBOLIZER_PATH": symbolizer} if Path(symbolizer).is_absolute() else {}


def is_clang(command: str) -> bool:
    """Whether it is clang, by its name."""
    return "clang" in Path(command).name


def runtimes_of(command: str) -> list[str]:
    """What its runtime of AddressSanitizer may be called."""
    return list(_OF_CLANG) if is_clang(command) else [_OF_GCC]


def sanitizing_compiler() -> SanitizingCompiler:
    """The first one that is complete; ``CXX`` and ``CC`` name another one.

    Raises:
        NecropsyError: there is none, or none with a runtime of AddressSanitizer.

    """
    families: Sequence[tuple[str, str]] = FAMILIES
    if own := os.environ.get("CXX"):
        families = [(os.environ.get("CC") or ("clang" if is_clang(own) else "gcc"), own)]
    there = [(c, cpp) for c, cpp in families if shutil.which(cpp) is not None]
    for c, cpp in there:
        runtime = _runtime(cpp)
        if runtime is not None:
            return SanitizingCompiler(c, cpp, runtime)
    if not there:
        raise NecropsyError(f"there is no {' and no '.join(cpp for _, cpp in families)} on this machine")
    names = " and ".join(f"{cpp} (libclang_rt.asan)" if is_clang(cpp) else f"{cpp} (libasan.so)" for _, cpp in there)
    raise NecropsyError(f"the AddressSanitizer runtime of {names} is not installed on this machine")


def _runtime(compiler: str) -> str | None:
    found = (_said([compiler, f"-print-file-name={one}"]) for one in runtimes_of(compiler))
    return next((one for one in found if Path(one).is_absolute()), None)


def _said(words: Sequence[str]) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
