"""Campaigns in several processes: their findings become one document, and a process that is lost costs its campaign only."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import needs
from necropsy.fuzz.jobs import fuzzed_by_jobs
from necropsy.fuzz.op_campaigns import Options, checked
from necropsy.fuzz.recorded_calls import Recorded
from necropsy.fuzz.slot import Slot, Unit
from necropsy.model import Document

pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="workers are forked"), needs.command("gcc")]

SOURCE = "int at(const int *rows, long row) { return rows[row]; }"
BINDINGS = """
import ctypes
from pathlib import Path

native = ctypes.CDLL(str(Path(__file__).parent / "native.so"))
rows = (ctypes.c_int * 4)(1, 2, 3, 4)


def at(row: int) -> int:
    return native.at(rows, ctypes.c_long(row))
"""


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "native.c").write_text(SOURCE)
    subprocess.run(["gcc", "-g", "-shared", "-fPIC", "-o", "native.so", "native.c"], check=True)
    (tmp_path / "bindings.py").write_text(BINDINGS)
    return checked(Options(calls=80, budget_s=120, guard="off"))


def rules_of(document: Document) -> list[str]:
    assert document.fuzz is not None
    return [one.rule for one in document.fuzz.findings]


def test_what_several_seeds_find_is_one_finding_with_one_test(options: Options, tmp_path: Path) -> None:
    (tmp_path / "tests" / "fuzz").mkdir(parents=True)
    (tmp_path / "tests" / "fuzz" / "test_at.py").write_text("# the user's own\n")
    said: list[str] = []
    document, interrupt = fuzzed_by_jobs("bindings.py:at", options, 2, said.append)
    assert interrupt is None
    assert document.complete
    assert rules_of(document) == ["invalid-read"]
    assert document.fuzz is not None
    (finding,), (target,) = document.fuzz.findings, document.fuzz.targets
    assert target.executions >= 2 * 80
    assert finding.times == target.deaths
    assert len(document.reports) == 1
    tests = sorted((tmp_path / "tests" / "fuzz").iterdir())
    assert len(tests) == 2
    assert finding.test in {f"tests/fuzz/{one.name}" for one in tests}
    assert tests[0].read_text() == "# the user's own\n"
    assert any(re.match(r"[01] of 2 campaigns are done; ", one) for one in said)


def test_a_process_that_is_killed_costs_nothing_but_its_campaign(options: Options) -> None:
    killed: list[int] = []

    class Mortal(Slot):
        def run(self, unit: Unit, first: Recorded, watch: Callable[[str], None]) -> tuple[Document, bool]:
            if not killed:
                killed.append(self._process.pid)
                os.kill(self._process.pid, signal.SIGKILL)
            return super().run(unit, first, watch)

    document, _ = fuzzed_by_jobs("bindings.py:at", options, 2, lambda _text: None, Mortal)
    assert rules_of(document) == ["invalid-read"]
    assert document.complete
    assert [gap.part for gap in document.gaps if f"process {killed[0]}" in gap.why] == ["jobs"]


def test_ctrl_c_ends_all_of_them_in_order(options: Options) -> None:
    began = threading.Event()

    def press() -> None:
        began.wait()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    slots: list[Slot] = []

    def slot(target: str, options: Options) -> Slot:
        slots.append(Slot(target, options))
        return slots[-1]

    endless = Options(budget_s=600, guard="off", python=options.python)
    document, interrupt = fuzzed_by_jobs("bindings.py:at", endless, 2, lambda _text: began.set(), slot)
    assert isinstance(interrupt, KeyboardInterrupt)
    assert not document.complete
    assert all(one._process.returncode == 0 for one in slots)


def test_processes_end_with_who_started_them(options: Options, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "necropsy", "fuzz", "--jobs", "2", "--budget", "600", "bindings.py:at"]
    parent = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.DEVNULL)
    while len(slots := _below(parent.pid)) < 2:
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{one}").exists() for one in slots) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [one for one in slots if Path(f"/proc/{one}").exists()]


def _below(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
