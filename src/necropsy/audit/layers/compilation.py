"""How a source is compiled here, for inspection; and runs programs in parallel with a time limit.

A compile database comes with the sources and must not control execution: the compiler is the one in PATH, and only
known harmless options are used (not ``-fplugin``, ``-B``, ``-wrapper`` or ``@file``).
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from necropsy.audit.layers.compile_commands import CompileCommand

_HARMLESS = re.compile(
    r"-std=[\w+:]+|-O[0-3sg]?|-Ofast|-g[0-3]?|-pthread|-fopenmp|-fPIC|-fpic|-ffast-math|-fsigned-char|-funsigned-char|"
    r"-f(?:no-)?(?:exceptions|rtti|inline|inline-functions|omit-frame-pointer|strict-aliasing|stack-protector[\w-]*|"
    r"sized-deallocation|aligned-new)|-m(?:no-)?(?:avx|sse|fma|bmi|f16c|popcnt|aes)[\w.]*|-m(?:arch|tune)=[\w.+-]+"
)
_HEADERS = "import importlib.util as u;s=u.find_spec('tensorflow');print(s.submodule_search_locations[0] if s else '')"
_PAUSE_S = 0.02


@dataclass(frozen=True)
class Compilation:
    """One source: the options with which it is compiled, and what named them."""

    source: str
    directory: str
    options: tuple[str, ...]
    known_from: str
    """``compile_commands.json``, or ``--tensorflow``."""

    @property
    def is_the_build(self) -> bool:
        """The project itself is compiled like this."""
        return self.known_from != "--tensorflow"

    @property
    def level(self) -> str:
        """``-O2``: how far it is optimised."""
        return next((one for one in reversed(self.options) if one.startswith("-O")), "-O0")


def of_command(source: str, command: CompileCommand) -> Compilation:
    """As the project compiles it; headers of others are the system's, in which clang-tidy looks for nothing."""
    words = []
    for option, value in command.options:
        words += ["-isystem" if option == "-I" and not command.is_own(value) else option, value]
    words += [one for one in command.words if _HARMLESS.fullmatch(one)]
    return Compilation(str(Path(source).absolute()), str(command.directory), tuple(words), Path(command.database).name)


def of_tensorflow(source: str, headers: str) -> Compilation:
    """As TensorFlow's guide compiles an op."""
    options = ("-std=c++17", "-O2", "-fPIC", "-isystem", headers)
    return Compilation(str(Path(source).absolute()), str(Path.cwd()), options, "--tensorflow")


def headers_of(python: str, limit: float) -> str | None:
    """The folder with the headers of the TensorFlow that an interpreter has, which is not imported."""
    (done,) = run([Job((python, "-c", _HEADERS), str(Path.cwd()))], limit, 1)
    folder = Path(done.out.strip()) / "include" if done.out.strip() and not done.trouble else None
    return str(folder) if folder is not None and folder.is_dir() else None


@dataclass(frozen=True)
class Job:
    """A program with its arguments, and the folder in which it runs."""

    words: tuple[str, ...]
    directory: str


@dataclass(frozen=True)
class JobResult:
    """What a program has printed, and why it did not end well."""

    out: str = ""
    trouble: str | None = None


def run(jobs: Sequence[Job], limit: float, at_once: int) -> list[JobResult]:
    """Run all, ``at_once`` of them side by side; those that ``limit`` seconds do not suffice for are ended."""
    results = [JobResult(trouble=f"there was no time for it in {limit:.0f} s")] * len(jobs)
    waiting = list(enumerate(jobs))
    running: list[tuple[int, _Running]] = []
    end = time.monotonic() + limit
    try:
        while (waiting or running) and time.monotonic() < end:
            while waiting and len(running) < at_once:
                number, job = waiting.pop(0)
                try:
                    running.append((number, _Running(job)))
                except OSError as error:
                    results[number] = JobResult(trouble=f"{job.words[0]} cannot be run: {error.strerror or error}")
            for one in [each for each in running if each[1].process.poll() is not None]:
                running.remove(one)
                results[one[0]] = one[1].result()
            time.sleep(_PAUSE_S)
    finally:
        for _, left in running:
            left.end()
    return results


class _Running:
    def __init__(self, job: Job) -> None:
        self.name = Path(job.words[0]).name
        self.out = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the result
        self.err = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self.process = subprocess.Popen(
                job.words,
                cwd=job.directory,
                stdin=subprocess.DEVNULL,
                stdout=self.out,
                stderr=self.err,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError:
            self._close()
            raise

    def result(self) -> JobResult:
        said = [one for stream in (self.err, self.out) for one in _lines(stream)]
        self.out.seek(0)
        out = self.out.read().decode("utf-8", "replace")
        self._close()
        if self.process.returncode == 0:
            return JobResult(out)
        first = next((one for one in said if "error" in one), said[-1] if said else f"status {self.process.returncode}")
        return JobResult(out, f"{self.name}: {first.strip()[:300]}")

    def end(self) -> None:
        """Including its children: a compiler runs other programs."""
        with contextlib.suppress(OSError):
            if os.name == "posix":
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        self.out.close()
        self.err.close()


def _lines(stream: object) -> Iterator[str]:
    stream.seek(0)  # type: ignore[attr-defined]
    yield from stream.read().decode("utf-8", "replace").splitlines()  # type: ignore[attr-defined]
