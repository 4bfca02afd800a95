"""A kernel that dies and is started again, many times: nothing is left behind.

Three times here; ``NECROPSY_SOAK=200 pytest tests/notebook/test_soak.py -s`` takes some minutes and prints the numbers.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("ipykernel", reason="the kernels that this test starts")

from necropsy.notebook import kernelspecs
from notebook_kernels import Kernel, processes_below, started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are watched on Linux only")

DEATHS = int(os.environ.get("NECROPSY_SOAK", "3"))
PROCESSES = 4
"""The kernel, its watcher, its tracer, its companion."""
LISTENS = "0A"


class Left(NamedTuple):
    processes: int
    ports: int
    descriptors: int
    """Of the server, which is this process."""
    files: int
    megabytes: float
    """Of all of these processes."""


def look(folder: Path) -> Left:
    """What is there while one kernel runs."""
    until = time.monotonic() + 60
    while len(processes_below(folder)) != PROCESSES and time.monotonic() < until:
        time.sleep(0.05)
    processes = processes_below(folder)
    sockets = set()
    for path in processes:
        for link in (path / "fd").iterdir():
            with contextlib.suppress(OSError):  # it has been closed meanwhile
                sockets.add(os.readlink(link))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    pages = sum(int((path / "statm").read_text().split()[1]) for path in processes)
    places = [one for place in ("runtime", "tmp") for one in (folder / place).rglob("*")]
    return Left(
        len(processes),
        sum(row[3] == LISTENS and f"socket:[{row[9]}]" in sockets for row in rows),
        len(list(Path("/proc/self/fd").iterdir())),
        len(places),
        pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
    )


def die_and_start_again(kernel: Kernel) -> bool:
    """Whether the report came to the dead cell."""
    identity = kernel.client.execute("import ctypes\nctypes.string_at(0)")
    came = False
    until = time.monotonic() + 60
    while (kernel.manager.is_alive() or not came) and time.monotonic() < until:
        while kernel.client.iopub_channel.msg_ready():
            message = kernel.client.get_iopub_msg()
            came |= message["msg_type"] == "display_data" and message["parent_header"].get("msg_id") == identity
        time.sleep(0.01)
    kernel.manager.restart_kernel(now=True)
    kernel.client.wait_for_ready(timeout=60)
    return came


@pytest.mark.slow
def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native = kernelspecs.named("python3", [kernelspecs.prefix_folder(sys.prefix)])
    kernelspecs.install(native, "watched", None, tmp_path / "kernels")
    for name in ("runtime", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("NECROPSY_OUTPUT", str(tmp_path / "reports"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("NECROPSY_WATCHER", raising=False)
    with (tmp_path / "stderr").open("wb") as stderr, started("watched", stderr=stderr) as kernel:
        came = die_and_start_again(kernel)
        before = look(tmp_path)
        times = sum(die_and_start_again(kernel) for _ in range(DEATHS))
        after = look(tmp_path)
    print(f"\n{before}\n{after}\n{times} of {DEATHS} reports came to the dead cell")
    assert came
    assert times >= 0.9 * DEATHS
    assert before.processes == after.processes == PROCESSES
    assert after[1:4] <= before[1:4]
    assert after.megabytes < 1.2 * before.megabytes
    until = time.monotonic() + 60
    while processes_below(tmp_path) and time.monotonic() < until:
        time.sleep(0.05)
    assert not processes_below(tmp_path)
