"""Deaths while modules are imported, and in plugins: each is reported, and there is no loop."""

from __future__ import annotations

from pathlib import Path

import pytest

from inner_pytest import CRASH, run, write


def test_a_module_that_dies_is_a_collection_error(tmp_path: Path) -> None:
    write(
        tmp_path,
        test_dies="print('seen before')\nos.abort()\n",
        test_lives="def test_lives(): pass\n",
        below__conftest=CRASH + "crash()\n",
        below__test_below="def test_below(): pass\n",
    )
    stopped = run(tmp_path, "--necropsy")
    assert stopped.code == 2
    assert "collected 2 items / 2 errors" in stopped.text
    assert "ERROR collecting test_dies.py" in stopped.text
    assert "ERROR collecting below/conftest.py" in stopped.text
    assert "during the import of test_dies.py" in stopped.text
    assert "test_dies.py:4: in <module>" in stopped.text
    assert "null-dereference" in stopped.text
    assert "seen before" in stopped.text
    assert "_pytest" not in stopped.text
    assert stopped.text.count("test session starts") == 1
    others = run(tmp_path, "--necropsy", "--continue-on-collection-errors", "-q")
    assert others.code == 1
    assert "1 passed, 2 errors" in others.text


def test_the_first_conftest_dies_before_anything_is_printed(tmp_path: Path) -> None:
    write(tmp_path, conftest="os.abort()\n", test_one="def test_one(): pass\n")
    outcome = run(tmp_path, "--necropsy")
    assert outcome.code == 2
    assert "ERROR collecting conftest.py" in outcome.text
    assert outcome.text.count("test session starts") == 1


HOOKS = """
if os.environ["DIES"] == "exit":
    import atexit
    atexit.register(os.abort)

def pytest_configure():
    os.environ["DIES"] != "configure" or os.abort()

def pytest_runtest_logreport(report):
    os.environ["DIES"] != "report" or not report.failed or os.abort()

def pytest_sessionfinish():
    os.environ["DIES"] != "finish" or os.abort()
"""


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("configure", "while pytest was being configured"),
        ("report", "between two tests"),
        ("finish", "while the session was being finished"),
        ("exit", "while Python was ending"),
    ],
)
def test_a_death_that_is_no_tests_ends_the_run(tmp_path: Path, where: str, said: str) -> None:
    write(tmp_path, conftest=HOOKS, test_one="def test_one(): assert os.environ['DIES'] != 'report'\n")
    outcome = run(tmp_path, "--necropsy", variables={"DIES": where})
    assert outcome.code == 134
    assert f"was killed by SIGABRT {said}" in outcome.text
    assert "os.abort()" in outcome.text.partition("necropsy: a crash outside the tests")[2]
