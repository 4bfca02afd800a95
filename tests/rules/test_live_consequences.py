"""Workers that die, and what becomes of their parents: the death that explains the other ends is told first."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from live import python, reports_of, told

DIE = f"{sys.executable} -c 'import os; os.abort()'"


def caused(command: Sequence[str], folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The first report, and that of the command, which names it."""
    first, second, *others = reports_of(command, folder)
    assert (first["consequence_of"], second["consequence_of"]) == (None, first["pid"])
    assert f"process {first['pid']} (" in second["verdict"]["summary"]
    assert "not a native crash" not in second["verdict"]["summary"]
    assert all(one["consequence_of"] is None for one in others)
    return first, second


def test_a_broken_pool(tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(
        "import concurrent.futures, ctypes\n"
        "def work(): ctypes.string_at(0)\n"
        "if __name__ == '__main__':\n"
        "    with concurrent.futures.ProcessPoolExecutor(1) as pool: pool.submit(work).result()\n"
    )
    first, second = caused([sys.executable, "pool.py"], tmp_path)
    assert first["crash"]["fault"]["signal"] == "SIGSEGV"
    assert second["verdict"]["rule"] == "python-exception"
    assert "BrokenProcessPool" in told(second)


def test_a_pool_whose_worker_was_killed(tmp_path: Path) -> None:
    """Somebody else kills it. The pool itself says nothing: who waits for the result does so in vain."""
    (tmp_path / "pool.py").write_text(
        "import multiprocessing, os\n"
        "def work(): os.system('kill -9 $PPID')\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.Pool(1) as pool: pool.apply_async(work).get(1)\n"
    )
    first, second = caused([sys.executable, "pool.py"], tmp_path)
    assert (first["verdict"]["rule"], first["crash"]["exit"]["signal"]) == ("killed-by-signal", "SIGKILL")
    assert second["verdict"]["confidence"] == "likely"


def test_a_child_that_is_checked(tmp_path: Path) -> None:
    first, second = caused(
        python("import subprocess, sys; subprocess.run([sys.executable, '-c', 'import os; os.abort()'], check=True)"),
        tmp_path,
    )
    assert first["verdict"]["rule"] == "ended-by-its-own-call"
    assert (second["verdict"]["rule"], second["verdict"]["confidence"]) == ("python-exception", "certain")


def test_a_shell_and_a_timeout(tmp_path: Path) -> None:
    first, second = caused(["timeout", "300", "sh", "-c", f"{DIE}; exit $?"], tmp_path)
    assert (first["verdict"]["rule"], second["crash"]["exit"]["code"]) == ("ended-by-its-own-call", 134)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make(tmp_path: Path) -> None:
    (tmp_path / "Makefile").write_text(f"all:\n\t@{DIE}\n")
    first, second = caused(["make"], tmp_path)
    assert (first["verdict"]["rule"], second["crash"]["exit"]["code"]) == ("ended-by-its-own-call", 2)


def test_an_exception_that_has_nothing_to_do_with_it(tmp_path: Path) -> None:
    code = "import subprocess; subprocess.run(['sh', '-c', 'kill -SEGV $$']); raise ValueError(3)"
    own, other = reports_of(python(code), tmp_path)
    assert (own["verdict"]["rule"], own["consequence_of"], other["consequence_of"]) == ("python-exception", None, None)
