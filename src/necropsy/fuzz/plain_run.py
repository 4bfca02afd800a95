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
from necropsy.model import Document

LIMIT_S = 120.0
"""Seconds for the imports and the call."""
_PATIENCE_S = 60.0
_CALL = "import runpy, sys; runpy.run_path(sys.argv[1])[sys.argv[2]]()"
_QUIET = {"CUDA_VISIBLE_DEVICES": "-1", "PYTHONDONTWRITEBYTECODE": "1"}


def document_of(
    python: str, test: Path, function: str, *, guard: str | None = None, variables: Mapping[str, str] | None = None
) -> Document | None:
    """The document of a run of one function of a test; None where the supervisor itself failed.

    ``guard``: options of the guard (``NECROPSY_GUARD``); None: no guard. The function runs in an empty folder, and
    cannot write to any other where the kernel has Landlock.
    """
    with tempfile.TemporaryDirectory(prefix="necropsy-fuzz-") as name:
        base = Path(name)
        work = base / "work"
        work.mkdir()
        report = base / "report.json"
        words = [
            *(sys.executable, "-I", "-S", str(Path(subreaper.__file__)), str(os.getpid())),
            *supervised.command(
                report, None, ["--timeout", f"{LIMIT_S:.0f}", *(["--guard"] if guard is not None else [])]
            ),
            *(sys.executable, "-I", "-S", str(Path(sandbox.__file__)), str(work), "--"),
            *(python, "-c", _CALL, str(test), function),
        ]
        process = subprocess.Popen(
            words,
            cwd=work,
            env={
                **{key: value for key, value in os.environ.items() if key != "NECROPSY_WATCHER"},
                **_QUIET,
                **({guard_preload.OPTIONS: guard} if guard is not None else {}),
                **(variables or {}),
                "NECROPSY_OUTPUT": str(base / "reports"),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(LIMIT_S + _PATIENCE_S)
        except BaseException:
            process.terminate()
            process.wait()
            raise
        return supervised.document(report)
