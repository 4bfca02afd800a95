"""A defect of ours while a process dies costs its report, and never the command's end."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import build
from supervised import LIMIT_S

NULL = "int main(void) { *(volatile int *)8 = 1; return 0; }"
BROKEN = """
import sys
from necropsy.capture.linux.supervise import tracer, watchdog
from necropsy.capture.linux.supervise.c_loop import CLoop

def fails(*given, **named):
    raise RuntimeError("a defect")

watchdog.STILL_S = 1.0  # what stands still is given up after so long
for name in sys.argv[2].split(","):
    setattr(tracer.Tracer if hasattr(tracer.Tracer, name) else CLoop, name, fails)
sys.argv = ["necropsy", "run", "--", sys.argv[1]]
from necropsy.cli import main
sys.exit(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the supervisor of Linux")
@pytest.mark.parametrize("broken", ["_exiting", "_exiting,let_exit", "_fatal", "_fatal,release", "_ready,release"])
def test_the_command_ends_as_it_would(broken: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", BROKEN, str(build(tmp_path, NULL)), broken]
    done = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
    assert done.returncode == -signal.SIGSEGV, done.stderr
