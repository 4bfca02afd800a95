"""Statements that an interpreter executes before the program: they are executed, or the run does not count."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import closing
from pathlib import Path

import pytest

from confirming import necropsy, script, verdict
from necropsy import serialize
from necropsy.confirm.runner import Command, Runner
from necropsy.model import Change

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")


def run(tmp_path: Path, program: str, *statements: str, options: tuple[str, ...] = ()) -> tuple[str, str | None]:
    script = tmp_path / "program.py"
    script.write_text(program)
    target = Command((sys.executable, *options, str(script)), tmp_path)
    with closing(Runner(target, tmp_path / "runs", 60)) as runner:
        done = runner.run(Change(at_start=statements))
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
    assert (outcome, why) == ("cannot-run", "the interpreter could not do that at startup")


@pytest.mark.parametrize("option", ["-I", "-E", "-S", "-sE"])
def test_an_interpreter_that_would_not_listen_is_not_run(tmp_path: Path, option: str) -> None:
    outcome, why = run(tmp_path, "", "pass", options=(option,))
    assert outcome == "cannot-run"
    assert f"{option} does nothing before the program" in (why or "")


IN_PYTHON = "def walk(n):\n    return n and walk(n - 1)\n\nwalk(5000)\n"
IN_C = "data = []\nfor _ in range(12_000):\n    data = [data]\nrepr(data)\n"
from_3_12 = pytest.mark.skipif(sys.version_info >= (3, 12), reason="C code has a limit of its own from Python 3.12 on")


@pytest.mark.parametrize(
    ("program", "alone"), [(IN_PYTHON, True), pytest.param(IN_C, False, marks=from_3_12)], ids=["Python", "C"]
)
def test_a_limit_on_recursion_is_raised_alone_and_with_more_stack(tmp_path: Path, program: str, alone: bool) -> None:
    path = tmp_path / "report.json"
    words = ("run", "--confirm", "--yes", "--json", path, "--", sys.executable, script(tmp_path, program))
    before = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 20, before[1]))  # a stack that is soon read
    try:
        necropsy(*words, cwd=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, before)
    found = verdict(serialize.loads(path.read_bytes()))
    assert (found.rule, found.status) == ("python-exception", "confirmed")
    raised, with_stack = found.experiments[1:3]
    assert raised.outcome == ("survives" if alone else "dies in another way, by stack-overflow-recursion")
    assert with_stack.outcome == "survives"
    by_command = {fix.command: fix.verified for fix in found.fixes if fix.command}
    assert by_command["sys.setrecursionlimit(2000000)"] is alone
    assert any("ulimit -s" in command and verified for command, verified in by_command.items())


def test_an_exception_of_another_kind_is_not_run_again(tmp_path: Path) -> None:
    program = "open('ran', 'a').write('x'); 1 / 0"
    done = necropsy("run", "--confirm", "--yes", "--", sys.executable, "-c", program, cwd=tmp_path)
    assert done.returncode == 1
    assert "no experiment is known for python-exception" in done.stderr
    assert (tmp_path / "ran").read_text() == "x"
