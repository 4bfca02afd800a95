"""`--necropsy-profile`: which tests fail because they left too little of a stack."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from inner_pytest import Outcome, run, write

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux")
SUITE = """
import json, threading
sys.setrecursionlimit(10**6)
def nested(levels): return json.loads("[" * levels + "]" * levels)
SIZE = 1 << 20
asked, done = threading.Event(), threading.Event()
def work():
    asked.wait()
    nested(6500)
    done.set()
    threading.Event().wait()
threading.stack_size(SIZE)
threading.Thread(target=work, daemon=True).start()
def test_flat(): pass
def test_deep(): nested(60_000)
def test_no_deeper(): nested(60_000)
def test_in_a_thread():
    asked.set()
    done.wait()
def test_fails():
    nested(62_000)
    assert False
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = write(tmp_path_factory.mktemp("left"), test_left=SUITE)
    return run(folder, "--necropsy-profile=25")


def test_only_what_a_test_adds_counts(outcome: Outcome) -> None:
    came = {name.partition(".")[2]: found for name, found in outcome.tests.items()}
    assert came == {
        "test_flat": ["passed"],
        "test_deep": ["failure"],
        "test_no_deeper": ["passed"],
        "test_in_a_thread": ["failure"],
        "test_fails": ["failure"],
    }
    assert outcome.code == 1


def test_the_failure_says_which_stack_and_how_much_was_left(outcome: Outcome) -> None:
    failed = outcome.failures
    assert "necropsy: main used" in failed["test_left.test_deep"]
    assert "left, less than 25%. Before the test, it had used" in failed["test_left.test_deep"]
    assert "of its stack of 1 MiB during this test" in failed["test_left.test_in_a_thread"]
    assert "assert False" in failed["test_left.test_fails"], "a test that fails anyway keeps its own reason"


def test_what_is_no_share_is_one_line(tmp_path: Path) -> None:
    for word in ("0", "100", "much"):
        outcome = run(write(tmp_path, test_one="def test_one(): pass\n"), f"--necropsy-profile={word}")
        assert outcome.code == 4
        assert "give a number of per cent" in outcome.text
        assert "Traceback" not in outcome.text
