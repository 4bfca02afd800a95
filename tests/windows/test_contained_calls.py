"""``contain`` in a Windows CPython under wine: real workers die, and the caller goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import wine

pytestmark = wine.needed

JOBS = '''
import ctypes, faulthandler, os, sys

def add(a, b=1): return a + b
def fail(key): raise KeyError(key)
def read_null(): faulthandler._read_null()
def swallowed():
    """ctypes makes an OSError of it, of which faulthandler tells nevertheless."""
    try:
        ctypes.string_at(8)
    except OSError:
        os._exit(3)
def long_power(): return pow(3, 10**8)
def say(text):
    print(text)
    print(text, file=sys.stderr)
def three(): yield from range(3)
def picky(number):
    if number == 20: raise ValueError(number)
    if number == 60: os._exit(9)
    return number
'''
PROGRAM = """
import json, os, sys, time
sys.path.insert(0, os.path.dirname(__file__))
import jobs, necropsy
from necropsy import Contained, Crashed, contain
from necropsy.contain import process
from necropsy.errors import NecropsyError

process._WRITTEN_S = 60.0  # on a busy machine the worker writes its stacks later

def died(function, *args, **limits):
    try:
        return contain(function, **limits)(*args)
    except Crashed as crashed:
        gaps = [gap.why for gap in crashed.report.gaps]
        for report in crashed.report.reports:
            gaps += [gap.why for gap in report.gaps]
        return {"class": type(crashed).__name__, "rule": crashed.rule, "code": crashed.exit_code, "text": str(crashed),
                "python": [frame["function"] for frame in crashed.python], "gap": any("not traced" in gap for gap in gaps)}

found = {"added": contain(jobs.add)(1, b=5), "values": list(contain(jobs.three)())}
contain(jobs.say)("wörds")
try:
    contain(jobs.fail)("x")
except KeyError as error:
    found["error"] = [*error.args, "in fail" in str(error.__cause__)]
found["null"] = died(jobs.read_null)
found["left"] = died(os._exit, 3)
found["ended"] = died(sys.exit, 4)
found["aborted"] = died(os.abort)
found["swallowed"] = died(jobs.swallowed)
found["late"] = died(jobs.long_power, timeout=2)
try:
    contain(jobs.add, memory=1 << 20)(1)
except NecropsyError as error:
    found["memory"] = str(error)
bad = []
with Contained(workers=2) as pool:
    found["kept"] = len(list(pool.map(jobs.picky, range(100), errors="quarantine", quarantine=bad)))
found["bad"] = [[one.index, type(one.error).__name__, getattr(one.error, "exit_code", None)] for one in bad]
found["again"] = contain(jobs.add)(1)
print(json.dumps(found))
"""
KILLED = """
import os, subprocess, sys
import ctypes
if len(sys.argv) > 1:
    sys.path.insert(0, os.path.dirname(__file__))
    import jobs
    from necropsy import contain
    print(contain(os.getpid)(), flush=True)
    contain(jobs.long_power)()
with subprocess.Popen([sys.executable, __file__, "caller"], stdout=subprocess.PIPE, text=True) as caller:
    worker = int(caller.stdout.readline())
    kernel = ctypes.windll.kernel32
    kernel.OpenProcess.restype = ctypes.c_void_p
    handle = kernel.OpenProcess(0x100000, 0, worker)
    lives = kernel.WaitForSingleObject(ctypes.c_void_p(handle), 0)
    caller.kill()
    print(bool(handle), lives, kernel.WaitForSingleObject(ctypes.c_void_p(handle), 60000))
"""
TIMEOUT = 0x102


def run(folder: Path, text: str) -> wine.Completed:
    (folder / "jobs.py").write_text(JOBS, encoding="utf-8")
    (folder / "program.py").write_text(text, encoding="utf-8")
    return wine.run(wine.python(), wine.windows_path(folder / "program.py"), env={"PYTHONIOENCODING": "utf-8"})


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[wine.Completed, dict[str, Any]]:
    done = run(tmp_path_factory.mktemp("contain"), PROGRAM)
    assert done.code32 == 0, done
    return done, json.loads(done.stdout.splitlines()[-1])


def test_calls_return_and_raise_and_their_output_is_the_callers(ran: tuple[wine.Completed, dict[str, Any]]) -> None:
    done, found = ran
    assert (found["added"], found["values"], found["error"], found["again"]) == (6, [0, 1, 2], ["x", True], 2)
    assert done.stdout.splitlines()[0] == "wörds"
    assert "wörds" in done.stderr


def test_a_death_has_the_name_of_its_exit_code_and_the_python_line(ran: tuple[wine.Completed, dict[str, Any]]) -> None:
    _, found = ran
    null = found["null"]
    assert (null["class"], null["rule"], null["code"]) == ("Crashed", "invalid-read", -1073741819)
    assert null["python"] == ["read_null"] and null["gap"]
    assert (found["left"]["rule"], found["left"]["code"]) == ("exit-status-only", 3)
    assert found["ended"]["code"] == 4 and found["ended"]["gap"]
    # wine's C runtime ends abort() with 3.
    assert (found["aborted"]["rule"], found["aborted"]["code"]) == ("abort", 3)


def test_a_fault_that_was_survived_is_not_taken_for_the_end(ran: tuple[wine.Completed, dict[str, Any]]) -> None:
    swallowed = ran[1]["swallowed"]
    assert (swallowed["rule"], swallowed["code"], swallowed["python"]) == ("exit-status-only", 3, [])


def test_a_call_that_takes_too_long_says_where_it_stood(ran: tuple[wine.Completed, dict[str, Any]]) -> None:
    late = ran[1]["late"]
    assert (late["class"], late["rule"], late["python"]) == ("TimedOut", "hang", ["long_power"])
    assert "did not return within 2 s; it was in long_power" in late["text"]


def test_records_are_quarantined_and_memory_is_refused(ran: tuple[wine.Completed, dict[str, Any]]) -> None:
    _, found = ran
    assert found["kept"] == 98
    assert found["bad"] == [[20, "ValueError", None], [60, "Crashed", 9]]
    assert "Linux only" in found["memory"]


def test_no_worker_outlives_a_killed_caller_even_while_c_code_holds_the_gil(tmp_path: Path) -> None:
    done = run(tmp_path, KILLED)
    assert done.stdout.split() == ["True", str(TIMEOUT), "0"], done
