"""``necropsy doctor`` says whether necropsy itself works here, and which loop supervises programs on Linux."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from doctor_building import Venv

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the loop is for Linux")


def doctor(folder: Path, **environment: str) -> str:
    """What it says of itself; the environment that it looks at has no packages, which takes no time."""
    words = [sys.executable, "-m", "necropsy", "doctor", "--no-probe", "--python", Venv.make(folder / "env").python]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    return done.stdout


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three of them."""
    folder = tmp_path_factory.mktemp("reports")
    for number in range(3):
        (folder / f"20261121T004512Z-{number:08x}.necropsy").touch()
    return folder


@pytest.fixture(scope="module")
def told(reports: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """All that is at its best."""
    environment = {"NECROPSY_LOOP": "c", "NECROPSY_OUTPUT": str(reports), "NECROPSY_KEEP": "7"}
    return doctor(tmp_path_factory.mktemp("told"), **environment)


@pytest.fixture(scope="module")
def otherwise(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The other choices of the user."""
    return doctor(tmp_path_factory.mktemp("otherwise"), NECROPSY_LOOP="python", NECROPSY_KEEP="0")


@pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="without a compiler there is no C loop to be in use"
)
def test_the_c_loop_is_in_use_where_a_compiler_was_there(told: str) -> None:
    assert told.endswith("\nSupervisor: the C loop is in use.\n")


def test_the_python_loop_is_named_with_the_reason(otherwise: str) -> None:
    assert "the Python loop is in use, because NECROPSY_LOOP=python selects the Python loop" in otherwise


def test_where_reports_go_and_how_many_there_are(reports: Path, told: str, otherwise: str, tmp_path: Path) -> None:
    assert f"Supervisor: reports go to {reports}, which holds 3 of at most 7." in told.splitlines()
    assert "Supervisor: reports are not kept, because of NECROPSY_KEEP=0." in otherwise
    (tmp_path / "file").touch()
    there = tmp_path / "file" / "reports"
    assert f"Supervisor: reports cannot be written to {there}; set NECROPSY_OUTPUT" in doctor(
        tmp_path, NECROPSY_OUTPUT=str(there)
    )


def test_each_tool_that_is_used_has_a_line(told: str) -> None:
    lines = [line for line in told.splitlines() if line.startswith("Supervisor: ")]
    for word in ("trace", "drgn", "py-spy", "stderr", "launcher", "reports", "loop"):
        assert any(word in line for line in lines), word
