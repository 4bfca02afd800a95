"""Makes calls where no process can be forked (Windows): each worker is started, and loads the target itself.

A batch goes to the worker's stdin, and a line comes back when it is done. How each call ended, and which one is in
progress, lies in a file that both processes have mapped: after a death it is known which call it was.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

from necropsy.errors import NecropsyError
from necropsy.fuzz.cheap_signature import death
from necropsy.fuzz.configurations import PLAIN, Configuration
from necropsy.fuzz.engine import QUIET, START_S, Ended, Engine, RefusedTargetError
from necropsy.fuzz.limits import Limits
from necropsy.fuzz.target import spawned_worker
from necropsy.fuzz.target.worker import HEAD, SHARED
from necropsy.model import Gap
from necropsy.temporary_folders import TemporaryFolder

_TICK_S = 0.05
_NO_WINDOW = 0x08000000
"""``CREATE_NO_WINDOW``, which ``subprocess`` has on Windows only."""
_LOG = 8000
_END_S = 60.0
_FAULT = re.compile(r"^(?:Windows fatal exception|Fatal Python error): ", re.MULTILINE)
_LINE = re.compile(r'^  File "(?:[^"\n]*[\\/])?(?P<file>[^"\n\\/]+)", line (?P<line>\d+) in ', re.MULTILINE)


class SpawnedEngine(Engine):
    """At most one worker that loads the target itself, until it is closed."""

    lacks = Gap(
        part="fuzz without fork",
        why="the calls had no guarded buffers and no small stack, and could write files and use the network",
    )

    def __init__(self, python: str, target: Mapping[str, Any], limits: Limits | None = None) -> None:
        """Load the target, which is a Python function.

        Raises:
            RefusedTargetError: it cannot be loaded there.
            NecropsyError: the interpreter cannot be run, or ended.

        """
        self.limits = limits or Limits()
        self.configuration = PLAIN
        self.texts = {}
        self.is_stopped = lambda: False
        self.starts = 0
        self.has_guard = False
        self.guards_handles = False
        self._python, self._target = python, dict(target)
        self._worker: _Worker | None = None
        self._folder = TemporaryFolder("necropsy-calls-")
        self._results_file = self._folder.path / "results"
        self._results_file.write_bytes(bytes(SHARED))
        with self._results_file.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), SHARED)
        try:
            first = self._started()
        except BaseException:
            self.close()
            raise
        self.offered, self.imports = first["offered"], ()
        self.python_version = first["python"]

    def _started(self) -> dict[str, Any]:
        """Start a worker: what it offers."""
        options = {
            "target": self._target,
            "results": str(self._results_file),
            "log": str(self._folder.path / "log"),
            "data": self.limits.data,
            "parent": os.getpid(),
        }
        work = self._folder.path / "work"
        work.mkdir(exist_ok=True)
        self._worker = worker = _Worker(self._python, options, work)
        answer = worker.next(START_S)
        if answer is None:
            why = "ended unexpectedly" if worker.has_ended() else f"did not answer within {START_S:.0f} s"
            self.end_worker()
            raise NecropsyError(f"the process that loads the target {why}: {self.log().strip()[-300:]}")
        if "refused" in answer:
            self.end_worker()
            raise RefusedTargetError(answer["what"], answer["refused"])
        self.starts += 1
        return answer

    # ------------------------------------------------------------ calls

    def _ready(self, *, fresh: bool) -> None:
        if fresh and self._worker is not None and self._worker.batches:
            self.end_worker()
        if self._worker is None:
            self._started()

    def _send(self, batch: bytes) -> None:
        cast("_Worker", self._worker).send(batch)

    def _wait(self) -> Ended | None:
        """Wait until the batch is done; where the worker ended instead, how its last call did."""
        worker = cast("_Worker", self._worker)
        why, call, began = None, -2, time.monotonic()
        while True:
            answer = worker.next(_TICK_S)
            if answer is not None and "done" in answer:
                if why is not None:
                    self.end_worker()  # it was killed just then
                return None
            if answer is not None:
                self.texts.setdefault(answer["digest"], answer["text"])
                continue
            if worker.has_ended():
                return self._lost(why, time.monotonic() - began)
            at, _ = HEAD.unpack_from(self._shared, 0)
            if at != call:  # the clocks of two interpreters need not be the same
                call, began = at, time.monotonic()
            if why is not None:
                continue
            if self.is_stopped():
                why = "stopped"
            elif time.monotonic() - began > self.limits.seconds:
                why = "slow"
            elif worker.resident() > self.limits.resident:
                why = "hungry"
            if why is not None:
                worker.kill()

    def _lost(self, why: str | None, seconds: float) -> Ended:
        worker, self._worker = cast("_Worker", self._worker), None
        code = worker.close()
        if why is not None:
            return Ended(why, seconds=seconds)
        log = self.log()
        found = death({**_end_of(code), "place": _place(log)}, log)
        if found.is_for_want_of_memory:
            return Ended("hungry", seconds=seconds, death=found)
        return Ended("died", seconds=seconds, death=found)

    def _collect_messages(self) -> None:
        """They came with the answers."""

    def log(self) -> str:
        """The end of what the last worker wrote to stdout and stderr."""
        with contextlib.suppress(OSError), (self._folder.path / "log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG))
            return file.read().decode("utf-8", "replace").replace("\r\n", "\n")
        return ""

    # ------------------------------------------------------------ processes

    def use(self, configuration: Configuration) -> None:
        """Make the next calls so; there is the plain configuration only."""

    def use_one_thread(self, *, wanted: bool) -> None:
        """Do nothing: a Python function has its own threads."""

    def end_worker(self) -> None:
        """Let the next call begin in a new worker."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.kill()
            worker.close()

    def close(self) -> None:
        """End all of its processes."""
        self.end_worker()
        self._shared.close()
        self._folder.close()


class _Worker:
    """The process, and its answers."""

    def __init__(self, python: str, options: Mapping[str, Any], work: Path) -> None:
        variables = {name: value for name, value in os.environ.items() if name != "NECROPSY_WATCHER"}
        variables |= {"TMPDIR": str(work), "TEMP": str(work), "TMP": str(work), "PYTHONUTF8": "1", **QUIET}
        try:
            self._process = subprocess.Popen(
                [python, str(Path(spawned_worker.__file__)), json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=work,
                env=variables,
                start_new_session=True,
                creationflags=_NO_WINDOW if sys.platform == "win32" else 0,
            )
        except OSError as error:
            raise NecropsyError(f"cannot run {python}: {error.strerror}") from error
        self.batches = 0
        self._job = _job(self._process, options["data"])
        self._stdin = cast("IO[bytes]", self._process.stdin)
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            for line in cast("IO[bytes]", self._process.stdout):
                self._answers.put(json.loads(line))
        self._process.wait()
        self._answers.put(None)

    def send(self, batch: bytes) -> None:
        """Let it make the calls of a batch."""
        self.batches += 1
        with contextlib.suppress(OSError):  # it has died: its end tells
            self._stdin.write(batch + b"\n")
            self._stdin.flush()

    def next(self, seconds: float) -> dict[str, Any] | None:
        """Its next answer; None where none comes in time, or it has ended."""
        until = time.monotonic() + seconds
        while True:
            with contextlib.suppress(queue.Empty):
                return self._answers.get(timeout=min(_TICK_S, max(0.0, until - time.monotonic())))
            if time.monotonic() >= until or self.has_ended():
                return None

    def has_ended(self) -> bool:
        """It has ended, and all of its answers were taken."""
        if self._process.poll() is None:
            return False
        self._reader.join(1.0)  # a process that it has started may hold its stdout
        return self._answers.empty()

    def resident(self) -> int:
        """Bytes of memory that it uses; 0 where that is not known, such as on Windows, where the job limits it."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            text = Path(f"/proc/{self._process.pid}/statm").read_text(encoding="ascii")
            return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return 0

    def kill(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._process.kill()

    def close(self) -> int:
        """Wait for its end: minus the signal, or the exit code."""
        with contextlib.suppress(OSError):
            self._stdin.close()
        code = self._process.wait(_END_S)
        self._reader.join(_END_S)
        cast("IO[bytes]", self._process.stdout).close()
        if self._job is not None:
            self._job.close()
        return code


def _job(process: subprocess.Popen[bytes], data: int | None) -> Any:
    """What ends the worker on Windows when this process ends, and limits its memory; None where there is none."""
    if sys.platform == "win32":
        from necropsy.capture.windows.job import JobObject

        with contextlib.suppress(OSError):
            return JobObject(int(process._handle), ends_with_us=True, memory=data)  # noqa: SLF001
    return None


def _end_of(code: int) -> dict[str, Any]:
    """For ``death``: the signal, or the exit code, or the status that a process ends with on Windows."""
    if sys.platform == "win32":
        return {"status": code & 0xFFFFFFFF}
    return {"signal": -code if code < 0 else None, "code": code}


def _place(log: str) -> str | None:
    """``bindings.py:12``: the Python line that called what died, as faulthandler wrote it."""
    faults = list(_FAULT.finditer(log))
    found = _LINE.search(log, faults[-1].end()) if faults else None
    return f"{found['file']}:{found['line']}" if found else None
