"""Many tests with deaths of ten kinds: the same tests fail as when each of them is run in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from inner_pytest import CRASH, run, write

KINDS = (
    "crash()",
    "os.abort()",
    "os._exit(0)",
    "os._exit(3)",
    "os.kill(os.getpid(), signal.SIGKILL)",
    "os.kill(os.getpid(), signal.SIGTERM)",
    "signal.raise_signal(signal.SIGFPE)",
    "ctypes.memset(8, 1, 1)",
    "ctypes.CFUNCTYPE(None)(16)()",
    "signal.raise_signal(signal.SIGILL)",
)
ALONE = """
import os, sys
sys.path.insert(0, ".")
import test_many
for name in [one for one in dir(test_many) if one.startswith("test_")]:
    pid = os.fork()
    if not pid:
        try:
            getattr(test_many, name)()
        except BaseException:
            os._exit(1)
        os.write(1, f"{name}\\n".encode())
        os._exit(0)
    os.waitpid(pid, 0)
"""
EVERY, TESTS = 6, 60


@pytest.mark.slow
def test_the_same_tests_fail(tmp_path: Path) -> None:
    bodies = [
        KINDS[n // EVERY % len(KINDS)] if n % EVERY == 3 else "assert False" if n % EVERY == 5 else "pass"
        for n in range(TESTS)
    ]
    write(tmp_path, test_many=CRASH + "".join(f"def test_{n:03}(): {body}\n" for n, body in enumerate(bodies)))
    alone = subprocess.run([sys.executable, "-c", ALONE], cwd=tmp_path, capture_output=True, text=True, check=True)
    together = run(tmp_path, "--necropsy", "-q")
    passed = {name.rpartition(".")[2] for name, ends in together.tests.items() if ends == ["passed"]}
    assert passed == set(alone.stdout.split())
    assert len(together.tests) == TESTS
    assert {name for name, ends in together.tests.items() if len(ends) != 1} == set()
