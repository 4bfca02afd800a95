"""What is read without click is read as click would; and the start of a run loads nothing that it does not need."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from necropsy.cli import run as run_command
from necropsy.cli import start
from necropsy.reporting import ReportRequest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="click reads all of it elsewhere")

WORDS = (
    *("--quiet", "--always", "--python-locals", "--full-memory", "--log", "--log=tap", "--log=", "--log=nothing"),
    *("-m", "-mthis", "-m=this", "--", "-", "-h", "--help", "--json", "--timeout", "--quiet=1", "--qui", "--confirm"),
    *("auto", "off", "probe", "pipe", "python", "a.b", "5", "", "é", "\udcff", "-x", "--unknown", "--no-debug"),
)


def by_click(words: list[str], monkeypatch: pytest.MonkeyPatch) -> start.RunCommand | None:
    """What reaches ``start.run``; None where click complains or does something else."""
    seen: list[start.RunCommand] = []

    def take(wanted: start.RunCommand, _failure: Path | None) -> int:
        seen.append(wanted)
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(start, "run", take)
        patch.setattr(run_command, "first_then_prove", lambda *_: 0)
        try:
            run_command.run.main(args=list(words), prog_name="necropsy run", standalone_mode=False)
        except click.ClickException:
            return None
    return seen[0] if seen else None


@settings(max_examples=500, deadline=None)
@given(words=st.lists(st.sampled_from(WORDS), max_size=6))
def test_whatever_is_understood_is_what_click_understands(words: list[str]) -> None:
    ours = start.understood(words)
    if ours is not None:
        with pytest.MonkeyPatch.context() as patch:
            assert ours == by_click(words, patch)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["true"], {"command": ("true",)}),
        (["--", "--quiet"], {"command": ("--quiet",)}),
        (["--quiet", "python", "-c", "pass", "--log"], {"command": ("python", "-c", "pass", "--log"), "quiet": True}),
        (["--log", "off", "--always", "x"], {"command": ("x",), "log": "off", "always": True}),
        (["--log=pty", "x"], {"command": ("x",), "log": "pty"}),
    ],
)
def test_the_plain_forms_need_no_click(words: list[str], expected: dict[str, Any]) -> None:
    found = start.understood(words)
    assert found is not None
    assert found == start.RunCommand(
        ReportRequest(**{name: value for name, value in expected.items() if name in ReportRequest._fields}),
        **{name: value for name, value in expected.items() if name not in ReportRequest._fields},
    )


def test_a_module_and_its_options() -> None:
    found = start.understood(["--quiet", "-m", "pkg.module", "--log", "x"])
    assert found is not None and found.report.quiet
    assert found.report.command[1:] == ("-m", "pkg.module", "--log", "x")


@pytest.mark.parametrize(
    "words", [[], ["--log"], ["--json", "x", "true"], ["--help"], ["-h"], ["--log", "pipe", "true"]]
)
def test_the_rest_is_for_click(words: list[str]) -> None:
    assert start.understood(words) is None


NOT_NEEDED = {
    *("click", "jinja2", "platformdirs", "capstone", "drgn", "tempfile", "socket", "selectors", "shutil", "tomllib"),
    *("ahocorasick_rs", "asyncio", "subprocess", "concurrent.futures", "email"),
    *("necropsy.document", "necropsy.reports", "necropsy.diagnose", "necropsy.reports.text", "necropsy.rules"),
    *("necropsy.store", "necropsy.cli.commands", "necropsy.capture.linux.inspect.crash_builder"),
}


@pytest.mark.parametrize("form", [["-m", "necropsy"], ["-c", "from necropsy.cli import main; main()"]])
def test_a_healthy_run_loads_no_more_than_it_needs(form: list[str]) -> None:
    """In all of its processes, from the first to the last: each of them prints what it imports."""
    argv = [sys.executable, "-X", "importtime", *form, "run", "/bin/true"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "necropsy.capture.linux.supervise.tracer" in loaded
    assert not loaded & NOT_NEEDED


# Each process writes down what it imports as it does so: the reader is killed when it has read.
LOGGED = """
import os, sys
class Log:
    def find_spec(self, name, path=None, target=None):
        file = os.open(os.environ["WALK"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{name}\\n".encode())
        os.close(file)
sys.meta_path.insert(0, Log())
from necropsy.cli import main
sys.argv[0] = "necropsy"
sys.exit(main())
"""
MOST_MODULES = 127
"""Besides the rules, from argv to the printed report of a null read (127 when this was written); the aim is 90."""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, to build the program that dies")
def test_few_modules_lead_from_argv_to_the_report(tmp_path: Path) -> None:
    source = tmp_path / "null.c"
    source.write_text("int main(void) { return *(volatile int *)0; }")
    subprocess.run(["gcc", "-o", str(tmp_path / "null"), str(source)], check=True)
    environment = os.environ | {"NECROPSY_OUTPUT": str(tmp_path / "kept"), "WALK": str(tmp_path / "walk")}
    command = [sys.executable, "-c", LOGGED, "run", str(tmp_path / "null")]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False, env=environment)
    loaded = {name for name in (tmp_path / "walk").read_text().split() if name.startswith("necropsy.")}
    assert done.returncode == -signal.SIGSEGV
    assert b"null pointer" in done.stderr
    assert {"necropsy.cli.start", "necropsy.diagnose", "necropsy.capture.linux.inspect.crash_builder"} <= loaded
    packages = {name.rpartition(".")[0] for name in loaded}
    modules = {name for name in loaded - packages if not name.startswith("necropsy.rules.")}
    assert len(modules) <= MOST_MODULES, sorted(modules)


def test_a_death_is_told_all_the_same(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "necropsy", "run", "sh", "-c", "kill -SEGV $$"]
    environment = {"PATH": "/usr/bin:/bin", "NECROPSY_OUTPUT": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert done.returncode == -11
    assert "SIGSEGV" in done.stderr
    assert list(tmp_path.iterdir())
