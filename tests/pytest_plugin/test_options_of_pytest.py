"""The options of pytest do with deaths what they do with failures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from inner_pytest import run, write

SUITE = """
def test_first(): pass
def test_dies():
    print("words")
    os.abort()
def test_other():
    os._exit(3)
def test_last(): pass
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("options"), test_some=SUITE)


def test_maxfail_counts_deaths(folder: Path) -> None:
    outcome = run(folder, "--necropsy", "-x")
    assert outcome.code == 1
    assert list(outcome.tests) == ["test_some.test_first", "test_some.test_dies"]
    assert "stopping after 1 failures" in outcome.text


def test_output_that_is_captured_in_memory_is_shown_and_there_is_no_debugger(folder: Path) -> None:
    outcome = run(folder, "--necropsy", "--capture=sys", "--pdb", "-k", "first or dies")
    assert re.search(r"-- Captured stdout call -+\nwords\n", outcome.text)
    assert "There is no debugger" in outcome.text


def test_alone(folder: Path) -> None:
    write(folder, alone="LEFT = []\ndef test_leaves(): LEFT.append(1)\ndef test_needs(): LEFT and os.abort()\n")
    outcome = run(folder, "--necropsy-alone", "-s", "alone.py", "test_some.py", "-k", "leaves or needs or other")
    assert "it passes alone (1 test ran before it in its process: alone.py::test_leaves)" in outcome.text
    assert "it crashes alone (it ends with exit code 3)" in outcome.text


def test_without_the_terminal_by_ini_and_by_the_environment(folder: Path) -> None:
    for words, variables in (
        (["-p", "no:terminal", "-o", "necropsy=true"], {}),
        (["-q"], {"NECROPSY_PYTEST": "1"}),
    ):
        outcome = run(folder, *words, "test_some.py", variables=variables)
        assert [one for ends in outcome.tests.values() for one in ends] == ["passed", "failure", "failure", "passed"]


def test_github_actions_get_an_annotation_and_a_summary(folder: Path) -> None:
    summary = folder / "summary.md"
    variables = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary), "GITHUB_WORKSPACE": str(folder)}
    outcome = run(folder, "--necropsy", "test_some.py", "-k", "dies", variables=variables)
    assert re.search(r"^::error file=test_some.py,line=7,", outcome.text, re.MULTILINE)
    assert "test_some.py" in summary.read_text()


def test_contradictions_are_usage_errors(folder: Path) -> None:
    write(folder, forking="def pytest_addoption(parser): parser.addoption('--forked', action='store_true')\n")
    outcome = run(folder, "-p", "forking", "--necropsy", "--forked", variables={"PYTHONPATH": str(folder)})
    assert outcome.code == 4
    said = outcome.text.strip()
    if pytest.version_tuple < (8,):  # of each such error, pluggy says something as well
        said = said.splitlines()[-1].strip()
    assert said == "ERROR: --necropsy and --forked contradict each other: both contain a test that crashes"


def _plain(text: str) -> str:
    return re.sub(r"\d+\.\d\ds", "TIME", text)


def test_without_a_crash_the_output_is_the_same(folder: Path) -> None:
    write(
        folder,
        healthy="import warnings\ndef test_a(): warnings.warn('w')\ndef test_b(): assert 0\n"
        "@pytest.mark.skip\ndef test_c(): pass\ndef test_d(tmp_path): print(1)\n",
    )
    for words in (("-v", "-rA", "--durations=1", "--durations-min=60"), ("-q", "-s")):
        plain, ours = (run(folder, *more, *words, "healthy.py") for more in ((), ("--necropsy",)))
        assert _plain(ours.text) == _plain(plain.text)
        assert ours.code == plain.code
