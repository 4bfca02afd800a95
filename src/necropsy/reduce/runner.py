"""Runs programs in the workspace: in forks of an interpreter that has done the imports, or each from its start."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from necropsy import sandbox, supervised, watch
from necropsy.confirm import subreaper
from necropsy.crashed import own_report
from necropsy.errors import NecropsyError
from necropsy.model import Document, Report
from necropsy.reduce import trial_server
from necropsy.reduce.command import PythonCommand, foreign_imports
from necropsy.reduce.criterion import Death
from necropsy.reduce.program import Program
from necropsy.reduce.workspace import Workspace

IMPORTS_S = 180.0
"""Seconds that the imports may take."""
_SLACK_S = 20.0
"""Seconds beyond the time limit of a trial in which its end must be reported."""
_REPORT_S = 30.0
_TAIL = 4000
_QUIET = {"OPENBLAS_NUM_THREADS": "1"}
"""Without it `import numpy` starts threads, and a fork would lose them."""


@dataclass(frozen=True)
class Outcome:
    """How one run ended. ``code`` is minus the signal's number, as of ``subprocess``."""

    death: Death | None
    document: Document | None
    report: Report | None
    code: int
    timed_out: bool
    seconds: float
    output: str = ""
    busy: float = 0.0
    """Seconds of processor time; 0 where it was no fork."""
    idle: float = 0.0
    """The longest time in which it only waited; 0 where it was no fork."""


class Runner:
    """Runs variants of one program."""

    def __init__(self, command: PythonCommand, workspace: Workspace, variables: Collection[str] = ()) -> None:
        """``variables``: names of environment variables that programs may have or not."""
        self.command = command
        self.workspace = workspace
        self.why_fresh: str | None = None
        """Why each trial starts an interpreter; None where they are forks."""
        self.why_imports: str | None = None
        """Why each fork does its imports itself; None where it finds them done."""
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "NECROPSY_WATCHER"},
            **workspace.environment(),
        }
        self._server: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._started: subprocess.Popen[bytes] | None = None
        self._is_stopped = False
        self._lock = threading.RLock()
        self.variables = frozenset(variables)
        self.busy_s: float | None = None
        """Seconds of processor time after which a fork is ended; None: no limit."""
        self.idle_s: float | None = None
        """Seconds without anything but waiting after which a fork is ended; None: no limit."""

    # ------------------------------------------------------------ a fresh interpreter

    def fresh(self, program: Program, timeout_s: float, *, in_folder: Path | None = None) -> Outcome:
        """Run the program from its start, under the supervisor of ``necropsy run``.

        ``in_folder``: a folder that has the program already, instead of the workspace.
        """
        with self._lock:
            return self._fresh(program, timeout_s, in_folder)

    def _fresh(self, program: Program, timeout_s: float, in_folder: Path | None) -> Outcome:
        work = in_folder or self.workspace.work
        if in_folder is None:
            self.workspace.put(program.files)
        file = self.workspace.base / "report.json"
        file.unlink(missing_ok=True)
        words = [
            *(sys.executable, "-I", "-S", str(Path(subreaper.__file__)), str(os.getpid())),
            *supervised.command(file, None, ["--timeout", f"{timeout_s:.1f}"]),
            *(sys.executable, "-I", "-S", str(Path(sandbox.__file__)), *self.workspace.writable(), str(work), "--"),
            *self.command.words(program),
        ]
        variables = {**self.environment, **program.environment, "NECROPSY_OUTPUT": str(self.workspace.base / "reports")}
        for name in self.variables:
            if name not in program.environment:
                variables.pop(name, None)
        began = time.monotonic()
        with self.workspace.output.open("wb") as output:
            process = subprocess.Popen(
                words,
                cwd=work,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            self._started = process
            try:
                code = process.wait(timeout_s + IMPORTS_S)
            except BaseException:
                process.terminate()
                process.wait()
                raise
            finally:
                self._started = None
        document = supervised.document(file)
        report = own_report(document) if document is not None else None
        end = document.processes[0].exit if document is not None and document.processes else None
        return Outcome(
            death=Death.of(report),
            document=document,
            report=report,
            code=-(code - 128) if code > 128 and end is not None and end.kind == "signaled" else code,
            timed_out=end is not None and end.kind == "timeout",
            seconds=time.monotonic() - began,
            output=self.said(),
        )

    def said(self) -> str:
        """The end of what the last run wrote."""
        with contextlib.suppress(OSError), self.workspace.output.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
            return file.read().decode("utf-8", "replace")
        return ""

    # ------------------------------------------------------------ forks

    def prepare(self, program: Program) -> None:
        """Start the interpreter for forks, if a fork of this program is what a fresh start would be."""
        self.close()
        self.workspace.put(program.files)
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", str(Path(subreaper.__file__)), str(os.getpid())),
                *(sys.executable, "-I", "-S", str(Path(sandbox.__file__)), *self.workspace.writable(), "--"),
                *(self.command.interpreter, *self.command.options, str(Path(trial_server.__file__))),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=self.workspace.work,
            env={**self.environment, **_QUIET, **program.environment},
            start_new_session=True,
        )
        self._server, self._rest = process, b""
        ready = self._ask({"imports": [] if self.why_imports else foreign_imports(program)}, IMPORTS_S)
        if ready is None:
            why = "its imports do not work alone in an interpreter"
        elif ready["threads"] != 1:
            why = f"its imports leave {ready['threads']} threads running, which a fork would lose"
        else:
            self._register(int(ready["pid"]))
            return
        if self.why_imports:
            self.why_fresh = why
            self.close()
        else:
            self.why_imports = why
            self.prepare(program)

    def _register(self, pid: int) -> None:
        try:
            answer = watch.register(pid, show=False, keep=False)
        except OSError as error:
            answer = watch.Answer(False, str(error))
        if not answer.ok:
            self.why_fresh = f"a running process cannot be traced here: {answer.why}"
            self.close()

    def run(self, program: Program, timeout_s: float, *, observe: bool = False) -> Outcome:
        """Run the program as fast as is sound. Raises NecropsyError where the interpreter for forks was lost twice."""
        with self._lock:
            for _ in range(2):
                if self._is_stopped:
                    break
                if not self._is_prepared(program):
                    return self.fresh(program, timeout_s)
                outcome = self._forked(program, timeout_s, observe=observe)
                if outcome is not None:
                    return outcome
                self.close()
        raise NecropsyError("the interpreter that the trials are forked from ends again and again")

    def _is_prepared(self, program: Program) -> bool:
        """There is an interpreter for forks; where there can be none, false."""
        if self._server is None and self.why_fresh is None:
            self.prepare(program)
        return self.why_fresh is None

    def _forked(self, program: Program, timeout_s: float, *, observe: bool) -> Outcome | None:
        self.workspace.put(program.files)
        if observe:
            self.workspace.notes.unlink(missing_ok=True)
        began = time.monotonic()
        answer = self._ask(
            {
                "script": self.command.script,
                "module": self.command.module,
                "argv": list(program.arguments),
                "environment": dict(program.environment),
                "unset": [name for name in self.variables if name not in program.environment],
                "timeout": timeout_s,
                "busy": None if observe else self.busy_s,
                "idle": None if observe else self.idle_s,
                "output": str(self.workspace.output),
                "observe": str(self.workspace.notes) if observe else None,
            },
            timeout_s + _SLACK_S,
        )
        if answer is None:
            return None
        pid, code = int(answer["pid"]), os.waitstatus_to_exitcode(int(answer["status"]))
        document = None
        if code < 0 and not answer["timed_out"]:
            document = watch.report(pid, _REPORT_S)
        report = next((one for one in document.reports if one.pid == pid), None) if document is not None else None
        return Outcome(
            death=Death.of(report),
            document=document,
            report=report,
            code=code,
            timed_out=bool(answer["timed_out"]),
            seconds=time.monotonic() - began,
            output=self.said(),
            busy=float(answer["busy"]),
            idle=float(answer["idle"]),
        )

    def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """The server's answer; None where it has ended, or none came in time."""
        process = self._server
        if process is None or process.stdin is None or process.stdout is None:
            return None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            return None
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                return None
            data = os.read(process.stdout.fileno(), 65536)
            if not data:
                return None
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def observed(self) -> tuple[dict[str, set[int]], set[str]]:
        """Of an observed run: the executed lines and the opened files, by relative path."""
        lines: dict[str, set[int]] = {}
        opened: set[str] = set()
        with contextlib.suppress(OSError):
            for noted in self.workspace.notes.read_bytes().splitlines():
                with contextlib.suppress(ValueError):
                    path, line = json.loads(noted)[:2]
                    if path == "=":
                        continue
                    if line:
                        lines.setdefault(path, set()).add(line)
                    else:
                        opened.add(path)
        return lines, opened

    def values(self, thread: int | None) -> dict[int, str]:
        """Of an observed run of an instrumented program: the literals of the last values, by the numbers of places.

        Where ``thread`` computed some at a place, the last of these. What it computed last comes last.
        """
        found: dict[int, str | None] = {}
        notes: list[tuple[int, str | None, int]] = []
        with contextlib.suppress(OSError):
            for noted in self.workspace.notes.read_bytes().splitlines():
                with contextlib.suppress(ValueError):
                    mark, *rest = json.loads(noted)
                    if mark == "=":
                        number, text, by = rest
                        notes.append((number, text, by))
        for number, text, _ in sorted(notes, key=lambda one: one[2] == thread):
            found.pop(number, None)
            found[number] = text
        return {number: text for number, text in found.items() if text is not None}

    def twin(self, workspace: Workspace) -> Runner:
        """Another runner of the same kind, for trials at the same time."""
        other = Runner(self.command, workspace, self.variables)
        other.why_fresh, other.why_imports = self.why_fresh, self.why_imports
        other.busy_s, other.idle_s = self.busy_s, self.idle_s
        return other

    def stop(self) -> None:
        """End the run that another thread waits for, and let it start no further one."""
        self._is_stopped = True
        for process in (self._server, self._started):
            if process is not None:
                process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End the interpreter for forks, and all that it has started."""
        process, self._server = self._server, None
        self._rest = b""
        if process is None:
            return
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        process.send_signal(signal.SIGTERM)
        process.wait()
