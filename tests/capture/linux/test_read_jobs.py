"""The processes that read deaths, as the tracer counts them."""

from __future__ import annotations

import subprocess

from supervised import python

POOL = """
import os, signal
from necropsy.capture.linux.supervise import read_jobs

def is_dead(pid):
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT) is not None

read_jobs.WARM_S = 0.0
for how in ("killed", "collected", "stopped"):
    pool = read_jobs.ReaderPool(1.0, death_of=None, on_read=None)
    pool.look()
    (pid, reader), = pool._readers.items()
    reader.stop() if how == "stopped" else os.kill(pid, signal.SIGKILL)
    assert is_dead(pid)
    if how == "collected":
        assert pool.ended(*os.waitpid(pid, 0))
    print(how, pool.killed(), pool.killed())
"""


def test_readers_that_necropsy_did_not_kill_are_counted_once() -> None:
    done = subprocess.run(python(POOL), capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["killed 1 1", "collected 1 1", "stopped 0 0"], done.stderr
