"""What GitHub's runner is told: read back as the runner reads it, by rules written down here from its documentation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from necropsy import github
from necropsy.model import Crash, Culprit, Diagnosis, Document, Evidence, Exit, Fix, PythonPlace, Report, Subject, Tool

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="`necropsy run` is for Linux")


def parsed(line: str) -> tuple[str, dict[str, str], str]:
    """Command, properties and message of a workflow command, decoded."""
    assert "\n" not in line
    assert "\r" not in line
    assert line.startswith("::")
    head, _, message = line[2:].partition("::")
    command, _, properties = head.partition(" ")
    pairs = dict(one.split("=", 1) for one in properties.split(",") if one)

    def decoded(text: str) -> str:
        for code, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            text = text.replace(code, char)
        return text

    return command, {name: decoded(value) for name, value in pairs.items()}, decoded(message)


def document(summary: str, file: str | None = None, deaths: int = 1) -> Document:
    verdict = Diagnosis(
        rule="null-dereference",
        title="t",
        summary=summary,
        severity="error",
        confidence="likely",
        evidence=(Evidence(claim="c", seen="s"),),
        culprit=Culprit(python=PythonPlace(file=file, line=7)) if file else None,
        fixes=(Fix(text="Look."),),
    )
    report = Report(crash=Crash(exit=Exit(kind="signaled", signal="SIGSEGV")), verdict=verdict)
    return Document(
        kind="run",
        id="i",
        tool=Tool(name="necropsy", version="0"),
        complete=True,
        subject=Subject(kind="process"),
        reports=(report,) * deaths,
    )


@pytest.mark.parametrize(
    "summary", ["plain", "50 % of it\r\nnext, line: x::y", "::set-output name=x::1", "a\n::error::b"]
)
def test_the_line_says_what_was_meant(summary: str) -> None:
    command, properties, message = parsed(github.annotation(document(summary)))
    assert command == "error"
    assert properties == {"title": "necropsy: null-dereference (likely)"}
    assert message == f"{summary}\nDo now: Look."


def test_the_line_is_at_its_place_where_it_is_in_the_workspace() -> None:
    said = github.annotation(document("s", "/w/repo/a,b:c/train.py"), "/w/repo")
    assert parsed(said)[1] == {"file": "a,b:c/train.py", "line": "7", "title": "necropsy: null-dereference (likely)"}
    assert "file" not in parsed(github.annotation(document("s", "/usr/lib/x.py"), "/w/repo"))[1]


def test_several_deaths_are_one_line() -> None:
    assert parsed(github.annotation(document("s", deaths=3)))[2].endswith("2 more deaths are in the report.")


def test_without_a_verdict() -> None:
    report = Report(crash=Crash(exit=Exit(kind="signaled", signal="SIGUSR1")))
    said = github.annotation(msgspec.structs.replace(document("s"), reports=(report,)))
    assert "was killed by SIGUSR1" in parsed(said)[2]


def test_the_summary_is_appended_within_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    variables = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(path)}
    path.write_text("before")
    github.tell(document("s"), variables)
    assert path.read_text().startswith("before\n### null-dereference (likely)")
    for present in (
        github.SUMMARY_LIMIT - 400,
        github.SUMMARY_LIMIT - 2,
        github.SUMMARY_LIMIT,
        github.SUMMARY_LIMIT + 9,
    ):
        path.write_bytes(b"x" * present)
        github.tell(document("\N{EURO SIGN}" * 100), variables)
        assert path.stat().st_size <= max(github.SUMMARY_LIMIT, present)
        path.read_text(encoding="utf-8")


def test_elsewhere_nothing_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "summary.md"
    github.tell(document("s"), {"GITHUB_STEP_SUMMARY": str(path)})
    assert capfd.readouterr() == ("", "")
    assert not path.exists()


@LINUX
@pytest.mark.parametrize("writable", [True, False])
def test_a_real_death(writable: bool, tmp_path: Path) -> None:
    path = tmp_path / "summary.md" if writable else tmp_path / "no" / "summary.md"
    program = tmp_path / "train.py"
    program.write_text("import ctypes\nctypes.string_at(16)\n")
    done = subprocess.run(
        [sys.executable, "-m", "necropsy", "run", sys.executable, str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env=os.environ
        | {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(path), "GITHUB_WORKSPACE": str(tmp_path)},
    )
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("::")]
    command, properties, message = parsed(line)
    assert (command, properties["file"], properties["line"]) == ("error", "train.py", "2")
    assert "null pointer" in message
    if writable:
        assert "### null-dereference" in path.read_text()
    else:
        assert "cannot write the summary for GitHub" in done.stderr.splitlines()[-1]
