"""The measurement of what supervision costs: its yardstick, its accounting, and every row of it in small."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
WORKLOADS = BENCHMARKS / "workloads"
SECONDS = 120

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None, reason="Linux and a C compiler are needed"
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the C programs of the workloads."""
    folder = tmp_path_factory.mktemp("programs")
    for source in WORKLOADS.glob("*.c"):
        if source.stem != "unit":
            flags = ("-O1", "-Wall", "-Wextra", "-Werror", "-pthread")
            subprocess.run(["cc", *flags, "-o", folder / source.stem, source], check=True)
    return folder


def ended(command: Sequence[str | Path]) -> tuple[int, bytes, bytes]:
    done = subprocess.run(command, check=False, capture_output=True, timeout=SECONDS)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        "{}/threads sequence 50",
        "{}/threads alive 50",
        "{}/processes fork 20",
        "{}/processes spawn 20",
        "{}/signals handled 100",
        "{}/signals faults 100",
        "{}/lines 10",
        "sh -c 'echo one; echo two >&2; exit 7'",
        "sh -c 'kill -TERM $$'",
        "sh -c 'kill -ABRT $$'",
        "sh -c 'exec sh -c \"exit 3\"'",
        "sh -c '(sleep 0.1; echo late) & exit 4'",
        "/no/such/program",
    ],
)
def test_bare_tracer_is_transparent(programs: Path, command: str) -> None:
    words = ["sh", "-c", f"exec {command.format(programs)}"]
    code, out, err = ended(words)
    assert ended([programs / "bare_tracer", *words]) == (code, out, err)


def test_bare_tracer_traces_children_and_threads(programs: Path) -> None:
    script = (
        "import subprocess, threading, pathlib, os\n"
        "def traced(): print(pathlib.Path('/proc/thread-self/status').read_text().partition('TracerPid:')[2].split()[0])\n"
        "thread = threading.Thread(target=traced); thread.start(); thread.join()\n"
        "print(os.getppid())\n"
        "subprocess.run(['sh', '-c', 'while read name value rest; do [ $name = TracerPid: ] && echo $value; done < /proc/self/status; true'])\n"
    )
    # Its own output is unbuffered, so that the lines come in this order.
    done = subprocess.run(
        [programs / "bare_tracer", sys.executable, "-u", "-c", script], check=True, capture_output=True, timeout=SECONDS
    )
    thread, tracer, child = done.stdout.split()
    assert thread == child == tracer


def test_bare_tracer_lets_a_stop_last_until_the_program_is_continued(programs: Path) -> None:
    process = subprocess.Popen(
        [programs / "bare_tracer", "sh", "-c", "echo $$; kill -STOP $$; echo resumed"], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    with process, process.stdout:
        command = int(process.stdout.readline())
        stat = Path(f"/proc/{command}/stat")
        # A traced process shows t both while its tracer is at it and in a group-stop; it stays there, and says nothing.
        deadline = time.monotonic() + SECONDS
        while stat.read_text().rpartition(") ")[2][0] not in "tT":
            assert time.monotonic() < deadline
            time.sleep(0.01)
        looks = set()
        for _ in range(20):
            time.sleep(0.01)
            looks.add(stat.read_text().rpartition(") ")[2][0])
        assert looks <= set("tT")
        os.kill(command, signal.SIGCONT)
        assert process.stdout.read() == b"resumed\n"
    assert process.returncode == 0


def metered(folder: Path, command: Sequence[str], limit_s: float) -> dict[str, Any]:
    """What meter.py says of a command, and whether it has children left; in a process of its own: it adopts orphans."""
    script = (
        "import dataclasses, json, os, pathlib, sys, meter\n"
        "meter.adopt()\n"
        "folder, limit, *command = sys.argv[1:]\n"
        "found = meter.measure(command, pathlib.Path(folder), os.environ, stderr='file', limit_s=float(limit))\n"
        "print(json.dumps(dataclasses.asdict(found)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, folder, str(limit_s), *command],
        check=True,
        capture_output=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS)},
    )
    result: dict[str, Any] = json.loads(done.stdout)
    return result


BURN = "import time\nwhile time.process_time() < 0.3: pass"


def test_processes_that_outlive_their_parents_are_counted(tmp_path: Path) -> None:
    orphan = f"import os, sys\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: exec({BURN!r})\nos._exit(5)"
    found = metered(tmp_path, [sys.executable, "-c", orphan], SECONDS)
    assert (found["code"], found["late"]) == (5, False)
    assert found["cpu_s"] >= 0.3


def test_a_run_that_takes_too_long_is_ended_with_all_its_processes(tmp_path: Path) -> None:
    endless = f"8639{os.getpid()}"
    command = ["sh", "-c", f"sleep {endless} & sh -c 'sleep {endless} & true'; exec setsid -w sleep {endless}"]
    assert metered(tmp_path, command, 1)["late"]
    assert [path for path in Path("/proc").glob("[0-9]*/cmdline") if endless.encode() in words_of(path)] == []


def words_of(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:  # it has ended
        return []


def rows_of(found: Path, *words: str) -> dict[str, Any]:
    command = [sys.executable, str(BENCHMARKS / "cost.py"), "--quick", "--runs", "1", "--json", str(found), *words]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=SECONDS * 5)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(found.read_text())
    for name, row in result.items():
        assert f"| {row['title']} |" in done.stdout, name
    return result


def names() -> list[str]:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "cost.py"), "--only", "?"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1
    return done.stderr.strip().partition("there are: ")[2].split(", ")


def failures(rows: dict[str, Any], variants: set[str]) -> dict[str, Any]:
    """The rows that did not run to their end in every way that was asked for, but for what is not installed."""
    return {
        name: row
        for name, row in rows.items()
        if not row["missing"].endswith("is not installed")
        and (set(row["cells"]) != variants or any(cell["failure"] for cell in row["cells"].values()))
    }


def test_every_workload_runs(tmp_path: Path) -> None:
    heavy = ("lines", "tensorflow")
    expected = {name for name in names() if not name.startswith(heavy)}
    asked = [word for name in sorted(expected) for word in ("--only", name)]
    rows = rows_of(tmp_path / "figures", "--variants", "tracer,necropsy", *asked)
    assert set(rows) == {*expected, "start-up"}
    assert failures(rows, {"tracer", "necropsy"}) == {}


def test_every_log_mode_runs(tmp_path: Path) -> None:
    page = tmp_path / "limits.md"
    shutil.copy(BENCHMARKS.parent / "docs" / "explanation" / "limits.md", page)
    words = ("--summary", str(page), "--out", str(tmp_path / "RESULTS.md"), "--only", "lines")
    rows = rows_of(tmp_path / "figures", "--variants", "plain,necropsy", *words)
    assert set(rows) == {"start-up", *(name for name in names() if name.startswith("lines"))}
    assert failures(rows, {"plain", "necropsy"}) == {}
    for row in rows.values():
        assert f"| {row['title']} |" in page.read_text()
        assert f"| {row['title']} |" in (tmp_path / "RESULTS.md").read_text()


@pytest.mark.tensorflow
@pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed")
def test_importing_tensorflow_runs(tmp_path: Path) -> None:
    rows = rows_of(tmp_path / "figures", "--variants", "fallback", "--only", "tensorflow")
    assert failures(rows, {"fallback"}) == {}


def test_a_section_of_the_results_is_replaced_and_the_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    put = importlib.import_module("results").put
    page = tmp_path / "RESULTS.md"
    put(page, "# One\n\n| a |\n")
    put(page, "# Two\n\n| b |\n\n## part\n")
    put(page, "# One\n\n| c \\1 |\n")
    assert page.read_text() == "# One\n\n| c \\1 |\n\n# Two\n\n| b |\n\n## part\n"
