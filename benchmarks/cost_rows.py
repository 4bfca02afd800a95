"""The workloads of cost.py: what each row runs, how often, and what has to be there for it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from meter import Stream

SOURCES = Path(__file__).parent / "workloads"
LOG_MODES = ("auto", "tap", "pty", "off")
STREAMS: tuple[Stream, ...] = ("file", "pipe", "terminal")
_SMALLER = 100
"""How much less ``--quick`` does."""


class Missing(Exception):  # noqa: N818 - no error: the row says so
    """Something that a row needs is not installed."""


class Built:
    """A folder of programs, each compiled when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def from_c(self, name: str) -> str:
        """The path of a C program of ``workloads``."""
        program = self.folder / name
        if not program.exists():
            flags = ("-O2", "-Wall", "-Wextra", "-pthread")
            self._compile([needed("cc"), *flags, "-o", str(program), str(SOURCES / f"{name}.c")])
        return str(program)

    def from_go(self, name: str) -> str:
        """The path of a Go program of ``workloads``."""
        program = self.folder / name
        if not program.exists():
            self._compile([needed("go"), "build", "-o", str(program), str(SOURCES / f"{name}.go")])
        return str(program)

    def from_java(self, name: str) -> str:
        """The folder that holds the class."""
        if not (self.folder / f"{name}.class").exists():
            self._compile([needed("javac"), "-d", str(self.folder), str(SOURCES / f"{name}.java")])
        return str(self.folder)

    def _compile(self, command: Sequence[str]) -> None:
        # Go keeps a cache, which some surroundings have no home for.
        environment = {**os.environ, "GOCACHE": str(self.folder / "go-cache")}
        subprocess.run(command, check=True, cwd=self.folder, env=environment)


def needed(program: str) -> str:
    """The program's path; Missing where it is not installed."""
    found = shutil.which(program)
    if found is None:
        raise Missing(f"{program} is not installed")
    return found


def module(name: str) -> str:
    """The module's name; Missing where it is not installed."""
    if importlib.util.find_spec(name) is None:
        raise Missing(f"{name} is not installed")
    return name


@dataclass(frozen=True)
class Row:
    """One workload.

    ``title`` holds ``{}`` where the count stands. ``log`` and ``stderr`` are how necropsy reads stderr, and what stderr
    is; rows with the same pair share their measurement of the start-up.
    """

    name: str
    title: str
    count: int
    command: Callable[[Built, int], Sequence[str]]
    log: str = "auto"
    stderr: Stream = "file"
    variables: Callable[[int], Mapping[str, str]] = field(default=lambda _: {})

    def sized(self, *, quick: bool) -> int:
        """How many of what the row does."""
        return max(1, self.count // _SMALLER) if quick else self.count

    def titled(self, *, quick: bool) -> str:
        """The title with its count."""
        return self.title.format(f"{self.sized(quick=quick):,}")


def _c(name: str, *words: str) -> Callable[[Built, int], Sequence[str]]:
    return lambda built, count: [built.from_c(name), *words, str(count)]


def _python(name: str) -> Callable[[Built, int], Sequence[str]]:
    return lambda _, count: [sys.executable, str(SOURCES / name), str(count)]


def _shell(_: Built, count: int) -> Sequence[str]:
    return [needed("bash"), "-c", f"for ((left = {count}; left > 0; left--)); do /bin/true; done"]


def _make(built: Built, count: int) -> Sequence[str]:
    needed("cc")
    variables = (f"COUNT={count}", f"OUT={built.folder}", "CC=cc")
    return [needed("make"), "-s", f"-j{os.cpu_count()}", "-B", "-f", str(SOURCES / "compile.mk"), *variables]


def _pytest(_: Built, count: int) -> Sequence[str]:
    del count  # in the environment
    options = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(SOURCES), "-c", os.devnull)
    return [sys.executable, "-m", module("pytest"), *options, str(SOURCES / "starts_processes.py")]


def _java(built: Built, count: int) -> Sequence[str]:
    return [needed("java"), "-cp", built.from_java("NullPointers"), "NullPointers", str(count)]


def _go(built: Built, count: int) -> Sequence[str]:
    return [built.from_go("threads_and_children"), str(count)]


def _node(_: Built, count: int) -> Sequence[str]:
    return [needed("node"), str(SOURCES / "workers_and_children.js"), str(count)]


def _data_loader(built: Built, count: int) -> Sequence[str]:
    module("numpy")
    return _python("data_loader.py")(built, count)


def _tensorflow(_: Built, count: int) -> Sequence[str]:
    del count  # once
    return [sys.executable, "-c", f"import {module('tensorflow')}"]


def _lines(log: str, stderr: Stream) -> Row:
    # A tap answers every write, which would take the fallback a minute for a million lines.
    count = 100_000 if log == "tap" else 1_000_000
    where = f"a {stderr}"
    return Row(
        f"lines-{stderr}-{log}", f"{{}} lines to stderr, {where}, `--log {log}`", count, _c("lines"), log, stderr
    )


def _loader() -> str:
    return "PyTorch's DataLoader" if importlib.util.find_spec("torch") else "a multiprocessing pool like a DataLoader"


ROWS: tuple[Row, ...] = (
    Row("threads-sequence", "{} threads one after the other", 20_000, _c("threads", "sequence")),
    Row("threads-4000", "{} threads alive at once", 4_000, _c("threads", "alive")),
    Row("threads-20000", "{} threads alive at once", 20_000, _c("threads", "alive")),
    Row("forks", "{} x fork and _exit", 2_000, _c("processes", "fork")),
    Row("bash", "bash, {} x /bin/true", 1_000, _shell),
    Row("posix-spawn", "{} x posix_spawn of /bin/true", 1_000, _c("processes", "spawn")),
    Row("make", "make -j, {} small C files", 300, _make),
    Row(
        "pytest",
        "pytest, {} tests that start Python",
        100,
        _pytest,
        variables=lambda count: {"COST_TESTS": str(count)},
    ),
    Row("signals", "{} handled SIGUSR1", 100_000, _c("signals", "handled")),
    Row("faults", "{} handled SIGSEGV (a write barrier)", 20_000, _c("signals", "faults")),
    Row("java", "Java, {} NullPointerExceptions", 100_000, _java),
    Row("go", "Go, {} goroutines with threads and children", 500, _go),
    Row("node", "node, {} children and some workers", 500, _node),
    Row("multiprocessing", "multiprocessing, {} tasks, workers replaced", 2_000, _python("worker_processes.py")),
    Row("data-loader", f"{_loader()}, {{}} batches", 500, _data_loader),
    Row("tensorflow", "import tensorflow", 1, _tensorflow),
    *(_lines(log, stderr) for stderr in STREAMS for log in LOG_MODES),
)
