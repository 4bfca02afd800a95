"""Forks of an interpreter with its imports done, in place of fresh processes, where that is safe."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from confirming import confirmed, script, verdict
from crashers import build
from necropsy.confirm import forking
from necropsy.confirm.forking import ForkServer, UnsafeError
from necropsy.model import Change

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")


def server(tmp_path: Path, text: str, *options: str) -> ForkServer:
    return ForkServer([sys.executable, *options, str(script(tmp_path, text)), "0"], tmp_path, os.environ)


def test_each_run_is_a_fresh_start_but_for_the_imports(tmp_path: Path) -> None:
    forks = server(
        tmp_path,
        '"""A docstring."""\nfrom __future__ import annotations\nimport sys, json\n'
        "count = globals().get('count', 0) + 1\n"
        "sys.exit(int(sys.argv[1]) * count)\n",
    )
    assert [forks.run([word], 30) for word in ("3", "0", "5")] == [(3 << 8, False), (0, False), (5 << 8, False)]
    forks.close()


def test_a_death_and_a_hang_are_told_apart(tmp_path: Path) -> None:
    forks = server(
        tmp_path,
        "import ctypes, sys, time\nif sys.argv[1] == 'die':\n    ctypes.string_at(0)\nif sys.argv[1] == 'hang':\n"
        "    time.sleep(600)\nif sys.argv[1] == 'raise':\n    raise ValueError\n",
    )
    outcomes = {}
    for word in ("die", "raise", "live", "hang"):
        answer = forks.run([word], 1 if word == "hang" else 60)
        assert answer is not None
        outcomes[word] = forking.outcome(answer[0], "SIGSEGV", timed_out=answer[1])
    assert outcomes == {"die": "same", "raise": "another", "live": "survives", "hang": "hangs"}
    forks.close()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("import threaded\n", "threads"),
        ("import does_not_exist\n", "imports do not work alone"),
        ("import ctypes_that_dies\n", "imports do not work alone"),
    ],
)
def test_where_it_is_not_safe_it_says_so(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    )
    (tmp_path / "ctypes_that_dies.py").write_text("import ctypes\nctypes.string_at(0)\n")
    with pytest.raises(UnsafeError, match=why):
        server(tmp_path, text)


@pytest.mark.parametrize("command", [["true"], ["python3", "-c", "1"], ["python3", "-m", "x"], ["python3", "none.py"]])
def test_other_commands_have_no_forks(command: list[str], tmp_path: Path) -> None:
    with pytest.raises(UnsafeError):
        ForkServer(command, tmp_path, os.environ)


def test_only_other_arguments_can_be_taken() -> None:
    assert forking.takes(Change(arguments={"N": "1"}))
    assert not forking.takes(Change())
    assert not forking.takes(Change(arguments={"N": "1"}, environment={"A": "b"}))


def test_nothing_is_left_of_it(tmp_path: Path) -> None:
    forks = server(
        tmp_path,
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open(sys.argv[1], 'w').write(str(child.pid))\n",
    )
    place = tmp_path / "pid"
    assert forks.run([str(place)], 30) == (0, False)
    forks.close()
    pid = int(place.read_text())
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and Path(f"/proc/{pid}").exists():
        time.sleep(0.05)
    assert not Path(f"/proc/{pid}").exists()


def test_a_threshold_is_found_in_forks(tmp_path: Path) -> None:
    source = script(
        tmp_path,
        "import ctypes, os, sys\n"
        "open('pids', 'a').write(f'{os.getppid()} ')\n"
        "ctypes.CDLL(sys.argv[1]).bounded_recursion(int(sys.argv[2]))\n",
    )
    command = (sys.executable, source, build.library("stack.c"), "{N}")
    document, _ = confirmed(tmp_path, *command, options=("--scale", "N=1000..2000000"))
    row = next(one for one in verdict(document).experiments if one.name == "scale-N")
    assert row.conclusive
    assert row.runs >= 10
    assert "fresh process" not in (row.means or "")
    parents = (tmp_path / "pids").read_text().split()
    assert max(parents.count(one) for one in parents) >= 8, "most of the runs were forks of one process"
