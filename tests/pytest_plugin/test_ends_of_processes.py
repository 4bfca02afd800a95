"""The processes of ``pytest --necropsy`` are ended from outside, and tests use necropsy themselves."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from inner_pytest import PYTEST, run, write
from necropsy.capture.linux.supervise.traced_processes import state_of

WAITS = """
import time, pathlib
def wait():
    pathlib.Path("pid").write_text(str(os.getpid()))
    time.sleep(120)
"""
IN_A_TEST, AT_IMPORT = "def test_waits(): wait()\n", "wait()\n"
AFTER_A_DEATH = "def test_dies(): os.abort()\ndef test_waits(): wait()\n"
AT_THE_END = (
    "@pytest.fixture(autouse=True, scope='session')\ndef ends():\n    yield\n    wait()\ndef test_one(): pass\n"
)


@pytest.mark.parametrize(
    ("signo", "stage", "words"),
    [
        (signal.SIGTERM, IN_A_TEST, ()),
        (signal.SIGKILL, IN_A_TEST, ()),
        (signal.SIGINT, IN_A_TEST, ()),
        (signal.SIGTERM, AT_IMPORT, ()),
        (signal.SIGKILL, AFTER_A_DEATH, ("--necropsy-alone",)),
        (signal.SIGTERM, AT_THE_END, ()),
        (signal.SIGKILL, IN_A_TEST, ("-n1", "--necropsy-alone")),
        (signal.SIGTERM, IN_A_TEST, ("-n1",)),
    ],
    ids=["term", "kill", "int", "term-import", "kill-alone", "term-end", "kill-xdist", "term-xdist"],
)
def test_the_session_ends_with_the_process_that_was_started(
    tmp_path: Path, signo: signal.Signals, stage: str, words: tuple[str, ...]
) -> None:
    write(tmp_path, test_one=WAITS + stage)
    process = subprocess.Popen([*PYTEST, "--necropsy", "-q", *words], cwd=tmp_path, stdout=subprocess.PIPE)
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    session = int(_when_written(tmp_path / "pid"))
    assert session != process.pid
    process.send_signal(signo)
    assert process.wait(240) == (2 if signo == signal.SIGINT else -signo)
    assert process.stdout is not None
    process.stdout.read()  # whoever held it has ended
    process.stdout.close()
    while state_of(session) not in {None, "Z", "X"}:
        time.sleep(0.01)


def test_a_session_that_somebody_kills_goes_on_and_needs_none_of_its_helpers(tmp_path: Path) -> None:
    suite = """
import contextlib, pathlib, time
def kill(pid, signo):
    subprocess.run(["kill", f"-{int(signo)}", str(pid)])
    time.sleep(60)
def test_terminated(): kill(os.getpid(), signal.SIGTERM)
def test_killed(): kill(os.getpid(), signal.SIGKILL)
def test_kills_the_clerk():
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # any process of the machine may end meanwhile
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            if parent == os.getppid() and int(path.parent.name) != os.getpid():
                os.kill(int(path.parent.name), signal.SIGKILL)
def test_dies(): os.abort()
def test_lives(): pass
"""
    outcome = run(write(tmp_path, test_killed=suite), "--necropsy", "-q")
    assert [*outcome.tests.values()] == [["failure"], ["failure"], ["passed"], ["failure"], ["passed"]]
    assert "was killed by SIGTERM during the call" in outcome.failures["test_killed.test_terminated"]
    assert "was killed by SIGKILL during the call" in outcome.failures["test_killed.test_killed"]
    assert "was killed by SIGABRT during the call" in outcome.failures["test_killed.test_dies"]
    assert "the process that writes the reports has ended" in outcome.failures["test_killed.test_dies"]


def _when_written(path: Path) -> str:
    while not (text := path.read_text()):
        time.sleep(0.01)
    return text


def test_a_session_whose_watcher_is_killed_goes_on(tmp_path: Path) -> None:
    suite = """
import contextlib, pathlib
def test_kills_the_watchers():
    folder = os.path.dirname(os.environ["NECROPSY_WATCHER"])
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if folder.encode() in path.read_bytes():
                os.kill(int(path.parent.name), signal.SIGKILL)
def test_dies(): os.abort()
def test_dies_again(): ctypes.string_at(0)
def test_lives(): pass
"""
    outcome = run(write(tmp_path, test_killing=suite), "--necropsy", "-q")
    assert list(outcome.tests.values()) == [["passed"], ["failure"], ["failure"], ["passed"]]
    assert "was killed by SIGABRT" in outcome.failures["test_killing.test_dies"]
    assert "null-dereference" in outcome.failures["test_killing.test_dies_again"]


def test_death_tests_in_a_watched_session(tmp_path: Path) -> None:
    suite = """
import necropsy
def test_of_a_death():
    assert necropsy.raises_native(ctypes.string_at, 0, rule="null-dereference").signal == "SIGSEGV"
def test_dies():
    os.abort()
"""
    outcome = run(write(tmp_path, test_nested=suite), "--necropsy", "-q")
    assert outcome.tests == {"test_nested.test_of_a_death": ["passed"], "test_nested.test_dies": ["failure"]}


def test_a_pytest_in_a_test_is_no_second_session(tmp_path: Path) -> None:
    suite = """
pytest_plugins = "pytester"
def test_inner(pytester):
    pytester.makepyfile("def test_one(): pass")
    pytester.inline_run("--necropsy").assertoutcome(passed=1)
def test_dies():
    os.abort()
"""
    outcome = run(write(tmp_path, test_plugin=suite), "--necropsy", "-q")
    assert outcome.tests == {"test_plugin.test_inner": ["passed"], "test_plugin.test_dies": ["failure"]}


def test_where_nothing_can_be_traced_faulthandler_names_the_line(tmp_path: Path) -> None:
    write(tmp_path, test_one="def test_dies(): ctypes.string_at(0)\ndef test_lives(): pass\n")
    refused = (
        "from necropsy.watch import client\nclient.register = lambda **_: client.Answer(False, 'it is forbidden')\n"
    )
    write(tmp_path, forbids=refused)
    outcome = run(tmp_path, "-p", "forbids", "--necropsy", "test_one.py", variables={"PYTHONPATH": str(tmp_path)})
    assert outcome.tests == {"test_one.test_dies": ["failure"], "test_one.test_lives": ["passed"]}
    text = outcome.failures["test_one.test_dies"]
    assert "was killed by SIGSEGV" in text
    assert "in test_dies" in text
    assert "it was not watched: it is forbidden" in text
