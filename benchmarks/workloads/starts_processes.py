"""For pytest: tests that each start a Python and read what it prints. COST_TESTS says how many."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize("number", range(int(os.environ["COST_TESTS"])))
def test_child(number: int) -> None:
    command = [sys.executable, "-c", f"print({number})"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == f"{number}\n"
