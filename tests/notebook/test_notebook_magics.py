from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("ipykernel", reason="the kernels that these tests start")

from notebook_kernels import Kernel, started

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a cell in a process of its own needs fork")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NECROPSY_OUTPUT", str(tmp_path_factory.mktemp("reports")))
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        patch.delenv("NECROPSY_WATCHER", raising=False)
        yield from running()


def running() -> Iterator[Kernel]:
    with started("python3") as kernel:
        assert kernel.run("%load_ext necropsy").status == "ok"
        assert "Nothing has died in this notebook" in kernel.run("%necropsy").stdout
        kernel.run("x = 1\nclass A: pass\na = A()")
        yield kernel


def test_variables_go_in_and_the_named_ones_come_back(kernel: Kernel) -> None:
    cell = kernel.run("%%necropsy -o y,b -o q\ny = x + 1; x = 5; b = A(); q = lambda: y\nprint('out')\ny * 10")
    assert (cell.status, cell.stdout, cell.shown) == ("ok", "out\n", ["20"])
    assert kernel.run("x, y, q(), isinstance(b, A), type(b) is A").shown == ["(1, 2, 2, True, True)"]


def test_output_comes_while_the_cell_runs(kernel: Kernel) -> None:
    code = "import os, sys, time\nprint('first', flush=True)\nos.system('echo second; echo third >&2')\ndisplay(3)"
    cell = kernel.run(f"%%necropsy\n{code}")
    assert cell.stdout.splitlines() == ["first", "second"]
    assert cell.stderr == "third\n"
    assert cell.shown == ["3"]


def test_a_crash_is_an_error_and_the_kernel_lives_on(kernel: Kernel) -> None:
    cell = kernel.run("%%necropsy\nimport ctypes\nprint('before')\nctypes.string_at(0)")
    assert (cell.status, cell.ename, cell.stdout) == ("error", "Crashed", "before\n")
    assert f"In [{cell.number}], line 4 crashed (SIGSEGV)" in cell.evalue
    assert "null-dereference" in cell.traceback
    assert "necropsy show" in cell.traceback
    assert kernel.run("%necropsy").stdout.strip() == cell.traceback.strip()
    assert kernel.run("x").shown == ["1"]


def test_an_exit_is_a_death_too(kernel: Kernel) -> None:
    cell = kernel.run("%%necropsy\nimport os\nos._exit(3)")
    assert cell.ename == "Crashed"
    assert "exit code 3" in cell.evalue


def test_an_exception_comes_with_the_traceback_of_the_cell(kernel: Kernel) -> None:
    cell = kernel.run("%%necropsy\nz = 3\n1 / 0")
    assert (cell.ename, cell.evalue) == ("ZeroDivisionError", "division by zero")
    assert "line 3" in cell.traceback  # the line of the magic is line 1
    assert "forked_cell" not in cell.traceback
    assert kernel.run("%%necropsy\nz = (").ename == "SyntaxError"
    assert kernel.run("%%necropsy\nclass E(Exception):\n  def __init__(s, a, b): pass\nraise E(1, 2)").ename == "E"


def test_the_time_limit(kernel: Kernel) -> None:
    cell = kernel.run("%%necropsy -t 3\nimport time\ndef wait():\n    time.sleep(60)\nwait()")
    assert cell.ename == "TimedOut"
    assert "3 s" in cell.evalue
    assert "line 4, in wait  time.sleep(60)" in cell.traceback


def test_an_interrupt_ends_the_cell_only(kernel: Kernel) -> None:
    # By default, what is asked soon after an error is aborted with it.
    identity = kernel.client.execute("%%necropsy\nprint('on')\nimport time\ntime.sleep(60)", stop_on_error=False)
    kernel.wait_for("stream", identity)
    kernel.manager.interrupt_kernel()
    assert kernel.reply(identity)["content"]["ename"] == "KeyboardInterrupt"
    assert kernel.run("x").shown == ["1"]


def test_magics_work_in_the_cell(kernel: Kernel) -> None:
    assert kernel.run("%%necropsy\n%%capture captured\nprint(1)").status == "ok"
    cell = kernel.run("%%necropsy\nimport asyncio\nawait asyncio.sleep(0)\nprint('awaited')")
    assert cell.stdout == "awaited\n"


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%%necropsy -q\n1", "unrecognized arguments: -q"),
        ("%%necropsy -t soon\n1", "-t"),
        ("%%necropsy -t -1\n1", "above 0"),
        ("%%necropsy -o a.b\n1", "'a.b' is not the name of a variable"),
        ("%%necropsy -o 'a\n1", "No closing quotation"),
        ("%necropsy 5", "takes no arguments"),
    ],
)
def test_a_mistake_in_the_line_is_one_line(kernel: Kernel, cell: str, said: str) -> None:
    result = kernel.run(cell)
    assert said in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_what_cannot_come_back_is_named(kernel: Kernel) -> None:
    cell = kernel.run("%%necropsy -o good,nothing,lock\nimport threading\ngood = 7; lock = threading.Lock()")
    assert cell.ename == "TypeError"
    assert "nothing: the cell did not set it" in cell.evalue
    assert "lock: it cannot be pickled" in cell.evalue
    assert kernel.run("good").shown == ["7"]
