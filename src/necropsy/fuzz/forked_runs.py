"""Runs the call of a written test in a fork of a process that has the frameworks loaded, which saves their import.

It is a run as in ``plain_run``: the interpreter has the same variables, libraries and limits and has made no call
before. The watcher (``necropsy.watch``) traces the fork from its first moment and reports its death.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, cast

from necropsy import watch
from necropsy.capture.linux.supervise import guard_preload
from necropsy.errors import NecropsyError
from necropsy.fuzz import plain_run
from necropsy.fuzz.configurations import PLAIN, Configuration
from necropsy.fuzz.engine import START_S
from necropsy.fuzz.target import run_server
from necropsy.json_lines import Answers
from necropsy.model import Document
from necropsy.temporary_folders import TemporaryFolder
from necropsy.watch import client

_RUN_S = 60.0
"""Seconds that a run may take here; what takes longer is run again in a process of its own, which has more."""
_GUARDED = Configuration(guard="end")
_REPORT_S = 60.0
"""Seconds for the report on a process that is dying."""


class ForkedRuns:
    """Runs in forks of two processes, one of them with the guard, each started when it is wanted."""

    def __init__(self, python: str, imports: Sequence[str]) -> None:
        """Start nothing yet. ``imports``: the modules that the interpreter ``python`` loads first."""
        self._python, self._imports = python, tuple(imports)
        self._servers: dict[bool, _Server] = {}
        self._is_possible = sys.platform == "linux"
        self._started: str | None = None
        """The path of a watcher of our own."""

    def prepare(self, *, guard: bool = False) -> None:
        """Have the process for such a run load what it needs, while the caller does something else. Never raises."""
        if not self._is_possible or guard in self._servers:
            return
        try:
            self._find_watcher()
            self._servers[guard] = _Server(self._python, self._imports, os.environ[client.VARIABLE], guard=guard)
        except OSError:
            self._is_possible = False

    def document_of(self, test: Path, function: str, configuration: Configuration = PLAIN) -> Document | None:
        """The document of a run of one function of a test that died; None where it did not, or cannot run here.

        The function runs in an empty folder, and cannot write to any other where the kernel has Landlock.
        """
        guard = configuration.guard
        self.prepare(guard=guard is not None)
        server = self._servers.get(guard is not None)
        if server is None or not self._is_possible:
            return None
        try:
            return server.document_of({"test": str(test), "function": function, "begin": guard == "begin"})
        except (NecropsyError, OSError):
            self._is_possible = False
            self.close()
            return None

    def close(self) -> None:
        """End all of its processes."""
        servers, self._servers = self._servers, {}
        for server in servers.values():
            server.close()
        if self._started is not None and os.environ.get(client.VARIABLE) == self._started:
            del os.environ[client.VARIABLE]  # it ends as soon as it has nobody to watch
        self._started = None

    def _find_watcher(self) -> None:
        """Leave the path of a watcher that answers in the environment. Raises ``OSError`` if none can be started."""
        path = os.environ.get(client.VARIABLE)
        if path is not None:
            with contextlib.suppress(OSError):
                client.connect(path).close()
                return
        self._started = watch.start()


class _Server:
    """The process, and what it is asked."""

    def __init__(self, python: str, imports: Sequence[str], watcher: str, *, guard: bool) -> None:
        self._folder = TemporaryFolder("necropsy-runs-")
        self._runs = 0
        self._is_ready = False
        words = [*plain_run.ending_with_us(), *plain_run.sandboxed(self._folder.path)]
        words += [python, str(Path(run_server.__file__)), json.dumps({"imports": list(imports), "watcher": watcher})]
        variables = plain_run.own_variables()
        variables.setdefault("OPENBLAS_NUM_THREADS", "1")  # `import numpy` starts threads, and a fork would lose them
        options = _GUARDED.guard_options
        if guard and options is not None:
            entries = guard_preload.added(os.fsencode(f"{name}={value}") for name, value in variables.items())
            pairs = (os.fsdecode(one).partition("=") for one in entries)
            variables = {**{name: value for name, _, value in pairs}, guard_preload.OPTIONS: options}
        try:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd=self._folder.path,
                env=variables,
                start_new_session=True,
            )
        except OSError:
            self._folder.close()
            raise
        self._stdin, stdout = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        self._answers = Answers(stdout, "the process that runs tests")

    def document_of(self, request: dict[str, Any]) -> Document | None:
        """Raises ``NecropsyError`` or ``OSError`` if nothing can be run here."""
        if not self._is_ready:
            first = self._answers.next(START_S)
            if first["threads"] != 1 or not first["traced"]:
                raise NecropsyError("its forks would not be whole, or not be seen")
            self._is_ready = True
        self._runs += 1
        folder = self._folder.path / str(self._runs)
        folder.mkdir()
        self._stdin.write(json.dumps({**request, "folder": str(folder)}).encode() + b"\n")
        self._stdin.flush()
        pid = self._answers.next(_REPORT_S)["pid"]
        document = watch.report(pid, _RUN_S)
        if document is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._answers.next(_REPORT_S)
        return document

    def close(self) -> None:
        """End it, and its forks with it."""
        self._process.terminate()
        self._process.communicate()
        self._folder.close()
