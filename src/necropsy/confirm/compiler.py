"""Compiles an op from its source, in other ways than it was: each build once, kept by the hash of what goes into it."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.errors import InputError, NecropsyError
from necropsy.model import Crash

if sys.platform != "win32":
    import fcntl

_SECONDS = 300.0
KEPT = 64
"""Most recently used builds kept in one folder."""
_BUILT = ".built"
_FLAGS_OF_TENSORFLOW = (
    "import json, tensorflow as tf;print(json.dumps([tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()]))"
)


@dataclass(frozen=True)
class Builder:
    """Compiles ``source`` below ``place`` as ``library`` was, with the flags of ``python``'s TensorFlow for its ops.

    ``more``: further sources of the same library; ``compiler``: another one than ``CXX``, or ``g++`` (``gcc`` for C).
    """

    source: Path
    library: Path
    python: str
    place: Path
    more: tuple[Path, ...] = ()
    compiler: str | None = None
    _flags: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict, compare=False)

    def of(self, source: Path | None) -> Builder | None:
        """A builder for another source of the same library, or None; raises ``InputError`` if the source is missing."""
        if source is None:
            return None
        if not source.is_file():
            raise InputError(f"--op-fixed {source}: there is no such file")
        return dataclasses.replace(self, source=source.resolve())

    def build(self, flags: Sequence[str]) -> Path:
        """Build the library with more ``flags``, once for the same bytes; raises ``NecropsyError`` if it fails."""
        usual = os.environ.get("CXX", "g++") if self.source.suffix != ".c" else "gcc"
        compiler = shutil.which(self.compiler or usual)
        if compiler is None:
            raise NecropsyError("no C++ compiler was found")
        compile_flags, link_flags = self._framework()
        standard = ["-std=c++17"] if self.source.suffix != ".c" else []
        words = [compiler, *standard, *flags, "-shared", "-fPIC", "-w", *compile_flags]
        sources = list(map(str, self._sources))
        # What the preprocessor makes of it holds all headers, wherever they lie.
        whole = self._said([*words, "-E", *sources])
        version = self._said([compiler, "--version"])
        ingredients = [repr((words, link_flags)).encode(), version, whole]
        made = self.place / hashlib.sha256(b"\0".join(ingredients)).hexdigest()[:20]
        self.place.mkdir(mode=0o700, parents=True, exist_ok=True)
        named = made / self.library.name
        with _alone(made.with_suffix(".lock")):
            if not (made / _BUILT).is_file():
                self._compiled([*words, *sources], link_flags, made)
            if not named.is_file():
                # One op is a library of several names; reports tell the name.
                named.hardlink_to(made / _BUILT)
        os.utime(made)
        _pruned(self.place)
        return named

    def _compiled(self, words: Sequence[str], link_flags: Sequence[str], made: Path) -> None:
        with tempfile.TemporaryDirectory(dir=self.place, prefix="unfinished-") as unfinished:
            out = Path(unfinished) / _BUILT
            self._said([*words, "-o", str(out), *link_flags])
            made.mkdir(exist_ok=True)
            out.replace(made / _BUILT)

    def _said(self, words: Sequence[str]) -> bytes:
        """The compiler's output; it is ended with the campaign."""
        keeper = [sys.executable, "-I", "-S", str(Path(__file__).with_name("subreaper.py")), str(os.getpid())]
        try:
            done = subprocess.run([*keeper, *words], capture_output=True, check=False, timeout=_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise NecropsyError(f"{self.source.name} did not compile in {_SECONDS:.0f} s") from error
        if done.returncode:
            said = done.stderr.decode(errors="replace")
            first = next((line for line in said.splitlines() if "error" in line), said[-200:])
            raise NecropsyError(f"{self.source.name} does not compile: {first.strip()}")
        return done.stdout

    @property
    def _sources(self) -> tuple[Path, ...]:
        return (self.source, *self.more)

    def _framework(self) -> tuple[list[str], list[str]]:
        if not any("tensorflow/" in one.read_text(encoding="utf-8", errors="replace") for one in self._sources):
            return [], []
        if "tensorflow" not in self._flags:
            done = subprocess.run(
                [self.python, "-c", _FLAGS_OF_TENSORFLOW], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise NecropsyError(f"{self.python} cannot say with which flags TensorFlow's ops are built")
            compile_flags, link_flags = json.loads(done.stdout.splitlines()[-1])
            self._flags["tensorflow"] = compile_flags, link_flags
        return self._flags["tensorflow"]


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Of concurrent campaigns with the same build, one compiles and the others wait."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _pruned(place: Path) -> None:
    builds = [path for path in place.iterdir() if path.is_dir() and not path.name.startswith("unfinished-")]
    if len(builds) <= KEPT:
        return

    def used(path: Path) -> float:
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
        return 0.0

    for path in sorted(builds, key=used)[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)
        path.with_suffix(".lock").unlink(missing_ok=True)


def builder(source: Path, crash: Crash, command: Sequence[str], place: Path) -> Builder:
    """The builder of the library that the crash was in or the command names; raises ``InputError`` if there is none."""
    if not source.is_file():
        raise InputError(f"--op-source {source}: there is no such file")
    named = [Path(word) for word in command if word.endswith(".so") and Path(word).is_file()]
    stem = source.stem.replace("_", "")
    mapped = [Path(one.path) for one in crash.modules or () if Path(one.path).stem.replace("_", "") == stem]
    found = next(iter([*named, *(path for path in mapped if path.is_file())]), None)
    if found is None:
        raise InputError(
            f"cannot tell which library is built from {source.name}: the command names none, and none has that name"
        )
    # As it was typed: what a link of a virtual environment leads to has none of its packages.
    python = command[0] if Path(command[0]).name.startswith("python") else None
    known = crash.environment.executable if crash.environment is not None else None
    return Builder(source.resolve(), found.resolve(), python or known or command[0], place)
