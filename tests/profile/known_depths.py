"""Programs of known depth, and what `necropsy profile` says of their stacks.

The truth comes from a run with painted stacks, see ``painted_stack.c``: the deepest byte that was written, or the lowest
that a frame had where it does not write it.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PAGE = 4096
HERE = Path(__file__).parent

NATIVE = {
    "recursion": "recursion",
    "narrow": "narrow",
    "mutual": "ping",
    "vla": "variable_array",
    "vla-end": "written_at_its_end",
    "alloca": "taken_by_alloca",
    "probed-vla": "probed_array",
    "probed-frame": "probed_frame",
    "large-frame": "large_frame",
    "two-frames": "inner_array",
    "temporaries": "temporaries",
    "throws": "throwing",
    "jumps": "jumping",
    "leaves": "leaving",
    "std-function": "by_function",
    "qsort": "compared",
    "regex": r"_Executor<.*>::",
    "own-size": "recursion",
    "small": "recursion",
    "wide": "recursion",
    "own-memory": "taken_by_alloca",
    "handler": "handled",
    "signal-stack": "recursion",
    "then-shallow": "recursion",
    "stays": "recursion",
    "detached": "recursion",
    "main-recursion": "recursion",
    "main-frame": "large_frame",
}
"""By the name of the program, the function with the largest share of its stack."""
PYTHON = {
    "json-loads": "scan_once_unicode|_parse_array_unicode",
    "repr": "list_repr|PyObject_Repr",
    "pickle": "save",
    "sorted-key": "_PyEval_EvalFrameDefault|list_sort|sort",
    "len": "_PyEval_EvalFrameDefault|vectorcall|slot",
}


@dataclass(frozen=True)
class KnownDepth:
    """One program: its depth in bytes, what was measured, and the function that took the most."""

    name: str
    depth: int
    wanted: str
    stack: dict[str, Any] | None

    @property
    def error(self) -> int | None:
        """Bytes by which the measured peak exceeds the depth."""
        return None if self.stack is None or self.stack["peak"] is None else self.stack["peak"] - self.depth

    @property
    def is_close(self) -> bool:
        """The peak is right to a page."""
        return self.error is not None and 0 <= self.error <= PAGE

    @property
    def largest(self) -> dict[str, Any] | None:
        """The row of the function with the most bytes."""
        return next(iter((self.stack or {}).get("functions") or ()), None)

    @property
    def named(self) -> str | None:
        """The function with the largest share, if one was found."""
        return self.largest["function"] if self.largest is not None else None

    @property
    def is_named(self) -> bool:
        """That is the right one."""
        return self.named is not None and re.search(rf"(?<!\w)(?:{self.wanted})", self.named) is not None


def build(folder: Path) -> tuple[Path, Path]:
    """The programs, and the library with which Python measures itself."""
    program, library, parts = folder / "deep_stacks", folder / "painted_stack.so", folder / "painted_stack.o"
    sources = HERE / "deep_stacks.cc", HERE / "painted_stack.c"
    for words in (
        ["gcc", "-O1", "-shared", "-fPIC", "-o", library, sources[1]],
        ["gcc", "-O1", "-c", "-o", parts, sources[1]],
        ["g++", "-w", "-O1", "-fno-optimize-sibling-calls", "-o", program, sources[0], parts, "-lpthread"],
    ):
        subprocess.run(list(map(str, words)), check=True)
    return program, library


def measured(folder: Path, command: Sequence[str | Path], reference: Sequence[str | Path]) -> Iterator[KnownDepth]:
    """Run ``command`` under `necropsy profile`, and beside each of its programs what ``reference`` says."""
    painted = _told(subprocess.run(list(map(str, reference)), capture_output=True, text=True, check=True, timeout=120))
    file = folder / f"{Path(command[0]).name}.json"
    words = [
        sys.executable,
        "-m",
        "necropsy",
        "profile",
        "--quiet",
        "--interval",
        "0.05",
        "--json",
        file,
        "--",
        *command,
    ]
    told = _told(subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True, timeout=300))
    stacks: dict[str, dict[str, Any]] = {}
    own, *children = json.loads(file.read_bytes())["processes"]
    for one in own["stacks"]:
        stacks[one.get("python_name") or one["name"]] = one
    for process in children:
        name = process["command"][-1]
        main = "main" if name.startswith("main-") else name
        stacks[name] = next((one for one in process["stacks"] if one["name"] == main), {"peak": None})
    for name, (above, _) in told.items():
        # The calls begin as far below the end of the stack as they do here, and go as deep as they do there.
        yield KnownDepth(name, above + painted[name][1], {**NATIVE, **PYTHON}[name], stacks.get(name))


def _told(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[int, int]]:
    lines = (line.split() for line in done.stdout.splitlines())
    return {name: (int(above), int(below)) for name, above, below in lines}


def native(folder: Path, program: Path, *, busy: bool = False) -> Iterator[KnownDepth]:
    """The programs in C and C++; those that are ``busy`` go on with shallow calls for a second."""
    return measured(folder, [program, *(["busy"] if busy else []), *NATIVE], [program, "painted", *NATIVE])


def python(folder: Path, library: Path) -> Iterator[KnownDepth]:
    """Those in Python."""
    command: list[str | Path] = [sys.executable, HERE / "deep_python.py", library]
    return measured(folder, command, [*command, "painted"])
