"""What a profile marks on the time line of a process: rises with the line that ran, children, jumps of threads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from necropsy.capture.linux.inspect.running_line import RunningPython
from necropsy.capture.process.python_stacks import PythonStackError
from necropsy.model import PythonPlace

MIB = 1 << 20
# Each line that takes memory goes on for longer than an interval.
PROGRAM = """
import subprocess, sys, threading, time

def load():
    held.append(bytearray(60 << 20)); time.sleep(0.7)

held = []
time.sleep(0.3)
load()
time.sleep(0.3)
gate = threading.Event()
threads = [threading.Thread(target=gate.wait, daemon=True) for _ in range(9)]
for one in threads: one.start()
worker = threading.Thread(target=load)
worker.start()
worker.join()
time.sleep(0.3)
child = subprocess.Popen([sys.executable, "-c", "import time; held = bytearray(30 << 20); time.sleep(0.5)"])
print(child.pid, flush=True)
child.wait()
"""


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path, dict[str, Any], str]:
    """The child's process, the program's file, the document, and the text."""
    folder = tmp_path_factory.mktemp("marks")
    program, file = folder / "program.py", folder / "profile.json"
    program.write_text(PROGRAM)
    words = [sys.executable, "-m", "necropsy", "profile", "--interval", "0.05", "--json", str(file), "--"]
    done = subprocess.run(
        [*words, sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout), program, json.loads(file.read_bytes()), done.stderr


def marks(process: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [one for one in process["marks"] if one["kind"] == kind]


def test_rises_have_the_line_that_took_the_memory(profiled: tuple[int, Path, dict[str, Any], str]) -> None:
    _, program, document, text = profiled
    own = document["processes"][0]
    wanted = {"function": "load", "file": str(program), "line": 5}
    # On a busy machine, a rise is seen in parts. The second one ran in a thread of its own.
    steps = [one for one in marks(own, "step") if one["bytes"] > 15 * MIB]
    assert [one["python"] for one in steps] == [wanted] * len(steps), own["marks"]
    assert sum(one["bytes"] for one in steps) > 100 * MIB
    (peak,) = marks(own, "peak")
    assert peak["bytes"] == pytest.approx(own["peaks"]["rss"], rel=0.02)
    assert peak["python"] == wanted
    assert f"/{program.name}:5 in load" in text


def test_children_and_threads_are_marked_when_they_came(profiled: tuple[int, Path, dict[str, Any], str]) -> None:
    child, _, document, _ = profiled
    own, other = document["processes"]
    assert [one["pid"] for one in marks(own, "child")] == [child] == [other["pid"]]
    assert 0 < marks(own, "child")[0]["at"] < own["wall_s"]
    assert max(one["count"] for one in marks(own, "threads")) >= 10
    assert [one["at"] for one in own["marks"]] == sorted(one["at"] for one in own["marks"])
    assert not marks(other, "child")


def test_the_tree_is_the_sum_of_its_processes(profiled: tuple[int, Path, dict[str, Any], str]) -> None:
    _, _, document, text = profiled
    own, child = document["processes"]
    most = max(own["memory_of_tree"], key=lambda one: one["rss"])
    assert most["processes"] == 2
    assert most["rss"] == pytest.approx(own["peaks"]["rss"] + child["peaks"]["rss"], rel=0.1)
    assert any(one["pss"] is not None and one["pss"] < one["rss"] for one in own["memory_of_tree"])
    assert child["memory_of_tree"] is None
    assert "Together with its child processes" in text


def test_a_child_that_is_about_to_execute_a_program_is_not_counted(tmp_path: Path) -> None:
    program, file = tmp_path / "starts.py", tmp_path / "profile.json"
    program.write_text(
        "import os, time\n"
        "held = bytearray(100 << 20)\n"
        "for _ in range(40):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        time.sleep(0.03)\n"
        "        os.execv('/bin/true', ['true'])\n"
        "    os.waitpid(child, 0)\n"
    )
    words = [sys.executable, "-m", "necropsy", "profile", "--interval", "0.3", "--json", str(file), "--"]
    command = [*words, sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    own = json.loads(file.read_bytes())["processes"][0]
    assert max(one["rss"] for one in own["memory_of_tree"]) < 170 * MIB
    assert max(one["rss"] for one in own["memory_of_tree"]) > 100 * MIB


def test_page_faults_count_what_was_touched(profiled: tuple[int, Path, dict[str, Any], str]) -> None:
    _, _, document, _ = profiled
    points = document["processes"][0]["memory"]
    faults = [one["minor_faults"] for one in points if one["minor_faults"] is not None]
    assert faults == sorted(faults)
    # Huge pages are touched as a whole, so there may be fewer than pages.
    assert faults[-1] > faults[0]


def test_a_program_without_python_has_no_line() -> None:
    with subprocess.Popen(["sleep", "20"]) as other:
        try:
            with pytest.raises(PythonStackError):
                RunningPython(other.pid)
        finally:
            other.kill()


def test_a_package_is_not_named_but_the_line_that_called_it(tmp_path: Path) -> None:
    program = tmp_path / "calls.py"
    program.write_text("import queue\nprint(flush=True)\nqueue.Queue().get(timeout=20)\n")
    with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE) as other:
        try:
            assert other.stdout is not None
            other.stdout.readline()
            python = RunningPython(other.pid)
            found = next(one for one in iter(python.line, "") if one is not None and one.line == 3)
            python.close()
        finally:
            other.kill()
    assert found == PythonPlace(function="<module>", file=str(program), line=3)


ARRAYS = """
import time
import numpy

def load(batch, api_key, count):
    doubled = numpy.empty((count, 1 << 20)); doubled[:] = 1; time.sleep(0.6)
    print(len(doubled), flush=True)
    time.sleep(0.4)

time.sleep(0.3)
load(numpy.zeros((32, 7, 5), "float32"), numpy.zeros(9), 12)
"""


def test_rises_have_the_arrays_of_the_function_with_their_shapes(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    program, file = tmp_path / "arrays.py", tmp_path / "profile.json"
    program.write_text(ARRAYS)
    words = ["profile", "--interval", "0.05", "--json", str(file), "--html", str(tmp_path / "page.html"), "--"]
    command = [sys.executable, "-m", "necropsy", *words, sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (own,) = json.loads(file.read_bytes())["processes"]
    step = max(marks(own, "step"), key=lambda one: one["bytes"])
    assert step["python"]["function"] == "load"
    doubled = {
        "name": "doubled",
        "count": None,
        "type": "numpy.ndarray",
        "dtype": "float64",
        "shape": [12, 1 << 20],
        "bytes": 96 * MIB,
    }
    batch = {**doubled, "name": "batch", "dtype": "float32", "shape": [32, 7, 5], "bytes": 4480}
    assert step["arrays"] == [doubled, batch], "and not the one whose name says that it is a secret"
    (peak,) = marks(own, "peak")
    assert peak["arrays"] == step["arrays"]
    assert "doubled: float64 [12, 1048576], 96 MiB" in done.stderr
    assert "batch: float32 [32, 7, 5]" in (tmp_path / "page.html").read_text()
