"""Runs the call of a written test in a process of its own under ``necropsy run``: a finding is diagnosed from it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from necropsy import sandbox, supervised
from necropsy.capture.linux.supervise import guard_preload
from necropsy.confirm import subreaper
from necropsy.fuzz.target import caught_crashes
from necropsy.model import Document

LIMIT_S = 120.0
_PATIENCE_S = 60.0
_CALL = """
import gc, runpy, sys
gc.disable()
if len(sys.argv) > 3:
    runpy.run_path(sys.argv[3])["let_kill"](int(sys.argv[4]))
call = runpy.run_path(sys.argv[1])[sys.argv[2]]
gc.enable()
call()
"""
"""What an import makes stays: looking for what does not takes a sixth of TensorFlow's time."""
_QUIET = {"CUDA_VISIBLE_DEVICES": "-1", "PYTHONDONTWRITEBYTECODE": "1"}


def own_variables() -> dict[str, str]:
    """The environment of such a run, without what a guard or a sanitizer adds."""
    return {**{key: value for key, value in os.environ.items() if key != "NECROPSY_WATCHER"}, **_QUIET}


def ending_with_us() -> tuple[str, ...]:
    """The words before a command that is to end with this process; none where there is no such thing."""
    if sys.platform != "linux":
        return ()
    return (sys.executable, "-I", "-S", str(Path(subreaper.__file__)), str(os.getpid()))


def sandboxed(work: Path) -> tuple[str, ...]:
    """The words before a command that may write below ``work`` only; none where there is no such thing."""
    if sys.platform != "linux":
        return ()
    return (sys.executable, "-I", "-S", str(Path(sandbox.__file__)), str(work), "--")


def document_of(
    python: str,
    test: Path,
    function: str,
    *,
    guard: str | None = None,
    own: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
    caught: int | None = None,
) -> Document | None:
    """The document of a run of one function of a test; None where the supervisor itself failed.

    ``guard``: options of the guard (``NECROPSY_GUARD``); None: no guard. ``own``: more variables of the interpreter
    alone, not of the supervisor. ``limit_s``: seconds for the imports and the call. ``caught``: the status of a crash
    that ctypes catches on Windows, and that is to end the process instead. The function runs in an empty
    folder, and cannot write to any other where the kernel has Landlock.
    """
    with tempfile.TemporaryDirectory(prefix="necropsy-fuzz-") as name:
        base = Path(name)
        work = base / "work"
        work.mkdir()
        report = base / "report.json"
        words = [
            *ending_with_us(),
            *supervised.command(
                report, None, ["--timeout", f"{limit_s:.0f}", *(["--guard"] if guard is not None else [])]
            ),
            *sandboxed(work),
            *(("env", *(f"{name}={value}" for name, value in own.items())) if own else ()),
            *(python, "-c", _CALL, str(test), function),
            *(() if caught is None else (str(Path(caught_crashes.__file__)), str(caught))),
        ]
        # What a sanitizer has to say is on stderr, and is read back from a file.
        with (Path(os.devnull) if own is None else base / "stderr").open("wb") as said:
            process = subprocess.Popen(
                words,
                cwd=work,
                env={
                    **own_variables(),
                    **({guard_preload.OPTIONS: guard} if guard is not None else {}),
                    "NECROPSY_OUTPUT": str(base / "reports"),
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                start_new_session=True,
            )
        try:
            process.wait(limit_s + _PATIENCE_S)
        except BaseException as error:
            process.terminate()
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                return None  # the machine is too slow, or too busy, to diagnose it
            raise
        return supervised.document(report)
