"""A hundred programs die with Python on the stack: the headline names the user's line in every one."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import crash_shapes
from necropsy import serialize
from necropsy.model import Report
from necropsy.reports import user_line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")


def shape_of(report: Report) -> int | None:
    """Which of the shapes the process died in, by the names of the functions on its stacks."""
    frames = (one for thread in report.crash.threads or () for one in thread.python or ())
    found = (re.match(r"shape(\d+)", one.function or "") for one in frames)
    return next((int(one[1]) for one in found if one is not None), None)


def test_the_headline_names_the_line_in_every_shape_of_program(tmp_path: Path) -> None:
    text, expected = crash_shapes.program(with_numpy=importlib.util.find_spec("numpy") is not None)
    assert len(expected) == crash_shapes.COUNT
    script, kept = tmp_path / "shapes.py", tmp_path / "run.json"
    script.write_text(text)
    os.utime(script, (1, 1))
    command = [sys.executable, "-m", "necropsy", "run", "--quiet", "--json", str(kept), "--"]
    done = subprocess.run([*command, sys.executable, str(script)], check=False, capture_output=True, timeout=300)
    assert done.returncode == 0
    headlines = {shape_of(one): user_line.headline(one) for one in serialize.loads(kept.read_bytes()).reports}
    wrong = {
        number: (line, headlines.get(number))
        for number, line in enumerate(expected)
        if not re.search(rf"\bshapes\.py:{line}\b", headlines.get(number, ""))
    }
    assert not wrong
