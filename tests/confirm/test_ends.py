"""Ends that no experiment is known for, and where the experiments of a death are shown."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from confirming import confirmed, necropsy, script, verdict

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")


@pytest.mark.parametrize(
    ("code", "options", "status"),
    [
        ("raise ValueError(3)", (), 1),
        ("import os; os.kill(os.getpid(), 15)", (), -signal.SIGTERM),
        ("import os; os.kill(os.getpid(), 9)", (), -signal.SIGKILL),
        ("import time; time.sleep(100)", ("--timeout", "5"), 124),
        ("import not_there", (), 1),
    ],
    ids=["exception", "sigterm", "sigkill", "time", "import"],
)
def test_an_end_without_an_experiment_is_run_once_and_stays_as_it_was(
    tmp_path: Path, code: str, options: tuple[str, ...], status: int
) -> None:
    source = script(tmp_path, f"open('ran', 'a').write('x')\n{code}\n")
    done = necropsy("run", "--confirm", "--yes", *options, "--", sys.executable, source, cwd=tmp_path)
    assert done.returncode == status
    assert (tmp_path / "ran").read_text() == "x"
    assert "no experiment is known" in done.stderr or "Full report" not in done.stderr
    assert "a defect of necropsy" not in done.stderr


def test_every_format_shows_what_was_tried(tmp_path: Path) -> None:
    source = script(tmp_path, "import ctypes\nctypes.string_at(0)\n")
    document, text = confirmed(tmp_path, sys.executable, source)
    rows = verdict(document).experiments
    assert [row.name for row in rows[:2]] == ["unchanged", "one-thread"]
    assert all(row.predicts and row.outcome and row.rule != "" for row in rows)
    shown = {
        form: necropsy("show", "--full", "--format", form, cwd=tmp_path).stdout
        for form in ("text", "markdown", "html", "json")
    }
    shown["run"] = text
    for form, said in shown.items():
        plain = " ".join(said.split())
        assert "one thread in each pool" in plain, form
        assert "dies in the same way" in plain, form


def test_a_second_campaign_of_the_same_program_waits_for_no_other(tmp_path: Path) -> None:
    """Two at once would make each other's runs: the second says so, and runs nothing."""
    source = script(
        tmp_path,
        "import ctypes, os, time\nopen('ran', 'a').write('x')\n"
        "while os.path.exists('wait'): time.sleep(0.05)\nctypes.string_at(0)\n",
    )
    necropsy("run", "--", sys.executable, source, cwd=tmp_path)
    wait = tmp_path / "wait"  # the first campaign's first run lasts until the second one has had its answer
    wait.touch()
    words = [sys.executable, "-m", "necropsy", "confirm", "--yes", "--runs", "3", "--timeout", "600"]
    environment = {"NECROPSY_OUTPUT": str(tmp_path / "reports"), "PATH": "/usr/bin:/bin"}
    first = subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    try:
        journals = tmp_path / "reports" / "campaigns"
        while not list(journals.glob("*/journal.jsonl")) and first.poll() is None:
            signal.sigtimedwait((), 0.02)
        second = necropsy("confirm", "--yes", cwd=tmp_path)
    finally:
        wait.unlink()
        first.wait(600)
    assert second.returncode != 0
    assert "another campaign works in" in second.stderr
    assert (tmp_path / "ran").read_text() == "x" * (1 + 3)
