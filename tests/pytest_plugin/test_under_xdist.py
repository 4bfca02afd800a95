"""pytest-xdist with workers that die: the same results, each dead test fails once, and nothing waits for ever."""

from __future__ import annotations

import importlib
import re
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from inner_pytest import CRASH, run, write
from necropsy.pytest_plugin import xdist_scheduling

SUITE = f"""
{CRASH}
@pytest.fixture(scope="module")
def home():
    return os.getpid()

@pytest.mark.parametrize("n", range(4))
def test_some(n, home):
    assert home == os.getpid()
    if n == 2:
        print("words of the worker")
        crash()

class TestMore:
    def test_first(self):
        os._exit(0)

    def test_last(self):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("mode", ["load", "loadfile"])
def test_each_dead_test_fails_once(tmp_path: Path, mode: str) -> None:
    write(tmp_path, test_workers=SUITE, test_dead_module="os.abort()\n")
    outcome = run(tmp_path, "--necropsy", "-n2", f"--dist={mode}", "--continue-on-collection-errors")
    assert outcome.code == 1
    assert outcome.tests == {
        **{f"test_workers.test_some[{n}]": ["failure" if n == 2 else "passed"] for n in range(4)},
        "test_workers.TestMore.test_first": ["failure"],
        "test_workers.TestMore.test_last": ["failure"],
        ".test_dead_module": ["error"],
    }
    text = outcome.failures["test_workers.test_some[2]"]
    assert text.startswith("necropsy: null-dereference: ")
    assert re.search(r"The worker 'gw\d+' \(process \d+\) was killed by SIGSEGV during the call of", text)
    assert "in crash" in text
    assert re.search(r"-- Captured stdout call -+\nwords of the worker\n", outcome.text)
    assert outcome.text.count("ERROR collecting test_dead_module.py") == 1


RUNS_AGAIN = """
DIED = []
def pytest_handlecrashitem(crashitem, report, sched):
    if crashitem not in DIED:
        DIED.append(crashitem)
        sched.mark_test_pending(crashitem)
        report.outcome = "rerun"
def pytest_report_teststatus(report):
    if report.outcome == "rerun":
        return "rerun", "R", "RERUN"
"""
DIES_ONCE = """
LEFT = []
def test_leaves(): LEFT.append(1)
def test_needs(): LEFT and os.abort()
@pytest.mark.xdist_group("some")
def test_own(): os._exit(3)
def test_last(): pass
"""


@pytest.mark.parametrize("mode", ["loadfile", "loadgroup"])
def test_a_dead_test_is_run_alone_and_again(tmp_path: Path, mode: str) -> None:
    """As pytest-rerunfailures does it, with what pytest-xdist offers for that."""
    write(tmp_path, test_again=DIES_ONCE, conftest=RUNS_AGAIN)
    outcome = run(tmp_path, "--necropsy-alone", "-n2", f"--dist={mode}", "-q")
    assert outcome.code == 1
    (dead,) = (name for name, ends in outcome.tests.items() if "failure" in ends)
    assert dead.removesuffix("@some") == "test_again.test_own"  # the group, where pytest-xdist adds it to the name
    assert re.search(r"1 failed, 3 passed, [12] rerun", outcome.text)  # one, where each test has a worker of its own
    assert "crashes alone (it ends with exit code 3)" in outcome.failures[dead]
    assert "Fatal Python error" not in outcome.text


def test_what_had_run_in_the_worker_is_named(tmp_path: Path) -> None:
    write(tmp_path, test_alone=DIES_ONCE)
    outcome = run(tmp_path, "--necropsy-alone", "-n1", "-k", "leaves or needs")
    text = outcome.failures["test_alone.test_needs"]
    assert "it passes alone (1 test ran before it in its process: test_alone.py::test_leaves)" in text


def test_maxfail_counts_dead_workers(tmp_path: Path) -> None:
    write(tmp_path, test_workers="@pytest.mark.parametrize('n', range(40))\ndef test_n(n): n or os.abort()\n")
    outcome = run(tmp_path, "--necropsy", "-n1", "-x")
    assert "stopping after 1 failures" in outcome.text
    assert outcome.code in {1, 2}


class _Node:
    shutting_down = False
    gateway = SimpleNamespace(spec="popen", id="gw0")

    def __init__(self) -> None:
        self.sent: list[int] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def send_runtest_all(self) -> None:
        pass

    def shutdown(self) -> None:
        self.shutting_down = True


def by_file(pytestconfig: pytest.Config, *, workers: int) -> Any:
    """The scheduler of ``--dist loadfile``, corrected."""
    kind: Any = importlib.import_module("xdist.scheduler").LoadFileScheduling
    plain = kind.__new__(kind)  # its own start reads how many workers the session has
    plain.__dict__.update(numnodes=workers, collection=None, log=lambda *_: None, config=pytestconfig)
    plain.__dict__.update(workqueue=OrderedDict(), assigned_work=OrderedDict(), registered_collections={})
    return xdist_scheduling.corrected(plain)


def test_a_scope_goes_on_after_the_test_that_died_and_its_last_test_is_run(pytestconfig: pytest.Config) -> None:
    scheduler = by_file(pytestconfig, workers=1)
    tests = ["a.py::one", "a.py::two", "b.py::only"]
    first, second = _Node(), _Node()
    scheduler.add_node(first)
    scheduler.add_node_collection(first, tests)
    scheduler.schedule()
    scheduler.mark_test_complete(first, 0)
    scheduler.add_node(second)
    assert scheduler.remove_node(first) == "a.py::two"
    assert second.sent == []  # it has not collected yet
    scheduler.add_node_collection(second, tests)
    scheduler.schedule()
    assert second.sent == [2]
    assert second.shutting_down


def test_a_test_that_runs_again_comes_after_the_rest_of_its_scope(pytestconfig: pytest.Config) -> None:
    scheduler = by_file(pytestconfig, workers=2)
    tests = [f"{file}.py::{name}" for file in "abcdef" for name in ("one", "two")]
    first, second = _Node(), _Node()
    for node in (first, second):
        scheduler.add_node(node)
        scheduler.add_node_collection(node, tests)
    scheduler.schedule()
    assert scheduler.remove_node(first) == "a.py::one"
    while second.sent[-1] != 1:  # what is left of its scope
        scheduler.mark_test_complete(second, second.sent[0])
        del second.sent[0]
    scheduler.mark_test_pending("a.py::one")
    assert second.sent[-2:] == [1, 0]
    assert scheduler.remove_node(second) == tests[second.sent[0]]


def test_a_worker_gets_two_scopes_of_one_test(pytestconfig: pytest.Config) -> None:
    """It would wait for ever for a second test."""
    scheduler = by_file(pytestconfig, workers=1)
    tests = ["a.py::one", "b.py::one", "c.py::one"]
    first, second = _Node(), _Node()
    scheduler.add_node(first)
    scheduler.add_node_collection(first, tests)
    scheduler.schedule()
    assert scheduler.remove_node(first) == "a.py::one"
    scheduler.add_node(second)
    scheduler.add_node_collection(second, tests)
    scheduler.schedule()
    assert sorted(second.sent) == [1, 2]


def test_with_each_the_worker_that_takes_the_place_runs_it_again(pytestconfig: pytest.Config) -> None:
    kind: Any = importlib.import_module("xdist.scheduler").EachScheduling
    plain = kind.__new__(kind)
    plain.__dict__.update(numnodes=1, collection_is_completed=False, log=lambda *_: None, config=pytestconfig)
    plain.__dict__.update(node2collection={}, node2pending={}, _started=[], _removed2pending={})
    scheduler = xdist_scheduling.corrected(plain)
    first, second = _Node(), _Node()
    scheduler.add_node(first)
    scheduler.add_node_collection(first, ["a.py::one"])
    scheduler.schedule()
    assert scheduler.remove_node(first) == "a.py::one"
    scheduler.mark_test_pending("a.py::one")
    assert not scheduler.tests_finished
    scheduler.add_node(second)
    scheduler.add_node_collection(second, ["a.py::one"])
    scheduler.schedule()
    assert second.sent == [0]
