"""`necropsy profile`: what it writes, and what it ends with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from necropsy import serialize

PROGRAM = "import time; keep = bytearray(30 << 20); time.sleep(0.3)"


def profile(*words: str | Path, program: str = PROGRAM) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "necropsy", "profile", *map(str, words), "--", sys.executable, "-c", program]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def test_the_page_is_written_beside_the_text(tmp_path: Path) -> None:
    page = tmp_path / "profile.html"
    ended = profile("--html", page, "--interval", "0.05")
    assert ended.returncode == 0
    assert "set by" in ended.stderr
    text = page.read_text(encoding="utf-8")
    assert "Resident memory over time" in text
    assert 'class="bar"' in text
    assert page.stat().st_mode & 0o077 == 0


def test_a_page_that_cannot_be_written_is_said_before_the_run(tmp_path: Path) -> None:
    ended = profile("--html", tmp_path / "none" / "page.html", program="print('ran')")
    assert (ended.returncode, ended.stdout) == (125, "")
    assert "nothing was run" in ended.stderr


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("old") / "old.json"
    assert profile("--quiet", "--json", path).returncode == 0
    return path


def test_growth_beyond_the_limit_ends_with_3_and_the_programs_own_failure_wins(old: Path, tmp_path: Path) -> None:
    words = ("--compare", old, "--fail-on", "growth=20%", "--json", tmp_path / "new.json")
    more = "keep = bytearray(60 << 20)"
    ended = profile(*words, program=more)
    assert ended.returncode == 3
    assert "failed: --fail-on growth=20%: resident memory grew by" in ended.stderr
    document = serialize.loads((tmp_path / "new.json").read_bytes())
    assert [one.condition for one in document.failed_checks or ()] == ["growth=20%"]
    assert document.comparison is not None
    assert any(one.what == "memory" for one in document.comparison.regressions)
    assert profile(*words, "--quiet", program=f"{more}; raise SystemExit(7)").returncode == 7
    assert profile(*words, "--quiet", program=f"{more}; import os; os.kill(os.getpid(), 15)").returncode == -15
    assert profile(*words, "--quiet", program="keep = bytearray(30 << 20)").returncode == 0


def test_a_finding_ends_with_3(tmp_path: Path) -> None:
    code = (
        "import resource, os, time; resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20)); "
        "keep = [os.dup(0) for _ in range(14)]; time.sleep(0.3)"
    )
    words = ("--interval", "0.05", "--fail-on", "near-fd-limit")
    ended = profile(*words, program=code)
    assert ended.returncode == 3
    assert "failed: --fail-on near-fd-limit: The process used" in " ".join(ended.stderr.split())
    assert profile(*words, "--quiet", program="pass").returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--fail-on", "near-stak-overflow"), 2, "Did you mean 'near-stack-overflow'?"),
        (("--fail-on", "growth=5%"), 2, "needs --compare"),
        (("--fail-on", "growth=x"), 2, "such as growth=10%"),
        (("--compare", "/nothing.json"), 66, "cannot read /nothing.json"),
        (("--compare", __file__), 65, "necropsy explain"),
    ],
)
def test_wrong_conditions_are_said_before_the_run(words: tuple[str, ...], code: int, said: str) -> None:
    ended = profile(*words, program="print('ran')")
    assert (ended.returncode, ended.stdout) == (code, "")
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_document_of_another_kind_is_no_profile(old: Path, tmp_path: Path) -> None:
    other = tmp_path / "run.json"
    other.write_text(old.read_text().replace('"kind": "profile"', '"kind": "run"', 1))
    ended = profile("--compare", other, program="print('ran')")
    assert (ended.returncode, ended.stdout) == (65, "")
    assert "is no profile" in ended.stderr
