"""Runs a written test in plain Python under ``necropsy run``: what a finding is diagnosed from."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from necropsy import sandbox, supervised
from necropsy.confirm import subreaper
from necropsy.model import Document

LIMIT_S = 120.0
"""Seconds for the imports and the call."""
_PATIENCE_S = 60.0
_CALL = "import runpy, sys; runpy.run_path(sys.argv[1])[sys.argv[2]]()"
_QUIET = {"CUDA_VISIBLE_DEVICES": "-1", "PYTHONDONTWRITEBYTECODE": "1"}


def document_of(
    python: str, test: Path, function: str, *, variables: Mapping[str, str] | None = None
) -> Document | None:
    """The document of a run of one test function; None where the supervisor itself failed.

    It runs in an empty folder, and cannot write to any other where the kernel has Landlock.
    """
    with tempfile.TemporaryDirectory(prefix="necropsy-fuzz-") as name:
        base = Path(name)
        work = base / "work"
        work.mkdir()
        report = base / "report.json"
        words = [
            *(sys.executable, "-I", "-S", str(Path(subreaper.__file__)), str(os.getpid())),
            *supervised.command(report, None, ["--timeout", f"{LIMIT_S:.0f}"]),
            *(sys.executable, "-I", "-S", str(Path(sandbox.__file__)), str(work), "--"),
            *(python, "-c", _CALL, str(test), function),
        ]
        process = subprocess.Popen(
            words,
            cwd=work,
            env={
                **{key: value for key, value in os.environ.items() if key != "NECROPSY_WATCHER"},
                **_QUIET,
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
