"""``necropsy.enable()``: programs die for real, and are reported while they are held."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forbidding import FORBID
from necropsy.reports import user_line
from necropsy.watch import client
from test_crashers_unprivileged import WITHOUT_CAPABILITIES, without_rights
from watching import facts, is_gone, kept, program, rules

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the watcher is for Linux")

SCENARIO = """
tell(first=necropsy.enable(), again=necropsy.enable())
tell(tracer=tracer(), hub=hub(), folder=os.path.dirname(os.environ["NECROPSY_WATCHER"]))

def fault():
    tell(child=necropsy.enable())
    crash()

def check():
    sys.stderr.write("F0000 00:00:00.000000 1 shape.cc:12] Check failed: n > 0 (0 vs. 1)\\n")
    sys.stderr.flush()
    os.abort()

def off():
    tell(before=tracer(), disabled=necropsy.disable(), twice=necropsy.disable(), after=tracer())
    crash()

def hidden():
    necropsy.enable(show=False, keep=False)
    os.kill(os.getpid(), signal.SIGILL)

def execs():
    os.execv("/bin/sh", ["sh", "-c", "kill -BUS $$"])

for name, step in {"fault": fault, "check": check, "off": off, "hidden": hidden, "execs": execs}.items():
    pid, status = dies(name, step)
    document = watch.report(pid, 60)
    said = document.reports[0].verdict.rule if document is not None and document.reports else None
    tell(**{name: [os.WTERMSIG(status), said]})

tell(healthy=[dies("exit", lambda: os._exit(0))[1], watch.report(1, 0.2) is None])
threading.Thread(target=crash).start()
time.sleep(60)
"""


@pytest.fixture(scope="module", params=["as it is", "without capabilities"])
def scenario(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One program with children, all of which die in their own ways, and the folder of its stderr and reports."""
    before: list[str] = []
    if request.param != "as it is":
        if without_rights() is None:
            pytest.skip("only root has rights to give up")
        before = ["setpriv", *WITHOUT_CAPABILITIES]
    folder = tmp_path_factory.mktemp("scenario")
    process = program(SCENARIO, folder, before)
    return folder, {**facts(process), "returncode": process.returncode, "pid": process.pid}


def test_enable_says_that_the_process_is_watched(scenario: tuple[Path, dict[str, Any]]) -> None:
    _, found = scenario
    assert found["first"] is found["again"] is found["child"] is True
    assert found["tracer"]


def test_every_death_is_reported_to_who_asks(scenario: tuple[Path, dict[str, Any]]) -> None:
    _, found = scenario
    assert found["fault"] == [11, "null-dereference"]
    assert found["check"] == [6, "check-failed"]
    assert found["hidden"] == [4, "ended-by-its-own-call"]
    assert found["execs"] == [7, "killed-by-signal"]
    assert found["healthy"] == [0, True]


def test_a_process_that_is_watched_no_longer_dies_without_a_report(scenario: tuple[Path, dict[str, Any]]) -> None:
    _, found = scenario
    assert found["before"] and not found["after"]
    assert found["disabled"] is found["twice"] is True
    assert found["off"] == [11, None]


def test_reports_are_kept_and_shown_each_once(scenario: tuple[Path, dict[str, Any]]) -> None:
    folder, found = scenario
    assert found["returncode"] == -11
    assert rules(folder) == ["check-failed", "killed-by-signal", "null-dereference", "null-dereference"]
    shown = (folder / "stderr").read_text(encoding="utf-8")
    assert shown.count("Full report") == 4
    for document in kept(folder):
        assert shown.count(document.id[-8:]) == 1
        assert user_line.headline(document.reports[0]).split()[0] in shown


def test_the_last_report_is_there_before_the_process_is_gone(scenario: tuple[Path, dict[str, Any]]) -> None:
    folder, found = scenario
    last = kept(folder)[-1]
    assert last.reports[0].pid == found["pid"]
    assert last.reports[0].crash.exit is not None and last.reports[0].crash.exit.signal == "SIGSEGV"


def test_the_watcher_ends_with_its_last_client_and_leaves_nothing(scenario: tuple[Path, dict[str, Any]]) -> None:
    _, found = scenario
    assert is_gone(found["tracer"])
    assert is_gone(found["hub"])
    assert not Path(found["folder"]).exists()


def test_under_necropsy_run_the_outer_one_reports(tmp_path: Path) -> None:
    process = program("tell(ok=necropsy.enable(), hub='NECROPSY_WATCHER' in os.environ)\ncrash()\n", tmp_path, RUN)
    assert facts(process) == {"ok": True, "hub": False}
    assert rules(tmp_path) == ["null-dereference"]


RUN = (sys.executable, "-m", "necropsy", "run")
TRACED = """
import os, sys
from necropsy.capture.linux.supervise import ptrace
read, write = os.pipe()
child = os.fork()
if not child:
    os.read(read, 1)
    os.execv(sys.argv[1], sys.argv[1:])
ptrace.seize(child, 0)
os.write(write, b"x")
while True:
    _, status = os.waitpid(child, ptrace.WALL)
    if not os.WIFSTOPPED(status):
        os._exit(os.waitstatus_to_exitcode(status))
    ptrace.cont(child, os.WSTOPSIG(status) if os.WSTOPSIG(status) != 5 else 0)
"""


@pytest.mark.parametrize(
    ("before", "why"),
    [
        ((sys.executable, "-c", TRACED), "traces it already"),
        ((sys.executable, "-c", FORBID, "101", "1"), "this system does not allow ptrace"),
        ((sys.executable, "-c", FORBID, "41", "1"), "PermissionError"),
    ],
    ids=["another tracer", "no ptrace", "no sockets"],
)
def test_where_watching_is_not_possible_a_warning_says_why(before: tuple[str, ...], why: str, tmp_path: Path) -> None:
    process = program("tell(ok=necropsy.enable(), twice=necropsy.enable())\nos.abort()\n", tmp_path, before)
    assert facts(process) == {"ok": False, "twice": False}
    assert process.returncode in {-6, 250}
    warned = (tmp_path / "stderr").read_text(encoding="utf-8")
    assert warned.count("this process is not watched") == 2
    assert why in warned


def test_on_other_systems_a_warning_says_so(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert client.enable() is False
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "not on darwin" in caplog.text


def test_a_process_that_runs_is_watched_with_its_children_from_the_command_line(tmp_path: Path) -> None:
    text = """
child = os.fork()
tell(child=child)
sys.stdin.readline()
if not child:
    os.abort()
os.wait()
crash()
"""
    process = program(text, tmp_path)
    words = [sys.executable, "-m", "necropsy", "enable", str(process.pid)]
    environment = {**os.environ, "NECROPSY_OUTPUT": str(tmp_path / "reports")}
    environment.pop(client.VARIABLE, None)  # a watcher of other tests keeps its reports elsewhere
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"process {process.pid} is watched" in done.stderr
    assert process.stdin is not None
    process.stdin.write("\n\n")
    facts(process)
    shown = (tmp_path / "stderr").read_text(encoding="utf-8")
    assert rules(tmp_path) == ["ended-by-its-own-call", "null-dereference"], shown


def test_a_process_that_does_not_exist_is_one_line_and_66() -> None:
    words = [sys.executable, "-m", "necropsy", "enable", str(2**22 + 1)]
    done = subprocess.run(words, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 66
    assert len(done.stderr.splitlines()) == 1
