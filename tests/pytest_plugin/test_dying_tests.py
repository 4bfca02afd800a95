"""One run of a suite in which tests die in every way, and what it says of them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from inner_pytest import CRASH, Outcome, run, write

# Its skips and expected failures are test material: the plugin must leave their outcomes as they are.
SUITE = f"""
import warnings
{CRASH}
HOME = []

@pytest.fixture(scope="session")
def server():
    HOME.append(os.getpid())
    return os.getpid()

@pytest.fixture
def dies():
    print("in the setup")
    crash()

@pytest.fixture
def dies_later():
    yield
    crash()

def test_before(server):
    assert server == os.getpid()

def test_segfault(server):
    print("words on stdout")
    print("words on stderr", file=sys.stderr)
    crash()

def test_after(server):
    "Session fixtures are made anew."
    assert server == os.getpid() and HOME == [os.getpid()]
    warnings.warn("a warning that was seen")

def test_fails():
    assert False, "an ordinary failure"

@pytest.mark.parametrize("name", ["a b", "\\u00fc/\\u00f6", "[x]"])
def test_odd(name):
    if "/" in name:
        os.abort()

def test_setup(dies):
    pass

def test_teardown(dies_later):
    print("the body ran")

def test_leaves():
    os._exit(0)

def test_killed():
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.skip(reason="not today")
def test_skipped():
    pass

@pytest.mark.xfail(reason="known")
def test_expected():
    assert False

@pytest.mark.xfail(reason="known to crash")
def test_expected_crash():
    os.abort()

def test_child_dies():
    assert subprocess.run([sys.executable, "-c", "import os; os.abort()"]).returncode == -signal.SIGABRT

import unittest

class TestOld(unittest.TestCase):
    def setUp(self):
        self.ready = True

    def test_dies(self):
        crash()

    def test_lives(self):
        self.assertTrue(self.ready)

def test_last(server):
    assert server == os.getpid()
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = write(tmp_path_factory.mktemp("suite"), test_kinds=SUITE)
    return run(folder, "--necropsy", "--necropsy-report=reports")


def test_each_dead_test_is_one_failure_and_the_others_run(outcome: Outcome) -> None:
    assert outcome.code == 1
    assert outcome.tests == {
        "test_kinds.test_before": ["passed"],
        "test_kinds.test_segfault": ["failure"],
        "test_kinds.test_after": ["passed"],
        "test_kinds.test_fails": ["failure"],
        "test_kinds.test_odd[a b]": ["passed"],
        "test_kinds.test_odd[\\xfc/\\xf6]": ["failure"],
        "test_kinds.test_odd[[x]]": ["passed"],
        "test_kinds.test_setup": ["error"],
        "test_kinds.test_teardown": ["error"],
        "test_kinds.test_leaves": ["failure"],
        "test_kinds.test_killed": ["failure"],
        "test_kinds.test_skipped": ["skipped"],
        "test_kinds.test_expected": ["skipped"],
        "test_kinds.test_expected_crash": ["skipped"],
        "test_kinds.test_child_dies": ["passed"],
        "test_kinds.TestOld.test_dies": ["failure"],
        "test_kinds.TestOld.test_lives": ["passed"],
        "test_kinds.test_last": ["passed"],
    }
    assert "6 failed, 8 passed, 1 skipped, 2 xfailed, 1 warning, 2 errors" in outcome.text


def test_it_looks_like_one_session(outcome: Outcome) -> None:
    assert "test_kinds.py .F.F.F.E.EFFsxx.F.." in outcome.text
    for once in ("test session starts", "collected 18 items", "= FAILURES =", "a warning that was seen"):
        assert outcome.text.count(once) == (2 if "warning" in once else 1), once
    assert "Fatal Python error" not in outcome.text


def test_a_failure_says_why_the_process_died(outcome: Outcome) -> None:
    text = outcome.failures["test_kinds.test_segfault"]
    assert text.startswith("necropsy: null-dereference: ")
    assert "string_at" in text
    assert "was killed by SIGSEGV during the call of test_kinds.py::test_segfault" in text
    frames = re.findall(r"^(\S+):\d+: in (\w+)$", text, re.MULTILINE)
    assert frames[:2] == [("test_kinds.py", "test_segfault"), ("test_kinds.py", "crash")]
    assert not any("_pytest" in file for file, _ in frames)


def test_what_it_had_written_is_under_the_usual_headings(outcome: Outcome) -> None:
    after = outcome.text.partition("____ test_segfault ____")[2].partition("____ test_fails ____")[0]
    assert re.search(
        r"-- Captured stdout call -+\nwords on stdout\n-+ Captured stderr call -+\nwords on stderr\n", after
    )
    assert re.search(r"-- Captured stdout setup -+\nin the setup\n", outcome.text)
    assert re.search(r"-- Captured stdout call -+\nthe body ran\n", outcome.text)


def test_the_end_of_each_is_named(outcome: Outcome) -> None:
    assert "exit code 0" in outcome.failures["test_kinds.test_leaves"]
    assert "os._exit(0)" in outcome.failures["test_kinds.test_leaves"]
    assert "killed-by-signal" in outcome.failures["test_kinds.test_killed"]
    assert "SIGKILL" in outcome.failures["test_kinds.test_killed"]
    assert "during the setup of" in outcome.failures["test_kinds.test_setup"]
    assert "during the teardown of" in outcome.failures["test_kinds.test_teardown"]
    name = "TestOld.test_dies" if sys.version_info >= (3, 11) else "test_dies"
    assert f"in {name}\n" in outcome.failures["test_kinds.TestOld.test_dies"]


def test_each_report_is_written_twice(outcome: Outcome, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = next(tmp_path_factory.getbasetemp().glob("suite*")) / "reports"
    names = sorted(path.name for path in folder.iterdir())
    documents = {Path(name).stem for name in names}
    assert len(documents) == 7  # all but os._exit(0)
    assert names == sorted(f"{one}{ending}" for one in documents for ending in (".json", ".md"))
