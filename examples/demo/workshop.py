"""Compiles the examples' ops against an installed TensorFlow and runs the examples under ``necropsy run``.

An op is compiled once and kept by the hash of what goes into it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from demo.examples import Example, Op
from necropsy import serialize
from necropsy.errors import NecropsyError
from necropsy.model import Diagnosis, Document

TIME_LIMIT_S = 300


class TensorFlowMissingError(NecropsyError):
    """The examples are TensorFlow programs."""

    hint = "pip install 'necropsy[examples]', or name an interpreter that has it with --python"


@dataclass(frozen=True)
class ExampleRun:
    """One run of an example under necropsy: how it ended, and the document that was written."""

    outcome: str
    document: Document | None
    stderr: str

    @property
    def verdict(self) -> Diagnosis | None:
        """The verdict on the first death, if there was one and if there is one."""
        reports = self.document.reports if self.document else ()
        return reports[0].verdict if reports else None

    @property
    def took_s(self) -> float | None:
        """Death to report, in seconds, by necropsy's own clock."""
        reports = self.document.reports if self.document else ()
        return reports[0].took_s if reports else None

    @property
    def main_stack(self) -> tuple[int, int] | None:
        """Peak and size of the main thread's stack in bytes, for a run that survived."""
        process = self.document.processes[0] if self.document and self.document.processes else None
        for stack in (process.stacks or ()) if process else ():
            if process and stack.tid == process.pid and stack.peak is not None and stack.size is not None:
                return stack.peak, stack.size
        return None


class Workshop:
    """Compiles ops for the TensorFlow of one interpreter and runs examples with it.

    Ops stay below the user's cache folder; what the runs write stays in ``runs``, or there too.
    """

    def __init__(self, examples: Path, python: str, runs: Path | None = None) -> None:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.examples = examples
        self.python = python
        self.cache = home / "necropsy" / "demo"
        self.runs = runs or self.cache / "runs"
        self.compiler = shutil.which(os.environ.get("CXX", "g++"))
        self._flags: tuple[list[str], list[str]] | None = None

    def flags(self) -> tuple[list[str], list[str]]:
        """Compile and link flags as ``tf.sysconfig`` gives them.

        Raises:
            TensorFlowMissingError: the interpreter has none.

        """
        if self._flags is None:
            code = (
                "import json, tensorflow as tf;"
                "print(json.dumps([tf.sysconfig.get_compile_flags(), tf.sysconfig.get_link_flags()]))"
            )
            environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
            try:
                done = subprocess.run(
                    [self.python, "-c", code], capture_output=True, text=True, check=False, env=environment
                )
            except OSError as error:
                raise TensorFlowMissingError(f"cannot run {self.python}: {error.strerror}") from error
            if done.returncode != 0:
                last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
                raise TensorFlowMissingError(f"no TensorFlow in {self.python}: {last}")
            compile_flags, link_flags = json.loads(done.stdout.splitlines()[-1])
            self._flags = compile_flags, link_flags
        return self._flags

    def library(self, name: str, op: Op) -> Path:
        """The compiled op ``name``.

        Raises:
            NecropsyError: there is no compiler, or it refuses the source.

        """
        if self.compiler is None:
            raise NecropsyError("no g++ here to build the op with")
        source = self.examples / "ops" / op.source
        compile_flags, link_flags = self.flags()
        flags = ["-std=c++17", *op.flags, "-shared", "-fPIC", "-w", *compile_flags]
        ingredients = repr((self.compiler, flags, link_flags)).encode() + source.read_bytes()
        made = self.cache / "ops" / hashlib.sha256(ingredients).hexdigest()[:16] / f"{name}.so"
        if not made.exists():
            made.parent.mkdir(parents=True, exist_ok=True)
            unfinished = made.with_suffix(f".{os.getpid()}")
            command = [self.compiler, *flags, "-o", str(unfinished), str(source), *link_flags]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr[-200:])
                raise NecropsyError(f"{op.source} does not compile: {first}")
            # Another run may have been faster, and a library that is in use must not be replaced under it.
            with contextlib.suppress(FileExistsError):
                os.link(unfinished, made)
            unfinished.unlink()
        return made

    def build(self, ops: dict[str, Op], progress: Callable[[str], None] = lambda _: None) -> dict[str, NecropsyError]:
        """Compile ``ops``, two at a time. Returns the error of each that failed."""
        failed: dict[str, NecropsyError] = {}
        self.flags()
        with ThreadPoolExecutor(max_workers=2) as pool:
            jobs = {name: pool.submit(self.library, name, op) for name, op in ops.items()}
            for number, (name, job) in enumerate(jobs.items(), 1):
                progress(f"building the ops: {number} of {len(jobs)}, {name}")
                try:
                    job.result()
                except NecropsyError as error:
                    failed[name] = error
        return failed

    # ------------------------------------------------------------ running

    def command(self, example: Example, ops: dict[str, Op]) -> list[str]:
        """The example's own command line."""
        library = [str(self.library(example.build, ops[example.build]))] if example.build else []
        return [self.python, str(self.examples / "scripts" / example.script), *library, *example.arguments]

    def run(self, example: Example, ops: dict[str, Op]) -> ExampleRun:
        """Run it under ``necropsy run``, with its stack limit and without a core; what was written stays in ``runs``.

        Raises:
            NecropsyError: its op cannot be built.

        """
        place = self.runs / example.name
        place.mkdir(parents=True, exist_ok=True)
        report = place / "report.json"
        report.unlink(missing_ok=True)
        # The shell sets the limits, as a user would; it rounds down to KiB.
        limits = f'ulimit -S -c 0; ulimit -S -s {example.stack // 1024}; exec "$@"'
        necropsy = [sys.executable, "-m", "necropsy", "run", "--always", "--timeout", str(TIME_LIMIT_S)]
        command = [*necropsy, "--json", str(report), "--", *self.command(example, ops)]
        with (place / "stderr.txt").open("wb") as stderr, (place / "stdout.txt").open("wb") as stdout:
            done = subprocess.run(
                ["/bin/sh", "-c", limits, "sh", *command],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                check=False,
                cwd=place,
                # Examples must not push the user's own reports out of their folder.
                env={**os.environ, "NECROPSY_OUTPUT": str(place)},
            )
        document = serialize.loads(report.read_bytes()) if report.exists() else None
        return ExampleRun(_outcome(done.returncode), document, (place / "stderr.txt").read_text(errors="replace"))


def _outcome(code: int) -> str:
    if code < 0:
        return signal.Signals(-code).name
    return "survives" if code == 0 else f"exit {code}"
