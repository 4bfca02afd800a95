"""Running ``necropsy run --confirm`` in tests."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path
from typing import Any

import warm
from necropsy import serialize
from necropsy.model import Diagnosis, Document

KINDS = (resource.RLIMIT_STACK, resource.RLIMIT_AS, resource.RLIMIT_DATA)


def necropsy(*words: object, cwd: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """In a fork, with the limits that this process has now; its own runs are what a campaign is made of."""
    limits = {kind: resource.getrlimit(kind) for kind in KINDS}
    return warm.run(*words, cwd=cwd, env=os.environ | {"NECROPSY_OUTPUT": str(cwd / "reports")} | more, limits=limits)


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
