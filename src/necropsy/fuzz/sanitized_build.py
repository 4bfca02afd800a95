"""``--source``: the target built again with AddressSanitizer and UndefinedBehaviorSanitizer, and loaded with them.

A guard page sees what leaves a buffer of the heap. The sanitizers also see local arrays, and with ``bounds`` members of
a struct. The build collects the constants that the op compares with (``comparison_constants.cc``).
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from necropsy.confirm import address_sanitizer
from necropsy.confirm.compiler import Builder
from necropsy.errors import NecropsyError, NoInputError, OptionError
from necropsy.fuzz.sanitizing_compilers import SanitizingCompiler, sanitizing_compiler

SUFFIXES = (".c", ".cc", ".cpp", ".cxx", ".C")
_HEADERS = ("eigen3", "Eigen", "unsupported/Eigen", "tensorflow/include", "/c++/", "absl")
SUPPRESSIONS = "".join(f"signed-integer-overflow:{one}\n" for one in _HEADERS)
"""Headers that calculate with the elements of tensors as they come."""
_ENDS: dict[str, int | str] = {"abort_on_error": 1, "print_legend": 0}
_OPTIONS: dict[str, int | str] = {
    # Signals are diagnosed as they are in a plain process.
    **dict.fromkeys(("handle_segv", "handle_sigbus", "handle_sigfpe", "handle_sigill", "handle_abort"), 0),
    **_ENDS,
    "allocator_may_return_null": 1,
    "max_allocation_size_mb": 4096,
    "quarantine_size_mb": 64,
}
_QUICK: dict[str, int | str] = {"symbolize": 0, "malloc_context_size": 1}
"""For deaths that only have to be told apart."""
_RECORDER = Path(__file__).with_name("comparison_constants.cc")


@dataclass(frozen=True)
class SanitizedBuild:
    """The built library, and what it was made of. A process loads the runtime of ``compiler`` first."""

    library: Path
    sources: tuple[Path, ...]
    compiler: SanitizingCompiler

    def variables(self, *, quick: bool = False) -> dict[str, str]:
        """The environment of a process that loads it; ``quick``: without the names of functions in reports."""
        named = {} if quick else self.compiler.variables()
        return variables(self.compiler.runtime, self.library.with_suffix(".supp"), quick=quick) | named


def variables(runtime: str, suppressions: Path, *, quick: bool = False) -> dict[str, str]:
    """The environment of a process that loads a library with the sanitizers."""
    more = _QUICK if quick else {}
    undefined: dict[str, int | str] = {
        **_ENDS,
        "halt_on_error": 1,
        "print_stacktrace": int(not quick),
        "symbolize": int(not quick),
        "suppressions": str(suppressions),
    }
    return {
        "LD_PRELOAD": " ".join(address_sanitizer.preload(runtime)),
        "ASAN_OPTIONS": address_sanitizer.options(**_OPTIONS, **more),
        "UBSAN_OPTIONS": address_sanitizer.spelled(undefined),
    }


def checked(sources: Sequence[Path]) -> tuple[Path, ...]:
    """The sources by their whole paths.

    Raises:
        NoInputError: there is no such file.
        OptionError: it is not C or C++.

    """
    if len({one.suffix == ".c" for one in sources}) > 1:
        raise OptionError("--source: C and C++ files cannot be compiled into one library here; give only one kind")
    for one in sources:
        if not one.is_file():
            raise NoInputError(f"--source {one}: there is no such file")
        if one.suffix not in SUFFIXES:
            error = OptionError(f"--source {one}: this is not a file of C or C++ code")
            error.hint = f"give the files that the library is compiled from ({', '.join(SUFFIXES)})"
            raise error
    return tuple(one.resolve() for one in sources)


def build(sources: Sequence[Path], name: str, python: str, place: Path) -> SanitizedBuild:
    """Compile the library ``name`` below ``place``.

    Raises:
        NecropsyError: there is no compiler or no runtime, or the sources do not compile.

    """
    compiler = sanitizing_compiler()
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    recorder = place / "comparison_constants.o"
    unfinished = recorder.with_suffix(f".{os.getpid()}")  # another process may use it already
    words = [compiler.cpp, "-c", "-O2", "-fPIC", "-o", str(unfinished), str(_RECORDER)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NecropsyError(f"{compiler.cpp} cannot compile {_RECORDER.name}: {done.stderr.strip()[-200:]}")
    unfinished.replace(recorder)
    first, *more = sources
    own = compiler.c if first.suffix == ".c" else compiler.cpp
    builder = Builder(first, Path(name), python, place, tuple(more), own)
    library = builder.build((*address_sanitizer.FLAGS, compiler.comparisons, str(recorder)))
    library.with_suffix(".supp").write_text(SUPPRESSIONS, encoding="ascii")
    return SanitizedBuild(library, tuple(sources), compiler)
