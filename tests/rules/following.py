"""Following a report's first piece of advice: its words and command, a plain run, and the printed line with a program."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from live import verdict_of


def first(report: dict[str, Any], rule: str, says: str) -> str:
    """The command of the first piece of advice, where there is one; the verdict and its words are held."""
    assert verdict_of(report)[0] == rule, report["verdict"]["summary"]
    fix = report["verdict"]["fixes"][0]
    assert re.search(says, fix["text"]), fix
    return fix["command"] or ""


def plain(command: Sequence[str], folder: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120, **more)


def instead(line: str, command: Sequence[str]) -> list[str]:
    """The printed line with this program where it says ``python ...``; the words before it are settings of the run."""
    before, found, _ = line.partition("python ")
    assert found, line
    options = [word for word in line[len(before) :].split()[1:] if word != "..."]
    return ["env", *before.split(), command[0], *options, *command[1:]]
