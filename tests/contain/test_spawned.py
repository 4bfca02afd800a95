"""Workers that are new processes and that nobody traces, as on Windows and macOS: crashes are contained there, too."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import contain_jobs as jobs
from necropsy.contain import Contained, Crashed, Quarantined, TimedOut, calls, contain, process, spawned
from necropsy.contain.unreported import End

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="on Windows all workers are so")


@pytest.fixture(autouse=True)
def _spawning(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test has workers of its own."""
    monkeypatch.setattr(spawned, "SPAWNS", True)
    monkeypatch.setattr(calls, "_POOLS", {})
    monkeypatch.setattr(process, "_WRITTEN_S", 60.0)  # on a busy machine the worker writes its stacks later
    yield
    for pool in calls._POOLS.values():
        pool.close()


def test_a_call_returns_from_a_child_that_is_used_again(capfd: pytest.CaptureFixture[str]) -> None:
    first = contain(jobs.pid)()
    assert contain(jobs.parent)() == os.getpid() and contain(jobs.pid)() == first
    contain(jobs.say)("wörds")
    assert sorted(capfd.readouterr().out.split("\n")) == ["", "from C", "wörds"]
    assert list(contain(jobs.three)()) == [0, 1, 2]
    with pytest.raises(KeyError) as caught:
        contain(jobs.fail)("missing")
    assert "in fail" in str(caught.value.__cause__)


def test_a_death_has_its_signal_its_python_line_and_what_is_missing() -> None:
    with pytest.raises(Crashed) as caught:
        contain(jobs.crash)()
    crashed = caught.value
    assert (crashed.rule, crashed.signal, crashed.exit_code) == ("exit-status-only", "SIGSEGV", None)
    assert [frame["function"] for frame in crashed.python] == ["string_at", "crash"]
    assert crashed.report is not None
    (report,) = crashed.report.reports
    assert {gap.part for gap in report.gaps} >= {"fault", "registers", "modules"}
    assert "is not traced" in report.gaps[0].why
    assert contain(jobs.add)(1) == 2


def test_the_log_of_a_failed_check_and_an_exit_code() -> None:
    with pytest.raises(Crashed, match=r"shape\.dims\(\) == 2") as caught:
        contain(jobs.check_fails)()
    assert (caught.value.rule, caught.value.signal) == ("check-failed", "SIGABRT")
    with pytest.raises(Crashed, match="exit code 3") as caught:
        contain(jobs.leave)(3)
    assert (caught.value.exit_code, caught.value.signal) == (3, None)
    with pytest.raises(Crashed) as caught:
        contain(jobs.sys_exit)(4)
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("job", [jobs.busy_in_python, jobs.busy_in_c])
def test_a_call_that_takes_too_long_says_which_line_it_was_at(job: Callable[[], object]) -> None:
    name = getattr(job, "__name__", "")
    with pytest.raises(TimedOut, match=f"{name} did not return within 2 s; it was in {name}, ") as caught:
        contain(job, timeout=2)()
    assert [frame["function"] for frame in caught.value.python] == [name]


def test_records_that_crash_or_raise_are_quarantined() -> None:
    bad: list[Quarantined] = []
    with Contained(workers=2) as pool:
        results = list(pool.map(jobs.picky, range(300), errors="quarantine", quarantine=bad))
    assert len(results) == 297
    assert [(one.index, type(one.error)) for one in bad] == [(20, ValueError), (200, Crashed), (250, TypeError)]


def test_a_dump_counts_only_if_it_is_of_this_end() -> None:
    """A program may have survived a fault that faulthandler has told of."""
    dump = 'Fatal Python error: Aborted\n\nCurrent thread 0x0000012c (most recent call first):\n  File "a.py", line 3 in f\n'
    crashed = Crashed.of(End(4711, 3, unwatched="nobody traced it").document("", dump))
    assert (crashed.rule, crashed.exit_code) == ("abort", 3)
    assert [frame["function"] for frame in crashed.python] == ["f"]
    exited = End(4711, 4, unwatched="nobody traced it").document("", dump)
    killed = End(4711, -9, unwatched="nobody traced it").document("", dump)
    assert Crashed.of(exited).python == Crashed.of(killed).python == []


def test_no_worker_outlives_a_killed_caller_even_while_c_code_holds_the_gil() -> None:
    text = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent.parent)!r})
import contain_jobs as jobs
from necropsy.contain import contain
print(contain(jobs.pid)(), flush=True)
contain(jobs.busy_in_c)()
"""
    environment = {**os.environ, "NECROPSY_CONTAIN": "spawn"}
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, env=environment) as caller:
        assert caller.stdout is not None
        worker = int(caller.stdout.readline())
        caller.kill()
    until = time.monotonic() + 60
    while is_running(worker) and time.monotonic() < until:
        time.sleep(0.02)
    assert not is_running(worker)


def is_running(pid: int) -> bool:
    done = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip() not in {"", "Z"} and not done.stdout.startswith("Z")
