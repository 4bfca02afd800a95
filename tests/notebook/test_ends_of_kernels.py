"""The processes around a watched kernel are ended from outside: the others end as well, or the kernel lives on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("ipykernel", reason="the kernels that these tests start")

from necropsy.notebook import kept_death, kernelspecs
from notebook_kernels import processes_below, started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are watched on Linux only")

COMPANION = "necropsy-note"
SERVER = """
import time
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="watched")
client.execute("import time; time.sleep(60)")
print("runs", flush=True)
time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a kernel `watched` is installed. Nothing that was started from there may be left."""
    native = kernelspecs.named("python3", [kernelspecs.prefix_folder(sys.prefix)])
    kernelspecs.install(native, "watched", None, tmp_path / "kernels")
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    monkeypatch.setenv("NECROPSY_OUTPUT", str(tmp_path / "reports"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.delenv("NECROPSY_WATCHER", raising=False)
    yield tmp_path
    wait_until_none_is_left(tmp_path)


def wait_until_none_is_left(folder: Path, seconds: float = 90) -> None:
    until = time.monotonic() + seconds
    while (left := processes_below(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    assert [name_of(path) for path in left] == []


def name_of(path: Path) -> str:
    try:
        return (path / "comm").read_text().strip()
    except OSError:  # it has ended meanwhile
        return ""


@pytest.mark.slow
@pytest.mark.parametrize("signo", [signal.SIGKILL, signal.SIGTERM])
def test_the_kernel_and_its_helpers_end_with_the_server(folder: Path, signo: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"runs\n"
        os.kill(server.pid, signo)
        wait_until_none_is_left(folder, seconds=45)  # a kernel looks for its parent every second


@pytest.mark.slow
def test_a_kernel_that_somebody_ends(folder: Path) -> None:
    """By SIGKILL or SIGTERM, between cells and in a cell; at the end without its companion."""
    with started("watched") as kernel, (folder / "stderr").open("wb") as stderr:
        for signo, cell in ((signal.SIGKILL, ""), (signal.SIGTERM, "import time\ntime.sleep(60)")):
            if cell:
                kernel.client.execute(cell)
                while kernel.client.get_iopub_msg(timeout=60)["msg_type"] != "execute_input":
                    continue
            kernel.manager.signal_kernel(signo)
            while kernel.manager.is_alive():
                time.sleep(0.01)
            kernel.manager.restart_kernel(now=True, stderr=stderr)
            kernel.client.wait_for_ready(timeout=60)
        assert kernel.run("40 + 2").shown[-1] == "42"
        for path in processes_below(folder):
            if name_of(path) == COMPANION:
                os.kill(int(path.name), signal.SIGKILL)
        assert kernel.run("40 + 3").shown == ["43"]
        kernel.client.execute("import ctypes\nctypes.string_at(0)")
        while kernel.manager.is_alive():
            time.sleep(0.01)
        kernel.manager.restart_kernel(now=True)
        kernel.client.wait_for_ready(timeout=60)
        assert kernel.run("40 + 4").shown[-1] == "44"
        connection_file = Path(kernel.manager.connection_file)
    assert kept_death.read(connection_file) is None
