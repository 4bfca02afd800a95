from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ipykernel", reason="the kernels that these tests start")

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

from necropsy.notebook import kept_death, kernelspecs
from notebook_kernels import Kernel, started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernels are watched on Linux only")

CRASH = "import ctypes\nctypes.string_at(0)"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Where a kernel `watched` is installed."""
    folder = tmp_path_factory.mktemp("jupyter")
    native = kernelspecs.named("python3", [kernelspecs.prefix_folder(sys.prefix)])
    kernelspecs.install(native, "watched", None, folder / "kernels")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder))
        patch.setenv("NECROPSY_OUTPUT", str(folder / "reports"))
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.delenv("NECROPSY_WATCHER", raising=False)
        yield dict(os.environ)


@pytest.fixture(scope="module")
def server_stderr(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stderr") / "stderr"


@pytest.fixture(scope="module")
def kernel(environment: dict[str, str], server_stderr: Path) -> Iterator[Kernel]:
    with server_stderr.open("wb") as stderr, started("watched", stderr=stderr) as one:
        yield one


def dead_cells_output(kernel: Kernel, code: str) -> str:
    """What is shown below a cell that kills its kernel."""
    identity = kernel.client.execute(code)
    return str(kernel.wait_for("display_data", identity)["content"]["data"]["text/plain"])


def wait_for_death(kernel: Kernel) -> None:
    while kernel.manager.is_alive():
        time.sleep(0.01)


def restart(kernel: Kernel) -> None:
    kernel.manager.restart_kernel(now=True)
    kernel.client.wait_for_ready(timeout=60)


def test_it_is_the_process_that_jupyter_started(kernel: Kernel) -> None:
    assert isinstance(kernel.manager.provisioner, LocalProvisioner)
    process = kernel.manager.provisioner.pid
    assert kernel.run("import os; os.getpid(), os.getppid()").shown == [f"({process}, {os.getpid()})"]
    assert kernel.run("sorted(name for name in globals() if 'necropsy' in name.lower())").shown == ["[]"]
    assert kernel.run("[name for name in os.environ if name == 'NECROPSY_NOTEBOOK']").shown == ["[]"]
    assert "nothing" not in kernel.run("1").stdout


def test_the_report_is_below_the_dead_cell_and_nowhere_else(kernel: Kernel, server_stderr: Path) -> None:
    count = kernel.run("import ctypes\ndef boom(pointer):\n    return ctypes.string_at(pointer)").number + 1
    text = dead_cells_output(kernel, "x = 1\nboom(0)")
    assert text.startswith(f"The kernel died while In [{count}] ran.\n  In [{count}], line 2")
    assert f"In [{count - 1}], line 3, in boom  return ctypes.string_at(pointer)" in text
    assert "null-dereference" in text
    assert "ipykernel_" not in text
    wait_for_death(kernel)
    assert text in server_stderr.read_text()
    restart(kernel)
    assert kernel.run("1").shown == ["1"]
    again = kernel.run("%load_ext necropsy\n%necropsy")
    assert again.stdout.strip() == text


def test_where_nobody_listens_the_next_cell_has_it_once(kernel: Kernel) -> None:
    kernel.client.stop_channels()
    client = kernel.manager.client()
    client.start_channels(iopub=False, stdin=False, hb=False)
    client.execute(CRASH)
    wait_for_death(kernel)
    kernel.manager.restart_kernel(now=True)
    client.kernel_info(reply=True, timeout=60)
    client.stop_channels()
    kernel.client = kernel.manager.client()
    kernel.client.start_channels()
    kernel.client.wait_for_ready(timeout=60)
    first, second = kernel.run("5"), kernel.run("6")
    assert "null-dereference" in first.shown[0]
    assert first.shown[1:] == ["5"]
    assert second.shown == ["6"]


def test_interrupt_input_and_children_are_as_ever(kernel: Kernel) -> None:
    # By default, what is asked soon after an error is aborted with it.
    identity = kernel.client.execute("print('on')\nimport time\ntime.sleep(60)", stop_on_error=False)
    kernel.wait_for("stream", identity)
    kernel.manager.interrupt_kernel()
    assert kernel.reply(identity)["content"]["ename"] == "KeyboardInterrupt"
    asked = kernel.client.execute("input('name? ')", allow_stdin=True)
    assert kernel.client.get_stdin_msg(timeout=30)["content"]["prompt"] == "name? "
    kernel.client.input("me")
    assert kernel.reply(asked)["content"]["status"] == "ok"
    child = kernel.run(
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import os; os.abort()']).returncode"
    )
    assert child.shown == ["-6"]
    assert not kept_death.read(Path(kernel.manager.connection_file)) or kernel.manager.is_alive()


def test_a_cell_in_its_own_process_shares_the_watcher(kernel: Kernel) -> None:
    kernel.run("%load_ext necropsy")
    cell = kernel.run(f"%%necropsy\n{CRASH}")
    assert cell.ename == "Crashed"
    assert "null-dereference" in cell.traceback
    assert "line 3" in cell.evalue


def test_a_restart_is_not_a_death(kernel: Kernel) -> None:
    kept = kept_death.path(Path(kernel.manager.connection_file))
    kept.unlink(missing_ok=True)
    kernel.client.execute("import time\ntime.sleep(60)")
    time.sleep(0.2)
    restart(kernel)
    assert kernel.run("1").shown == ["1"]
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=60)
    assert kernel.run("1").shown == ["1"]
    assert not kept.exists()


def test_an_exit_in_a_cell_is_told(kernel: Kernel) -> None:
    assert "did not crash" in dead_cells_output(kernel, "import os\nos._exit(3)")
    wait_for_death(kernel)
    restart(kernel)


def test_the_users_own_startup_files_run(environment: dict[str, str], tmp_path: Path) -> None:
    profile = Path(environment["IPYTHONDIR"]) / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    (tmp_path / "mine.py").write_text("mine = 41")
    config = profile / "ipython_kernel_config.py"
    config.write_text(f"c.IPKernelApp.exec_files = [{str(tmp_path / 'mine.py')!r}]")
    try:
        with started("watched") as kernel:
            assert kernel.run("mine + 1").shown == ["42"]
    finally:
        config.unlink()


def test_nbclient_has_it_on_stderr(environment: dict[str, str], tmp_path: Path) -> None:
    """It may notice the death before the report comes to the cell, and stops listening then."""
    import nbformat

    made: Any = nbformat.v4  # its functions have no types
    notebook = made.new_notebook(cells=[made.new_code_cell(CRASH)])
    said = tmp_path / "stderr"
    with said.open("wb") as stderr, pytest.raises(DeadKernelError):
        NotebookClient(notebook, kernel_name="watched", timeout=60).execute(stderr=stderr)
    until = time.monotonic() + 60
    while "null-dereference" not in said.read_text() and time.monotonic() < until:
        time.sleep(0.05)
    assert "The kernel died while In [" in said.read_text()
    assert "null-dereference" in said.read_text()


def test_without_a_watcher_the_kernel_lives_on(kernel: Kernel) -> None:
    tracer = kernel.run("[line for line in open('/proc/self/status') if 'TracerPid' in line][0].split()[1]").shown[0]
    os.kill(int(tracer.strip("'")), signal.SIGKILL)
    assert kernel.run("2").shown == ["2"]
