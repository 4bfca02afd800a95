"""The lives of callers and workers: no worker outlives its caller, forks start afresh, a lost supervisor costs the report."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import contain_jobs as jobs
from forbidding import FORBID
from necropsy.contain import Crashed, contain
from necropsy.contain.functions import define
from necropsy.contain.messages import loads, packed
from necropsy.contain.pool import Call, Pool
from necropsy.watch.client import VARIABLE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked up in /proc")

TESTS = Path(__file__).parent.parent
START = f"""
import os, signal, sys, threading, time
sys.path.insert(0, {str(TESTS)!r})
import contain_jobs as jobs
from necropsy.contain import contain
"""


def script(text: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", START + text], stdout=subprocess.PIPE, text=True)


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def ends(pid: int) -> bool:
    until = time.monotonic() + 30
    while lives(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not lives(pid)


def family(pid: int) -> set[int]:
    """The process and all its descendants."""
    found = {pid}
    for one in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in one.read_text(encoding="ascii").split():
            found |= family(int(child))
    return found


def tracer_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("TracerPid:")))


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_killed_caller_even_while_c_code_holds_the_gil(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)  # a watcher of its own, which must not keep this as a death
    monkeypatch.setenv("NECROPSY_OUTPUT", str(tmp_path / "reports"))
    text = "print(contain(jobs.pid)(), flush=True)\ncontain(jobs.busy_in_c)()\n"
    with script(text) as caller:
        assert caller.stdout is not None
        worker = int(caller.stdout.readline())
        watcher = parent_of(tracer_of(worker))
        processes = family(caller.pid) | family(watcher)
        assert len(processes) > 5
        caller.send_signal(number)
    assert all(ends(pid) for pid in processes)
    assert not (tmp_path / "reports").exists()


def test_nothing_outlives_a_caller_that_ends() -> None:
    text = """
print(contain(jobs.pid)(), flush=True)
threading.Thread(target=contain(jobs.sleep), args=(600,), daemon=True).start()
sys.stdin.readline()
"""
    with script(text) as caller:
        assert caller.stdout is not None
        int(caller.stdout.readline())
        processes = family(caller.pid)
    assert caller.returncode == 0
    assert all(ends(pid) for pid in processes)


def test_a_call_while_the_interpreter_ends() -> None:
    text = """
import atexit
from necropsy.contain import process
atexit.unregister(process._at_exit)
atexit.register(lambda: print(contain(jobs.add)(1)))
atexit.register(process._at_exit)  # what was registered before it comes after it
print(contain(jobs.add)(2))
"""
    with script(text) as caller:
        assert caller.stdout is not None
        assert caller.stdout.read() == "3\n2\n"
    assert caller.returncode == 0


def test_a_forked_child_gets_workers_of_its_own() -> None:
    text = """
mine = contain(jobs.pid)()
child = os.fork()
if not child:
    os._exit(0 if contain(jobs.pid)() != mine else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), contain(jobs.pid)() == mine)
"""
    with script(text) as caller:
        assert caller.stdout is not None
        assert caller.stdout.read() == "0 True\n"


def test_a_call_during_a_fork_elsewhere_ends_with_its_caller_not_with_the_fork() -> None:
    text = """
contain(jobs.pid)()
child = os.fork()
if not child:
    time.sleep(600)
print(child, flush=True)
contain(jobs.busy_in_c)()
"""
    with script(text) as caller:
        assert caller.stdout is not None
        child = int(caller.stdout.readline())
        processes = family(caller.pid) - {child}
        caller.kill()
    try:
        assert all(ends(pid) for pid in processes)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_program_that_sigpipe_ends_lives_on() -> None:
    text = """
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
from necropsy.contain.pool import Call, Pool
pool = Pool(1, ())
with pool.worker() as worker:
    nursery = int(open(f"/proc/{worker.pid}/stat").read().rpartition(")")[2].split()[1])
    for pid in (worker.pid, nursery):
        os.kill(pid, signal.SIGKILL)
    while not worker.is_gone:
        time.sleep(0.01)
    worker.send(Call(jobs.add, (1,), {}).message)
    worker.interrupt()
    try:
        worker.receive(None)
    except Exception as error:
        print(type(error).__name__)
print(Call(jobs.add, (1,), {}).run(pool))
"""
    with script(text) as caller:
        assert caller.stdout is not None
        assert caller.stdout.read() == "Crashed\n2\n"


def test_functions_of_a_script_work_by_value() -> None:
    text = """
base = 10
class Point:
    def __init__(self, x): self.x = x
def shifted(point): return Point(point.x + base)
print(type(contain(shifted)(Point(1))) is Point, contain(shifted)(Point(1)).x)
"""
    with script(text) as caller:
        assert caller.stdout is not None
        assert caller.stdout.read() == "True 11\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("whose", ["tracer", "watcher", "nursery"])
def test_a_call_goes_on_without_a_helper_and_so_does_the_next(whose: str, number: int) -> None:
    pool = Pool(1, ())
    try:
        with pool.worker() as worker:
            tracer = tracer_of(worker.pid)
            processes = {"tracer": tracer, "watcher": parent_of(tracer), "nursery": parent_of(worker.pid)}
            os.kill(processes[whose], number)
            worker.send(packed((define(jobs.add), (1,), {}, None, "call")))
            assert loads(worker.receive(None)) == ("returned", 2)
            worker.send(packed((define(jobs.leave), (3,), {}, None, "call")))
            with pytest.raises(Crashed):
                worker.receive(None)
        assert Call(jobs.add, (1,), {}).run(pool) == 2
    finally:
        pool.close()


def test_under_necropsy_run_a_death_has_its_report_too(tmp_path: Path) -> None:
    text = """
import necropsy
try:
    contain(jobs.crash)()
except necropsy.Crashed as crashed:
    print(crashed.rule, crashed.report is not None)
"""
    words = [sys.executable, "-m", "necropsy", "run", "--json", str(tmp_path / "run.json"), sys.executable, "-c"]
    done = subprocess.run([*words, START + text], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("null-dereference True\n", "")
    assert json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))["reports"] == []


def test_where_the_watcher_cannot_start_a_death_is_contained_all_the_same() -> None:
    text = """
os.environ["NECROPSY_WATCHER"] = "/nowhere"
import tempfile
tempfile.tempdir = "/nowhere"
import necropsy
try:
    contain(jobs.leave)(3)
except necropsy.Crashed as crashed:
    print(crashed.exit_code, crashed.rule, crashed.report is not None)
"""
    with script(text) as caller:
        assert caller.stdout is not None
        assert caller.stdout.read() == "3 exit-status-only True\n"


def test_a_worker_that_is_killed_while_it_is_idle_is_not_the_next_calls_death() -> None:
    first = contain(jobs.pid)()
    os.kill(first, signal.SIGKILL)
    assert ends(first)
    assert contain(jobs.pid)() != first


def test_a_kill_from_outside_has_its_signal() -> None:
    with pytest.raises(Crashed) as caught:
        contain(jobs.kill_itself)()
    assert caught.value.signal == "SIGKILL"


def test_where_no_process_may_be_traced_the_report_has_the_end_and_says_what_is_missing() -> None:
    text = """
import necropsy
try:
    contain(jobs.crash)()
except necropsy.Crashed as crashed:
    print(crashed.signal, any("ptrace" in gap.why for gap in (*crashed.report.gaps, *crashed.report.reports[0].crash.gaps)))
    print([frame["function"] for frame in crashed.python])
print(contain(jobs.add)(1))
"""
    words = [sys.executable, "-c", FORBID, "101", "1", sys.executable, "-c", START + text]
    variables = {name: value for name, value in os.environ.items() if name != VARIABLE}  # our watcher may trace it
    done = subprocess.run(words, capture_output=True, text=True, check=True, env=variables)
    assert done.stdout == "SIGSEGV True\n['string_at', 'crash']\n2\n"
