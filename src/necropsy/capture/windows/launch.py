"""``run`` on Windows: starts the command under the debug loop.

One process both waits for the command and debugs it. Where debugging fails, the command runs on and is waited for;
where this process dies, the system detaches the command (``DebugSetProcessKillOnExit``).
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from necropsy.capture.run_options import RunOptions, RunRecord
from necropsy.capture.windows import winapi
from necropsy.capture.windows.debuggee import Debuggee, now
from necropsy.capture.windows.debugger import TIMED_OUT, Debugger
from necropsy.capture.windows.job import JobObject
from necropsy.capture.windows.log_source import Stderr
from necropsy.errors import CommandNotFoundError, NecropsyError, NotExecutableError
from necropsy.model import Gap, Process

__all__ = ["RunOptions", "RunRecord", "run"]

DEBUG_HEAP_OFF = "_NO_DEBUG_HEAP"
"""Set to 1, the heap of a process that was started under a debugger is the same as without one."""
_CTRL_C, _CTRL_BREAK = 0, 1
_LAST_SECONDS = 4.5
"""The system ends a process whose console was closed five seconds after it told it so."""


def run(command: Sequence[str], options: RunOptions, on_end: Callable[[RunRecord], None], *, debug: bool = True) -> int:
    """Run ``command`` and return its exit code, all 32 bits of it as a signed number; 124 at the time limit.

    ``on_end`` is called once, when the command has ended. ``debug``: without it only the exit code is seen.

    Raises CommandNotFoundError, NotExecutableError, or NecropsyError where no process can be created.
    """
    path = _found(command[0])
    refusal = "it was not to be debugged (--no-debug)" if not debug else _cannot_debug()
    debug = refusal is None
    log = Stderr(options.log)
    winapi.on_console_events(_answer)
    flags = winapi.CREATE_SUSPENDED | (winapi.DEBUG_PROCESS if debug else 0)
    if debug:
        # In our own block, which the command inherits as it is: Python's view of it has lost the case of the names.
        os.environ.setdefault(DEBUG_HEAP_OFF, "1")
    try:
        started = winapi.create_process(str(path), subprocess.list2cmdline(command), flags, log.theirs)
    except OSError as error:
        raise _refused(command[0], error) from None
    finally:
        log.given()
    watched = _Watched(tuple(command), options, log, started)
    code = watched.debugged() if refusal is None else watched.waited(refusal)
    try:
        on_end(watched.record(code))
    except Exception as error:  # noqa: BLE001 - the command's end must not depend on it
        line = f"necropsy: the report: {type(error).__name__}: {error}; the program was not affected\n"
        with contextlib.suppress(OSError):
            os.write(2, line.encode(errors="backslashreplace"))
    return TIMED_OUT if watched.timed_out else code - (1 << 32) if code >> 31 else code


def _answer(event: int) -> bool:
    """The console sends its events to every process: the command decides, and we end as it does."""
    if event in {_CTRL_C, _CTRL_BREAK}:
        return True
    # The window was closed, or the user logs off: as long as this waits, the report has time.
    time.sleep(_LAST_SECONDS)
    return False


def _cannot_debug() -> str | None:
    machine = platform.machine()
    if machine not in {"AMD64", "x86_64"} or sys.maxsize < 1 << 32:
        return f"it is debugged from a 64-bit Python on x64 only so far, not from this one ({machine})"
    return None


def _found(name: str) -> Path:
    """The file that a shell would run, by PATH and PATHEXT; CreateProcess would look beside our own Python first."""
    found = shutil.which(name)
    if found is not None:
        return Path(found).absolute()
    if Path(name).is_file():
        return Path(name).absolute()
    raise CommandNotFoundError(f"{name}: command not found")


def _refused(name: str, error: OSError) -> NecropsyError:
    number = getattr(error, "winerror", None)
    if number in {winapi.ERROR_FILE_NOT_FOUND, winapi.ERROR_PATH_NOT_FOUND}:
        return CommandNotFoundError(f"{name}: command not found")
    if number == winapi.ERROR_ELEVATION_REQUIRED:
        return NotExecutableError(f"{name}: it asks for an administrator's rights: run necropsy with them")
    if number in {winapi.ERROR_ACCESS_DENIED, winapi.ERROR_BAD_EXE_FORMAT}:
        return NotExecutableError(f"{name}: {error.strerror}")
    return NecropsyError(f"cannot start {name}: {error.strerror or error}")


class _Watched:
    def __init__(self, command: tuple[str, ...], options: RunOptions, log: Stderr, started: winapi.Started) -> None:
        self.command, self.options, self.log, self.started = command, options, log, started
        self.begun, self.began = now(), time.monotonic()
        self.timed_out = False
        self.gaps: list[Gap] = []
        self.debugger: Debugger | None = None

    def debugged(self) -> int:
        """Follow it to its end; its exit code."""
        winapi.call("DebugSetProcessKillOnExit", 0)
        self.debugger = Debugger(self.command, self.log, self.options)
        winapi.call("ResumeThread", self.started.thread)
        try:
            code = self.debugger.follow(self.started.pid)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with us, the command runs on
            self.gaps.append(Gap(part="process", why=f"debugging ended early: {type(error).__name__}: {error}"))
            self.debugger.let_go(self.started.pid)
            return self._end_of_process(None)
        self.timed_out = self.debugger.timed_out
        return code

    def waited(self, why: str) -> int:
        """Wait for it without debugging; its exit code."""
        self.gaps.append(Gap(part="process", why=f"{why}: only its exit code was seen"))
        job = None
        if self.options.timeout_s is not None:
            with contextlib.suppress(OSError):
                job = JobObject(self.started.process)
        winapi.call("ResumeThread", self.started.thread)
        return self._end_of_process(job)

    def _end_of_process(self, job: JobObject | None) -> int:
        process, limit = self.started.process, self.options.timeout_s
        left = None if limit is None else self.began + limit - time.monotonic()
        if not winapi.wait(process, left):
            self.timed_out = True
            if job is not None:
                job.end(TIMED_OUT)
            winapi.call("TerminateProcess", process, TIMED_OUT)
            winapi.wait(process, None)
        return winapi.exit_code(process)

    def record(self, code: int) -> RunRecord:
        tail, gaps = self.log.tail()
        debugger = self.debugger
        processes = debugger.nouns() if debugger is not None else ()
        if not processes or processes[0].exit is None or processes[0].exit.kind == "running":
            processes = (self._alone(code), *processes[1:])
        return RunRecord(
            processes=processes,
            crashes=tuple(debugger.crashes) if debugger is not None else (),
            log_tail=tail,
            gaps=(*self.gaps, *(debugger.gaps if debugger is not None else ()), *gaps),
            timed_out=self.timed_out,
            cores=debugger.cores.kept if debugger is not None else {},
        )

    def _alone(self, code: int) -> Process:
        """The command as it is known without debugging."""
        one = Debuggee(self.started.pid, self.started.process, self.started.tid, role="command", command=self.command)
        one.started, one.begun, one.parent = self.begun, self.began, os.getpid()
        one.timed_out = self.timed_out
        one.end(code)
        return one.as_noun()
