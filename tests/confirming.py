"""Running ``necropsy run --confirm`` in tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from necropsy import serialize
from necropsy.model import Diagnosis, Document


def necropsy(*words: object, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "necropsy", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
        stdin=subprocess.DEVNULL,
        cwd=cwd,
        env=os.environ | {"NECROPSY_OUTPUT": str(cwd / "reports")} | more,
    )


def confirmed(cwd: Path, *command: object, options: tuple[str, ...] = ()) -> tuple[Document, str]:
    path = cwd / "c.json"
    done = necropsy("run", "--confirm", "--yes", "--full", "--json", path, *options, "--", *command, cwd=cwd)
    assert "Traceback" not in done.stderr, done.stderr
    return serialize.loads(path.read_bytes()), done.stderr


def verdict(document: Document) -> Diagnosis:
    found = document.reports[0].verdict
    assert found is not None
    return found


def script(cwd: Path, text: str) -> Path:
    path = cwd / "script.py"
    path.write_text(text)
    return path
