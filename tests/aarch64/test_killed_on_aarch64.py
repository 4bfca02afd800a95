"""On AArch64, who kills necropsy at a random moment does the command no harm, whichever loop follows it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import supervision
from supervision import LOOPS, PATH

import crashers.build

_SCRIPT = Path(__file__).with_name("killed_supervisors.py")
TURNS = {"c": 8, "python": 4}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    machine = supervision.machine()  # without which the test is skipped
    built = tmp_path_factory.mktemp("killed") / "counting"
    source = crashers.build.HERE / "counting.c"
    subprocess.run(["aarch64-linux-gnu-gcc", "-O1", "-w", str(source), "-o", str(built)], check=True)
    machine.put({"/opt/counting": built.read_bytes(), "/opt/killed.py": _SCRIPT.read_bytes()})
    return "/opt/counting"


@pytest.mark.parametrize("loop", LOOPS)
def test_the_command_goes_on_writes_all_and_ends_as_it_would(program: str, loop: str) -> None:
    """With a tap one process of two must be left, as on x86-64 (docs/explanation/limits.md)."""
    environment = {**PATH, "NECROPSY_LOOP": loop}
    words = ("python3", "/opt/killed.py", program, str(TURNS[loop]))
    ended = supervision.machine().run(*words, environment=environment, limit_s=1200)
    turns = [json.loads(line) for line in ended.out.splitlines()]
    assert (ended.status, len(turns)) == (0, TURNS[loop]), ended.err
    for one in turns:
        assert one["status"] == 9, one
        assert one["lines"] >= one["counted"] - 1, one
