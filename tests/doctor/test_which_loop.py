"""``necropsy doctor`` says whether necropsy itself works here, and which loop supervises programs on Linux."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the loop is for Linux")


def doctor(**environment: str) -> str:
    words = [sys.executable, "-m", "necropsy", "doctor", "--no-probe", "--python", sys.executable]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    return done.stdout


@pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="without a compiler there is no C loop to be in use"
)
def test_the_c_loop_is_in_use_where_a_compiler_was_there() -> None:
    assert doctor(NECROPSY_LOOP="c").endswith("\nSupervisor: the C loop is in use.\n")


def test_the_python_loop_is_named_with_the_reason() -> None:
    assert "the Python loop is in use, because NECROPSY_LOOP=python selects the Python loop" in doctor(
        NECROPSY_LOOP="python"
    )


def test_where_reports_go_and_how_many_there_are(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"20261121T004512Z-{number:08x}.necropsy").touch()
    told = f"Supervisor: reports go to {tmp_path}, which holds 3 of at most 7."
    assert told in doctor(NECROPSY_OUTPUT=str(tmp_path), NECROPSY_KEEP="7").splitlines()
    assert "Supervisor: reports are not kept, because of NECROPSY_KEEP=0." in doctor(NECROPSY_KEEP="0")
    (tmp_path / "file").touch()
    there = tmp_path / "file" / "reports"
    assert f"Supervisor: reports cannot be written to {there}; set NECROPSY_OUTPUT" in doctor(
        NECROPSY_OUTPUT=str(there)
    )


def test_each_tool_that_is_used_has_a_line() -> None:
    told = [line for line in doctor().splitlines() if line.startswith("Supervisor: ")]
    for word in ("trace", "drgn", "py-spy", "stderr", "launcher", "reports", "loop"):
        assert any(word in line for line in told), word
