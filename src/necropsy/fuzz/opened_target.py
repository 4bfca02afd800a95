"""What a campaign is about: an op library, ops of TensorFlow, or a Python function, read and loaded."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from necropsy.errors import InputError, NecropsyError, NoInputError
from necropsy.fuzz import sanitized_build
from necropsy.fuzz.definitions import OpDefinition, definition, handle_maker, python_function
from necropsy.fuzz.engine import Engine, RefusedTargetError
from necropsy.fuzz.forked_runs import ForkedRuns
from necropsy.fuzz.limits import Limits
from necropsy.fuzz.sanitized_build import SanitizedBuild
from necropsy.fuzz.spawned_engine import SpawnedEngine
from necropsy.fuzz.target.functions import VARIABLE
from necropsy.fuzz.test_writer import Source
from necropsy.model import SubjectKind

if TYPE_CHECKING:
    from typing import Self

RAW_OPS = "tf.raw_ops."
FORKS = sys.platform == "linux"
"""Whether workers are forked. Where they are not, Python functions are called only."""
_AT_ONCE = {"TF_ENABLE_ONEDNN_OPTS": "0"}
"""For ops of the user's: oneDNN's allocator tries for 10 s before it fails, and keeps memory that the guard cannot see.

``max_millis_to_wait`` in tensorflow/core/common_runtime/bfc_allocator.cc (2.20).
"""
_WITH_ONEDNN = {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}
"""For TensorFlow's own ops, whose oneDNN kernels are called as well: without that allocator.

``UseSystemAlloc`` in tensorflow/core/common_runtime/mkl_cpu_allocator.h (2.20).
"""


@dataclass(frozen=True)
class SanitizedTarget:
    """The target as it is with AddressSanitizer, and the names of its ops."""

    build: SanitizedBuild
    engine: Engine
    ops: frozenset[str]
    start_s: float


class OpenTarget:
    """A target that is loaded, until it is closed."""

    def __init__(self, target: str, python: str, *, guard: bool) -> None:
        """Load it in the interpreter ``python``; with ``guard``, where that is possible, guarded calls can be made.

        Raises:
            NecropsyError: it cannot be loaded.

        """
        began = time.monotonic()
        self.name = target
        self.read = read_target(target)
        self.engine = _engine(target, self.read, python, guard=guard)
        try:
            self.ops = _definitions(self.engine)
        except BaseException:
            self.engine.close()
            raise
        self.forked = ForkedRuns(python, self.engine.imports)
        """Where its tests run for a diagnosis."""
        self.start_s = time.monotonic() - began
        """How long that took. The first campaign has less time for it."""
        self.sanitized: SanitizedTarget | NecropsyError | None = None
        """The same from its sources, or why that is not possible; None until somebody wants it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()
        self.forked.close()
        if isinstance(self.sanitized, SanitizedTarget):
            self.sanitized.engine.close()

    def open_sanitized(self, sources: Sequence[Path], python: str, place: Path) -> SanitizedTarget | NecropsyError:
        """Build the sources below ``place``, and load them, once; why it is not possible, if it is not."""
        if self.sanitized is None:
            try:
                self.sanitized = self._sanitized(sources, python, place)
            except NecropsyError as error:
                self.sanitized = error
        return self.sanitized

    def _sanitized(self, sources: Sequence[Path], python: str, place: Path) -> SanitizedTarget:
        library = self.read.source.library
        name = library.name if library is not None else f"{sources[0].stem}.so"
        build = sanitized_build.build(sources, name, python, place)
        began = time.monotonic()
        wanted = {**self.read.wanted, "sanitized": str(build.library)}
        variables = build.variables(quick=True)
        if library is not None:
            wanted["library"] = str(build.library)
        else:
            variables[VARIABLE] = str(build.library)
        # AddressSanitizer reserves 16 TiB.
        engine = Engine(python, wanted, Limits(data=None), variables=variables)
        ops = frozenset(one.name for one in _definitions(engine))
        return SanitizedTarget(build, engine, ops, time.monotonic() - began)


@dataclass(frozen=True)
class Target:
    """What is called: for the fork server, for the tests, and in words."""

    wanted: Mapping[str, str]
    source: Source
    kind: SubjectKind


def read_target(target: str) -> Target:
    """Read the target.

    Raises:
        NoInputError: there is no such file.
        InputError: it is not a library.

    """
    if target.startswith(RAW_OPS):
        return Target({"pattern": target.removeprefix(RAW_OPS)}, Source(), "binary")
    path = Path(target)
    module, colon, function = target.rpartition(":")
    if colon and function.isidentifier() and not path.exists():
        if module.endswith(".py"):
            if not Path(module).is_file():
                raise NoInputError(f"there is no file {module}")
            module = str(Path(module).resolve())
        wanted = {"module": module, "function": function, "folder": str(Path.cwd())}
        return Target(wanted, Source(module=module, function=function), "source")
    if not path.is_file():
        kinds = "the path of a built op library, tf.raw_ops.NAME, FILE.py:FUNCTION or MODULE:FUNCTION"
        raise NoInputError(f"there is no file {target}: give {kinds}")
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise NoInputError(f"cannot read {target}: {error.strerror}") from error
    if head != b"\x7fELF":
        raise InputError(f"{target} is not a built op library (an ELF file)")
    return Target({"library": str(path.resolve())}, Source(library=path.resolve()), "binary")


def _engine(target: str, read: Target, python: str, *, guard: bool) -> Engine:
    if not FORKS and read.source.function is None:
        error = NecropsyError("ops of TensorFlow can be fuzzed on Linux only")
        error.hint = "on Windows the target is a Python function: FILE.py:FUNCTION or MODULE:FUNCTION"
        raise error
    try:
        if not FORKS:
            return SpawnedEngine(python, read.wanted)
        variables = _AT_ONCE if read.source.library is not None else _WITH_ONEDNN
        own = {name: one for name, one in variables.items() if name not in os.environ}
        return Engine(python, read.wanted, guard=guard, variables=own)
    except RefusedTargetError as error:
        library = read.source.library
        if read.source.function is not None:
            if error.what == "module":
                raise NoInputError(f"{target}: {error}") from error
            raise InputError(f"{target} cannot be imported: {error}") from error
        if error.what == "framework":
            failed = NecropsyError(f"TensorFlow cannot be imported by {python}: {error}")
            failed.hint = "name the interpreter that has it with --python"
            raise failed from error
        if error.what == "op":
            raise (NoInputError(str(error)) if library is None else InputError(f"{target} registers no op")) from error
        why = str(error).replace(f"{library}: ", "")
        bad = InputError(f"{target} is not an op library that TensorFlow can load: {why}")
        bad.hint = f"`necropsy doctor --op {target}` says more"
        raise bad from error


def _definitions(engine: Engine) -> list[OpDefinition]:
    """Raises ``InputError`` if no call of a function can be made up."""
    if "function" in engine.offered:
        return [python_function(engine.offered["function"])]
    several = map(handle_maker, engine.offered["makers"])
    makers = [one for one in several if one is not None]
    return [definition(one, makers) for one in engine.offered["ops"]]


def chosen(ops: Sequence[OpDefinition], names: Sequence[str], target: str) -> list[OpDefinition]:
    """The ops with these names, in any spelling; all where none is named. Raises ``NoInputError``."""
    if not names:
        return list(ops)

    def plain(name: str) -> str:
        return name.replace("_", "").lower()

    found: list[OpDefinition] = []
    for name in names:
        named = [one for one in ops if plain(one.name) == plain(name)]
        if not named:
            listed = ", ".join(one.name for one in ops[:8]) + (", ..." if len(ops) > 8 else "")
            raise NoInputError(f"{target} has no op {name}; it has {listed}")
        found += [one for one in named if one not in found]
    return found
