"""The suite gives the same results in the background and under nohup as in a terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/PID/status")


def test_a_command_starts_with_no_signal_ignored() -> None:
    status = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    (ignored,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    of_threads = 0b11 << 31  # 32 and 33 are the C library's own: no program can change what they do
    assert int(ignored, 16) & ~of_threads == 0


def test_the_suite_in_the_background_under_nohup_starts_commands_alike() -> None:
    one = f"{Path(__file__)}::{test_a_command_starts_with_no_signal_ignored.__name__}"
    # As nohup, `&` in a script and a shell with job control leave them.
    script = 'trap "" HUP INT QUIT TSTP TTIN TTOU; exec "$@"'
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", one]
    done = subprocess.run(
        ["sh", "-c", script, "sh", *command], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
