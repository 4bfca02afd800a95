"""The walk in a process of its own: it may crash, hang, print, and be refused; and the command `doctor --data`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest

import necropsy
import standing
from necropsy import serialize
from necropsy.cli.dataset import _Bar
from necropsy.dataset.answering import answer
from necropsy.dataset.journal import Progress
from necropsy.errors import InputError, NoInputError
from necropsy.reports import dataset as reports
from necropsy.validation import check_target

PROGRAM = """
import ctypes, multiprocessing, time
import numpy as np

def good():
    print("the program's own words")
    for place in range(50):
        yield {"x": np.full(3, place, np.float32), "y": place % 10}

def crashes():
    for place in range(400):
        if place == 300:
            ctypes.string_at(0)
        yield np.full(3, np.nan if place in (20, 290) else place, np.float32)

def hangs():
    yield np.zeros(3)
    open(__file__ + ".stands", "w").close()
    time.sleep(600)

def loses_a_worker():
    yield 1.0
    worker = multiprocessing.get_context("fork").Process(target=ctypes.string_at, args=(0,))
    worker.start()
    worker.join()
    raise RuntimeError(f"worker {worker.pid} is gone")

def raises():
    raise OSError("no such folder")

def empty():
    return []

def number():
    return 5

SIZE = 5
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "made.py").write_text(PROGRAM)
    (tmp_path / "broken.py").write_text("import not_there\n")
    return tmp_path


def doctor(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "necropsy", "doctor", "--python", sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.skipif(sys.platform != "linux", reason="the cause of a death is seen on Linux")
def test_what_was_seen_outlives_a_crash(program: Path) -> None:
    done = doctor(program, "--data", "made:crashes", "--format", "json")
    document = serialize.loads(done.stdout.encode())
    crash, nan = document.findings
    assert (done.returncode, document.kind, crash.rule) == (1, "dataset", "data-crash")
    assert crash.summary.startswith("The pipeline killed its process while element 300 was fetched")
    assert crash.evidence[1].claim == "null-dereference, certain"
    # Those of the last batch too, which had not been checked when the process died.
    assert (nan.rule, nan.evidence[1].seen) == ("data-nan", "2 of 300 elements")
    assert document.reports[0].verdict is not None
    for form in ("text", "markdown", "html"):
        shown = reports.render(document, form)
        assert "data-crash" in shown and "null-dereference" in shown


@pytest.mark.skipif(sys.platform != "linux", reason="the cause of a death is seen on Linux")
def test_an_exception_because_of_a_dead_worker_is_that_ones_death(program: Path) -> None:
    (found,) = check_target(f"{program / 'made.py'}:loses_a_worker", sys.executable).findings
    assert found.rule == "data-crash"
    assert found.summary.startswith("The pipeline lost a worker process while element 1 was fetched")
    assert "null-dereference" in {one.claim.split(",")[0] for one in found.evidence}


def test_stdout_is_the_documents(program: Path) -> None:
    done = doctor(program, "--data", "made.py:good", "--format", "json", "--json", "kept.json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["findings"]) == (0, [])
    assert document["dataset"]["elements"] == 50
    assert "the program's own words" in done.stderr
    assert json.loads((program / "kept.json").read_text()) == document
    again = subprocess.run(
        [sys.executable, "-m", "necropsy", "open", "kept.json"],
        capture_output=True,
        text=True,
        check=False,
        cwd=program,
    )
    assert "Spec, inferred from the first 32 elements\n  ['x']  float32 (3,), 0 to 49\n" in again.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="the cause of a death is seen on Linux")
def test_a_walk_that_hangs_is_stopped(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def command(report: Path, deadline: float) -> list[str]:
        assert deadline > time.time() + 900
        words = standing.necropsy(program / "made.py.stands")
        return [*words, "run", "--quiet", "--json", str(report), "--timeout", standing.NEVER, "--"]

    monkeypatch.setattr("necropsy.supervised.command", command)
    document = check_target(f"{program / 'made.py'}:hangs", sys.executable, timeout=1000)
    assert document.dataset is not None and document.dataset.ended == "timeout"
    assert not document.findings
    assert "while element 1 was being fetched" in document.gaps[0].why


@pytest.mark.parametrize(
    ("target", "code", "says"),
    [
        ("made:nothing", 66, "made has no nothing"),
        ("nowhere:train", 66, "the module nowhere was not found"),
        ("nowhere.py:train", 66, "nowhere.py does not exist"),
        ("made", 66, "not of the form MODULE:FUNCTION"),
        ("broken:train", 65, "importing broken failed"),
        ("made:empty", 65, "no elements"),
        ("made:number", 65, "int cannot be iterated"),
        ("made:SIZE", 65, "int cannot be iterated"),
    ],
)
def test_what_cannot_be_checked(
    program: Path, monkeypatch: pytest.MonkeyPatch, target: str, code: int, says: str
) -> None:
    monkeypatch.syspath_prepend(str(program))
    monkeypatch.chdir(program)
    monkeypatch.delitem(sys.modules, "made", raising=False)
    refused = answer({"target": target})["refused"]
    assert refused["code"] == code
    assert says in refused["text"]


@pytest.mark.parametrize(("target", "code"), [("made:nothing", 66), ("made:empty", 65)])
def test_it_is_told_in_a_line(program: Path, target: str, code: int) -> None:
    done = doctor(program, "--data", target)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1


def test_a_function_that_raises_is_a_finding(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(program))
    monkeypatch.delitem(sys.modules, "made", raising=False)  # another test's, in the same worker
    made = __import__("made")
    (found,) = necropsy.check_dataset(made.raises).findings
    assert (found.rule, found.evidence[0].seen) == ("data-error", "no such folder")
    assert (found.evidence[0].where or "").endswith("in raises")


def test_a_script_is_not_checked_while_it_is_imported(tmp_path: Path) -> None:
    program = (
        "import necropsy\n\ndef train():\n    return [1.0, 2.0]\n\nprint(necropsy.check_dataset(train).findings)\n"
    )
    (tmp_path / "script.py").write_text(program)
    done = subprocess.run([sys.executable, "script.py"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "put the call below if __name__ == '__main__':" in done.stderr


def test_wrong_arguments() -> None:
    with pytest.raises(InputError, match=r"names .*z.*, which no element has; there is: \['x'\]"):
        necropsy.check_dataset([{"x": 1.0}], ranges={"['z']": (0, 1)})
    with pytest.raises(InputError, match="empty"):
        necropsy.check_dataset([1.0], ranges={"": (1, 0)})
    with pytest.raises(InputError, match="pair"):
        necropsy.check_dataset([1.0], ranges={"": cast("tuple[float, float]", "01")})
    with pytest.raises(InputError, match="limit"):
        necropsy.check_dataset([1.0], limit=0)
    with pytest.raises(InputError, match="dtype"):
        necropsy.check_dataset([1.0], "float32")
    with pytest.raises(NoInputError, match="interpreter no-such-python was not found"):
        check_target("a:b", "no-such-python")


def test_the_bar_says_how_far_it_is() -> None:
    line = _Bar("data:train").line(Progress(first=300, step=1, total=600, phase=1, wrong=2, bytes=3e6))
    assert line == "data:train [##########----------] 300 of 600 elements, 3 MB, 2 kinds of faults"
    assert _Bar("data:train").line(Progress(300, 1, 0, 1, 0, 3e6)) == "data:train 300 elements, 3 MB"


class Maker:
    def __init__(self) -> None:
        self.values = [1.0, float("nan")]

    def elements(self) -> list[float]:
        return self.values


def test_what_only_this_process_has_is_walked_over_here() -> None:
    for made in (Maker().elements, lambda: Maker().values, Maker().values):
        assert [one.rule for one in necropsy.check_dataset(made).findings] == ["data-nan"]
