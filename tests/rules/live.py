"""Real deaths for the rules' tests: a command under `necropsy run`, and the report that came of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import standing
import warm

LIMIT_S = 600
"""Ends what hangs, and decides nothing else."""


def reports_of(
    command: Sequence[str],
    folder: Path,
    *options: str,
    before: Sequence[str] = (),
    necropsy: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """The reports of a run, the command's own first. ``before`` is put in front of necropsy itself (``prlimit ...``)."""
    path = folder / "report.json"
    words = ["run", "--quiet", "--json", str(path), *options, "--", *command]
    if before or necropsy:
        words = [*before, *(necropsy or (sys.executable, "-m", "necropsy")), *words]
        file = (folder / "stderr").open("w+")  # no pipe: a child that lives on would hold it open
        with file:
            subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, timeout=LIMIT_S, check=False, cwd=folder
            )
            file.seek(0)
            said = file.read()
    else:
        said = warm.run(*words, cwd=folder).stderr
    assert path.exists(), said
    reports: list[dict[str, Any]] = json.loads(path.read_text())["reports"]
    return reports


def report_of(command: Sequence[str], folder: Path, *options: str, before: Sequence[str] = ()) -> dict[str, Any]:
    reports = reports_of(command, folder, *options, before=before)
    assert reports, "nothing was reported"
    return reports[0]


def reports_of_standing(command: Sequence[str], folder: Path, mark: Path | None = None) -> list[dict[str, Any]]:
    """The reports of a run whose time is up when the command stands."""
    reports = reports_of(command, folder, "--timeout", standing.NEVER, necropsy=standing.necropsy(mark))
    assert reports, "nothing was reported"
    return reports


def verdict_of(report: dict[str, Any]) -> tuple[str, str]:
    verdict = report["verdict"]
    assert verdict is not None
    return verdict["rule"], verdict["confidence"]


def told(report: dict[str, Any]) -> str:
    """The verdict's evidence as one text."""
    return "\n".join(f"{one['claim']}: {one['seen']}" for one in report["verdict"]["evidence"])


def python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


def library(source: str, folder: Path, *flags: str) -> Path:
    """C compiled to a shared library."""
    return compiled(source, folder / "native.so", "-shared", "-fPIC", *flags)


def compiled(source: str, target: Path, *flags: str, compiler: str = "gcc") -> Path:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    path = target.with_suffix(".cc" if compiler == "g++" else ".c")
    path.write_text(textwrap.dedent(source))
    subprocess.run([compiler, "-O1", "-g", str(path), "-o", str(target), *flags], check=True, capture_output=True)
    return target
