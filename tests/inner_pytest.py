"""pytest in a process of its own, on a suite that a test has written, and what came of each of its tests."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PYTEST = (
    sys.executable,
    "-m",
    "pytest",
    "-p",
    "no:cacheprovider",
    "-p",
    "no:hypothesispytest",
    "-p",
    "no:platformdirs",
)
"""Without plugins that no test here uses, which a third of its start is for: each session is several processes."""
CRASH = "def crash():\n    ctypes.string_at(0)\n"


@dataclass
class Outcome:
    """How it ended. ``tests``: what became of each test, by ``class or module.name``, from the JUnit file."""

    code: int
    text: str
    tests: dict[str, list[str]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """The text of those that failed, with what they had written."""


def write(folder: Path, **files: str) -> Path:
    """A suite: file names without their ending, a double underscore for the slash."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import ctypes, os, signal, subprocess, sys\nimport pytest\n" + text)
    return folder


def run(folder: Path, *words: str, variables: Mapping[str, str] = {}, **more: object) -> Outcome:
    """Run pytest there."""
    report = folder / "junit.xml"
    report.unlink(missing_ok=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "NECROPSY_PY"))}
    done = subprocess.run(
        [*PYTEST, f"--junitxml={report}", *words],
        cwd=folder,
        env={**environment, "COLUMNS": "200", **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    outcome = Outcome(done.returncode, done.stdout + done.stderr)
    if report.exists():
        _read(report, outcome)
    return outcome


def _read(report: Path, outcome: Outcome) -> None:
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        found = [one.tag for one in case if one.tag in {"failure", "error", "skipped"}] or ["passed"]
        outcome.tests.setdefault(name, []).extend(found)
        for one in case:
            if one.tag in {"failure", "error", "system-out", "system-err"}:
                text = f"{one.get('message') or ''}\n{one.text or ''}\n"
                outcome.failures[name] = outcome.failures.get(name, "") + text
