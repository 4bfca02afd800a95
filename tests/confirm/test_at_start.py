"""Statements that an interpreter executes before the program: they are executed, or the run does not count."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from necropsy.confirm.runner import Runner, Target
from necropsy.model import Change

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")


def run(tmp_path: Path, program: str, *statements: str, options: tuple[str, ...] = ()) -> tuple[str, str | None]:
    script = tmp_path / "program.py"
    script.write_text(program)
    target = Target((sys.executable, *options, str(script)), tmp_path)
    done = Runner(target, tmp_path / "runs", 60).run(Change(at_start=statements))
    return done.outcome, done.why


def test_statements_come_before_the_program(tmp_path: Path) -> None:
    program = "import sys\nsys.exit(sys.getrecursionlimit() != 4321 or sys.flags.utf8_mode)"
    assert run(tmp_path, program)[0] == "another"
    assert run(tmp_path, program, "import sys", "sys.setrecursionlimit(4321)")[0] == "survives"


def test_the_sitecustomize_of_the_user_is_imported_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("import os\nos.environ['THEIRS'] = 'yes'\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "theirs"))
    program = """
import os, sys, sitecustomize
assert os.environ["THEIRS"] == "yes" and os.environ["OURS"] == "yes"
assert "theirs" in sitecustomize.__file__, sitecustomize.__file__
assert not any("preload" in path for path in sys.path), sys.path
"""
    assert run(tmp_path, program, "import os", "os.environ['OURS'] = 'yes'")[0] == "survives"
    assert "THEIRS" not in os.environ


def test_a_statement_that_fails_makes_it_a_run_that_does_not_count(tmp_path: Path) -> None:
    outcome, why = run(tmp_path, "", "import no_such_module_anywhere")
    assert (outcome, why) == ("cannot-run", "the interpreter could not do that at its start")


@pytest.mark.parametrize("option", ["-I", "-E", "-S", "-sE"])
def test_an_interpreter_that_would_not_listen_is_not_run(tmp_path: Path, option: str) -> None:
    outcome, why = run(tmp_path, "", "pass", options=(option,))
    assert outcome == "cannot-run"
    assert f"{option} does nothing before the program" in (why or "")
