"""A run that is forked from a server is what a run that is started from nothing is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from confirming import script
from necropsy.confirm import runner as runner_module
from necropsy.confirm.runner import Command, Runner, TrialRun
from necropsy.confirm.subreaper import descendants
from necropsy.confirm.warm_start import WarmStart, WarmStartError
from necropsy.model import Change

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")

LOOKS = """
import os, pathlib, re, resource, sys
status = pathlib.Path("/proc/self/status").read_text()
print("environment", sorted(os.environ.items()))
print("signals", re.findall(r"(?:SigBlk|SigIgn|ShdPnd):.*", status))
print("files", sorted(os.listdir("/proc/self/fd")), [os.readlink(f"/proc/self/fd/{n}").rpartition("/")[2] for n in (0, 1, 2)])
print("place", os.getcwd(), os.umask(0), os.getpgrp() == os.getsid(0), os.nice(0))
print("limits", [resource.getrlimit(one) for one in range(16)])
print("words", sys.argv[1:], sys.path[1:])
"""


@pytest.fixture
def target(tmp_path: Path) -> Command:
    keep = script(tmp_path, f"import sys\nsys.stdout = open('said', 'a')\n{LOOKS}\nsys.exit(3)")
    environment = os.environ | {"SOMETHING": "of ours", "ODD": os.fsdecode(b"\xff\xfe")}
    return Command((sys.executable, str(keep), "a b", os.fsdecode(b"\xff")), tmp_path, environment=environment)


@pytest.fixture
def runner(target: Command, tmp_path: Path) -> Iterator[Runner]:
    with closing(Runner(target, tmp_path / "runs", 60)) as runner:
        yield runner


def cold(*_: object) -> WarmStart:
    raise WarmStartError("not here")


def code_of(run: TrialRun) -> int | None:
    assert run.document is not None
    end = run.document.processes[0].exit
    return end.code if end is not None else None


def test_the_command_inherits_the_same(runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forked = [runner.run(Change()) for _ in range(2)]
    runner.close()
    monkeypatch.setattr(runner_module, "WarmStart", cold)
    started = runner.run(Change())
    assert [code_of(run) for run in (*forked, started)] == [3, 3, 3]
    assert [run.outcome for run in forked] == [started.outcome] * 2
    assert all(run.cpu_s for run in (*forked, started))
    said = (tmp_path / "said").read_text().splitlines()
    lines = len(said) // 3
    assert said[:lines] == said[lines : 2 * lines] == said[2 * lines :]
    assert "'of ours'" in said[0]


def test_where_the_server_is_gone_a_run_is_started_from_nothing(runner: Runner) -> None:
    before = set(descendants(os.getpid()))  # of other tests: ``warm``
    assert code_of(runner.run(Change())) == 3
    for pid in set(descendants(os.getpid())) - before:
        os.kill(pid, signal.SIGKILL)
    assert code_of(runner.run(Change())) == 3


def test_a_run_that_takes_too_long_is_ended_and_the_next_one_is_made(tmp_path: Path) -> None:
    keep = script(tmp_path, "import sys, time\nopen('began', 'a').write('x')\ntime.sleep(int(sys.argv[1]))\n")
    words = ["run", "--quiet", "--always", "--json", str(tmp_path / "x.json"), "--", sys.executable, str(keep)]
    before = set(descendants(os.getpid()))
    with (tmp_path / "out").open("w+b") as out, closing(WarmStart(os.environ, tmp_path)) as server:
        files = (out.fileno(),) * 3
        assert server.run([*words, "600"], files, 0.0)[0] is None
        assert server.run([*words, "0"], files, 60)[0] == 0
    assert set(descendants(os.getpid())) <= before


def test_a_request_to_end_that_comes_in_the_middle_of_a_fork_is_heard() -> None:
    """Python calls functions at a fork, and drops what a signal handler raises in them."""
    source = """
import os, signal, sys, time
from necropsy.confirm import subreaper

def start(tie):
    os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
    pid = os.fork()
    if not pid:
        tie()
        time.sleep(600)
    return pid

sys.exit(subreaper.keep(os.getppid(), start))
"""
    assert subprocess.run([sys.executable, "-c", source], timeout=60, check=False).returncode == 128 + signal.SIGTERM


def test_too_many_words_are_for_a_start_from_nothing(tmp_path: Path) -> None:
    with closing(WarmStart(os.environ, tmp_path)) as server, pytest.raises(WarmStartError):
        server.run(["x" * 1_000_000], (0, 1, 2), 1)
