"""Real programs die again and again, with one change at a time."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from confirming import confirmed, necropsy, script, verdict
from crashers import build
from necropsy.confirm.subreaper import descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")


def test_a_thread_with_a_size_of_its_own(tmp_path: Path) -> None:
    source = script(
        tmp_path,
        "import ctypes, sys, threading\n"
        "call = ctypes.CDLL(sys.argv[1]).bounded_recursion\n"
        "threading.stack_size(1 << 20)\n"
        "thread = threading.Thread(target=call, args=(100000,))\n"
        "thread.start(); thread.join()\n",
    )
    document, _ = confirmed(tmp_path, sys.executable, source, build.library("stack.c"))
    found = verdict(document)
    assert found.status == "confirmed"
    fix = found.fixes[0]
    assert fix.verified
    assert fix.command in {"threading.stack_size(4 << 20)", "threading.stack_size(5 << 20)"}, (
        "100,000 x 32 and a quarter"
    )


def test_a_null_pointer_of_its_own_is_as_null_with_one_thread(tmp_path: Path) -> None:
    document, _ = confirmed(tmp_path, sys.executable, "-c", "import ctypes; ctypes.string_at(0)")
    found = verdict(document)
    assert found.rule == "null-dereference"
    assert found.status != "refuted"
    (unchanged, one_thread) = found.experiments
    assert (unchanged.crashed, one_thread.crashed) == (3, 1)


def test_a_null_pointer_that_takes_two_threads_is_refuted(tmp_path: Path) -> None:
    source = script(
        tmp_path,
        "import ctypes, os\nif os.environ.get('OMP_NUM_THREADS') != '1':\n    ctypes.string_at(0)\n",
    )
    document, _ = confirmed(tmp_path, sys.executable, source)
    found = verdict(document)
    assert (found.rule, found.status) == ("data-race", "confirmed")
    assert found.fixes[0].verified, "with one thread it lives"
    assert [(one.rule, one.status) for one in document.reports[0].alternatives] == [("null-dereference", "refuted")]


def test_a_crash_of_three_in_ten_runs(tmp_path: Path) -> None:
    source = script(
        tmp_path,
        # Always the same dice: the run's number decides.
        "import ctypes, os, pathlib\n"
        "count = pathlib.Path('count')\n"
        "number = int(count.read_text()) if count.exists() else 0\n"
        "count.write_text(str(number + 1))\n"
        "if number % 10 in {0, 4, 7}:\n    ctypes.string_at(0)\n",
    )
    document, text = confirmed(tmp_path, sys.executable, source, options=("--budget", "600"))
    found = verdict(document)
    unchanged = found.experiments[0]
    assert (unchanged.crashed, unchanged.runs) == (4, 14), "the first run was number 0"
    assert "the chance of a crash is between" in text
    assert not any(fix.verified for fix in found.fixes)


def test_nobody_to_ask_means_that_nothing_is_run(tmp_path: Path) -> None:
    source = script(tmp_path, "import ctypes\nopen('ran', 'a').write('x')\nctypes.string_at(0)\n")
    done = necropsy("run", "--confirm", "--", sys.executable, source, cwd=tmp_path)
    assert done.returncode == -signal.SIGSEGV
    assert (tmp_path / "ran").read_text() == "x"
    assert "not a terminal, so nothing was run" in done.stderr
    assert "Every run repeats its side effects" in done.stderr


@pytest.mark.parametrize("status", [0, 3])
def test_without_a_death_nothing_is_run_again(tmp_path: Path, status: int) -> None:
    source = script(tmp_path, f"import sys\nopen('ran', 'a').write('x')\nsys.exit({status})\n")
    done = necropsy("run", "--confirm", "--yes", "--", sys.executable, source, cwd=tmp_path)
    assert done.returncode == status
    assert (tmp_path / "ran").read_text() == "x"


def test_confirm_takes_the_newest_report_and_its_runs_are_not_made_twice(tmp_path: Path) -> None:
    source = script(tmp_path, "import ctypes\nopen('ran', 'a').write('x')\nctypes.string_at(0)\n")
    necropsy("run", "--", sys.executable, source, cwd=tmp_path)
    first = necropsy("confirm", "--yes", "--runs", "2", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert len((tmp_path / "ran").read_text()) == 1 + 2
    again = necropsy("confirm", "--yes", cwd=tmp_path)
    assert "2 runs of an earlier campaign" in again.stderr
    assert len((tmp_path / "ran").read_text()) == 1 + 3 + 1, (
        "one more of the unchanged program, and one with one thread"
    )
    assert json.loads(necropsy("show", "--format", "json", cwd=tmp_path).stdout)["reports"][0]["verdict"]["experiments"]


@pytest.mark.parametrize("everything", [False, True])
def test_a_killed_campaign_leaves_no_process(tmp_path: Path, *, everything: bool) -> None:
    """``everything``: all that is necropsy's dies at once, and nobody is left who could end the run."""
    source = script(
        tmp_path,
        "import ctypes, os, subprocess, sys, time\n"
        "if os.path.exists('first'):\n"
        "    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "    open('pids', 'a').write(f'{os.getpid()} {child.pid} ')\n"
        "    time.sleep(600)\n"
        "open('first', 'w').close()\nctypes.string_at(0)\n",
    )
    necropsy("run", "--", sys.executable, source, cwd=tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    campaign = subprocess.Popen(
        [sys.executable, "-m", "necropsy", "confirm", "--yes", "--timeout", "300"],
        cwd=tmp_path,
        env=os.environ | {"NECROPSY_OUTPUT": str(tmp_path / "reports"), "TMPDIR": str(scratch)},
        stderr=subprocess.DEVNULL,
    )
    pids = wait_for(tmp_path / "pids")
    for pid in set(descendants(campaign.pid)) - set(pids) if everything else ():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    campaign.kill()
    campaign.wait(30)
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and any(map(lives, pids)):
        time.sleep(0.1)
    left = [pid for pid in pids if lives(pid)]
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not left
    assert not list(scratch.iterdir()), "what it keeps lies in its own folder"


def test_a_run_whose_supervisor_is_killed_is_no_outcome_and_is_made_again(tmp_path: Path) -> None:
    source = script(
        tmp_path,
        "import ctypes, os, pathlib, re, signal, time\n"
        "ran = pathlib.Path('ran')\nnumber = len(ran.read_text()) if ran.exists() else 0\n"
        "open(ran, 'a').write('x')\n"
        "if number == 2:\n"
        "    tracer = re.search(r'TracerPid:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())\n"
        "    os.kill(int(tracer[1]), signal.SIGKILL)\n    time.sleep(600)\n"
        "ctypes.string_at(0)\n",
    )
    necropsy("run", "--", sys.executable, source, cwd=tmp_path)
    first = necropsy("confirm", "--yes", "--runs", "2", cwd=tmp_path)
    assert (tmp_path / "ran").read_text() == "xxx", first.stderr
    again = necropsy("confirm", "--yes", cwd=tmp_path)
    assert "1 run of an earlier campaign is known" in again.stderr
    assert "3 of 3" in again.stderr


def wait_for(path: Path) -> list[int]:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        if path.exists() and len(words := path.read_text().split()) >= 2:
            return [int(word) for word in words]
        time.sleep(0.05)
    raise AssertionError("the second run never began")


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
