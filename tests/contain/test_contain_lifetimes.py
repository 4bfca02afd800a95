"""The lives of callers and workers: no worker outlives its caller, forks start afresh, a lost supervisor costs the report."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import contain_jobs as jobs
from forbidding import FORBID
from necropsy import supervised
from necropsy.contain import Crashed, contain
from necropsy.contain.process import WorkerProcess

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


def test_nothing_outlives_a_killed_caller_even_while_c_code_holds_the_gil() -> None:
    text = "print(contain(jobs.pid)(), flush=True)\ncontain(jobs.busy_in_c)()\n"
    with script(text) as caller:
        assert caller.stdout is not None
        int(caller.stdout.readline())
        processes = family(caller.pid)
        assert len(processes) > 2
        time.sleep(0.2)
        caller.kill()
    assert all(ends(pid) for pid in processes)


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


@pytest.mark.parametrize("whose", ["tracer", "front"])
def test_a_call_goes_on_without_its_supervisor(whose: str) -> None:
    worker = WorkerProcess(())
    worker.greet()
    os.kill(worker.tracer if whose == "tracer" else worker.process.pid, signal.SIGKILL)
    from necropsy.contain.functions import define

    worker.send(worker.channel.dumps((define(jobs.add), (1,), {}, None, "call")))
    assert worker.channel.loads(worker.receive(None)) == ("returned", 2)
    worker.send(worker.channel.dumps((define(jobs.leave), (3,), {}, None, "call")))
    with pytest.raises(Crashed):
        worker.receive(None)


def test_where_the_supervisor_cannot_start_a_death_is_contained_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervised, "command", lambda *_: [sys.executable, "-c", "exit(125)"])
    leave = contain(jobs.leave, imports=["contain_jobs"])
    with pytest.raises(Crashed) as caught:
        leave(3)
    assert (caught.value.exit_code, caught.value.report) == (3, None)


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
print(contain(jobs.add)(1))
"""
    words = [sys.executable, "-c", FORBID, "101", "1", sys.executable, "-c", START + text]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "SIGSEGV True\n2\n"
