"""The first things that people type: each does what was meant, or says in one line what to type instead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

import warm
from necropsy.cli.brevity import BriefCommand
from necropsy.cli.commands import cli

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="`necropsy run` is for Linux")
ELF_LIBRARY = b"\x7fELF" + b"\x02\x01\x01" + b"\0" * 9 + b"\x03\x00" + b"\0" * 50
LOG = 'Traceback (most recent call last):\n  File "a.py", line 1\nSegmentation fault (core dumped)\n'


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder such as a new user stands in, with two reports kept in ``kept``."""
    place = tmp_path_factory.mktemp("first")
    (place / "ok.py").write_text("print('ran')\n")
    (place / "tool").write_text("#!/usr/bin/env python3\nprint('ran')\n")
    (place / "prog").write_text("#!/bin/sh\necho ran\n")
    (place / "prog").chmod(0o755)
    (place / "adir").mkdir()
    (place / "app").mkdir()
    (place / "app" / "__main__.py").write_text("print('ran')\n")
    (place / "lib.so").write_bytes(ELF_LIBRARY)
    (place / "t.log").write_text(LOG)
    (place / "empty.log").write_text("")
    for code in ("import os; os.abort()", "import ctypes; ctypes.string_at(16)", "import ctypes; ctypes.string_at(16)"):
        typed(place, "run", "--json", "r.json", "-c", code)
    return place


def typed(place: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("NECROPSY", "GITHUB", "FORCE_COLOR"))
    }
    return warm.run(*words, cwd=place, env=environment | {"NECROPSY_OUTPUT": str(place / "kept")} | variables)


def _typed(value: object) -> str:
    return " ".join(value) if isinstance(value, list) else ""


TOLD: list[tuple[list[str], int, str]] = [
    (["ok.py"], 2, "necropsy run python ok.py"),
    (["ok.py", "--epochs", "3"], 2, "necropsy run python ok.py --epochs 3"),
    (["./ok.py"], 2, "necropsy run python ./ok.py"),
    (["tool"], 2, "necropsy run python3 tool"),
    (["prog"], 2, "necropsy run sh prog"),
    (["python", "ok.py"], 2, "necropsy run python ok.py"),
    (["python3", "-m", "http.server"], 2, "necropsy run python3 -m http.server"),
    (["pytest", "tests"], 2, "necropsy run pytest tests"),
    (["python ok.py"], 2, "necropsy run python ok.py"),
    (["app"], 2, "necropsy run python app"),
    (["adir"], 2, "adir is a directory"),
    (["http://example.com/core"], 2, "download the file first"),
    (["run", "http://example.com/a.py"], 127, "download it first"),
    (["open", "http://example.com/core"], 66, "http://example.com/core is a URL"),
    (["show", "https://example.com/r.json"], 66, "https://example.com/r.json is a URL"),
    (["run", "ok.py"], 127, "necropsy run python ok.py"),
    (["run", "ok.py", "--lr", "0.1"], 127, "necropsy run python ok.py --lr 0.1"),
    (["run", "./ok.py"], 126, "necropsy run python ./ok.py"),
    (["run", "./tool"], 126, "necropsy run python3 ./tool"),
    (["run", "prog"], 127, "necropsy run ./prog"),
    (["run", "./adir"], 126, "it is a directory"),
    (["run", "./app"], 126, "necropsy run python ./app"),
    (["run", "./lib.so"], 126, "a shared library, not a program"),
    (["run", "python ok.py"], 127, "necropsy run python ok.py"),
    (["run", "FOO=1", "python", "ok.py"], 127, "FOO=1 necropsy run python ok.py"),
    (["run", "A=1", "B=x y", "python", "ok.py"], 127, "A=1 'B=x y' necropsy run python ok.py"),
    (["run", "pyhton", "ok.py"], 127, "necropsy run python ok.py"),
    (["run", "python9", "ok.py"], 127, "necropsy run python3 ok.py"),
    (["run"], 125, "necropsy run python train.py"),
    (["run", "-m"], 125, "necropsy run --help"),
    (["confirm", "ok.py"], 2, "necropsy run --confirm python ok.py"),
    (["doctor", "ok.py"], 2, "did you mean --data ok.py:FUNCTION?"),
    (["doctor", "lib.so"], 2, "did you mean --op lib.so?"),
    (["--json", "x", "run", "python", "ok.py"], 2, "necropsy run --json x python ok.py"),
    (["--format", "html", "show"], 2, "necropsy show --format html"),
    (["--timeout", "3"], 2, "--timeout belongs behind a command"),
    (["run", "--jsn", "x", "python", "ok.py"], 125, "--json"),
    (["run", "--timeout", "soon", "python", "ok.py"], 125, "give seconds, or 100ms, 90s, 10m, 2h, 1d"),
    (["run", "--json", "-", "python", "ok.py"], 125, "--json takes a file"),
    (["run", "--json", "none/x.json", "python", "ok.py"], 125, "nothing was run"),
    (["run", "-o", "adir", "python", "ok.py"], 125, "nothing was run"),
    (["rnu", "python"], 2, "Did you mean 'run'?"),
    (["shwo"], 2, "Did you mean 'show'?"),
    (["explane", "139"], 2, "Did you mean 'explain'?"),
    (["frobnicate"], 2, "no such command"),
    (["explain", "null-derefrence"], 65, "Did you mean 'null-dereference'?"),
    (["explain", "SIGSEV"], 65, "Did you mean 'SIGSEGV'?"),
    (["explain", "--list"], 2, "no such option: --list"),
    (["explain", "--jsno", "x"], 2, "Did you mean '--json'?"),
    (["explain", "lib.so"], 65, "is a program or a library"),
    (["open", "lib.so"], 65, "is a program or a library, not a core file"),
    (["open", "t.log"], 65, "`necropsy explain` reads logs"),
    (["explain", "r.json"], 65, "necropsy show r.json"),
    (["explain", "nothing.log"], 66, "there is no file nothing.log"),
    (["show", "nothing.json"], 66, "there is no file nothing.json"),
    (["show", "zz"], 66, "`necropsy list` shows them"),
    (["show", "99"], 66, "3 are kept"),
    (["show", "--pid", "1"], 2, "give --core FILE too"),
    (["show", "t.log", "--core", "x"], 2, "--core needs a report"),
    (["list", "--rule", "null-pointer-dereference"], 2, "Did you mean 'null-dereference'?"),
    (["list", "--since", "yesterdayish"], 2, "2h, 3d or a date"),
    (["rules", "stack-smach"], 2, "Did you mean 'stack-smash'?"),
    (["attach", "abc"], 2, "'abc' is not a valid whole number"),
    (["attach", "99999999"], 66, "99999999"),
    (["prune"], 2, "--keep N or --older-than 30d"),
    (["prune", "--keep", "1"], 125, "pass --yes"),
    (["completion", "tcsh"], 2, "bash"),
]


@LINUX
@pytest.mark.parametrize(("words", "status", "told"), TOLD, ids=_typed)
def test_a_mistake_gets_one_line_and_what_to_type(words: list[str], status: int, told: str, place: Path) -> None:
    done = typed(place, *words)
    assert told in done.stderr
    assert done.returncode == status
    assert "ran" not in done.stdout
    assert done.stderr.startswith("necropsy: ")
    assert len(done.stderr.splitlines()) <= 2
    assert "Traceback" not in done.stderr


DONE: list[tuple[list[str], str]] = [
    (["help"], "Usage: necropsy "),
    (["help", "run"], "Usage: necropsy run "),
    (["version"], "necropsy "),
    (["139"], "SIGSEGV"),
    (["SIGSEGV"], "SIGSEGV"),
    (["0xC0000409"], "STATUS_STACK_BUFFER_OVERRUN"),
    (["stack-smash"], "stack-smash"),
    (["last"], "string_at"),
    (["r.json"], "string_at"),
    (["t.log"], "SIGSEGV"),
    (["show", "t.log"], "SIGSEGV"),
    (["show", "r.json"], "string_at"),
    (["show", "last"], "string_at"),
    (["show", "-1"], "string_at"),
    (["show", "1"], "string_at"),
    (["explain", "empty.log"], "it is empty"),
    (["run", "-c", "import sys; print('ran', sys.argv)", "-x", "--json"], "ran ['-c', '-x', '--json']"),
    (["run", "-cprint('ran')"], "ran"),
    (["run", "--timeout", "10m", "python", "ok.py"], "ran"),
    (["run", "--timeout=1h", "python", "ok.py"], "ran"),
    (["list"], "2x"),
    (["list", "--all"], "null-dereference"),
    (["list", "--format", "json", "-n", "1"], '"seen": 2'),
    (["list", "--since", "1h", "--rule", "null-dereference"], "null-dereference"),
    (["list", "--rule", "near-stack-overflow"], "No such reports are kept"),
    (["list", "--format", "markdown"], "| # | ID |"),
    (["list", "--format", "html"], "<table>"),
    (["rules"], "null-dereference"),
    (["rules", "--format", "json"], '"rule": "null-dereference"'),
    (["rules", "stack-smash"], "stack-smash:"),
    (["rules", "near-fd-limit"], "near-fd-limit:"),
    (["completion", "bash"], "_NECROPSY_COMPLETE"),
    (["completion", "zsh"], "_NECROPSY_COMPLETE"),
    (["completion", "fish"], "_NECROPSY_COMPLETE"),
]


@LINUX
def test_a_report_is_shown_by_its_place_in_the_list(tmp_path: Path) -> None:
    for code in ("import os; os.abort()", "import ctypes; ctypes.string_at(16)"):
        typed(tmp_path, "run", "-c", code)
    assert "abort" in typed(tmp_path, "show", "2").stdout


@LINUX
@pytest.mark.parametrize(("words", "told"), DONE, ids=_typed)
def test_what_was_meant_is_done(words: list[str], told: str, place: Path) -> None:
    done = typed(place, *words)
    assert told in done.stdout
    assert (done.returncode, done.stderr) == (0, "")


@LINUX
def test_a_limit_that_is_no_number_is_told(place: Path) -> None:
    done = typed(place, "run", "-c", "import os; os.abort()", NECROPSY_KEEP="abc", NECROPSY_OUTPUT=str(place / "other"))
    assert done.returncode == -signal.SIGABRT
    assert "NECROPSY_KEEP='abc' is not a number: 50 reports are kept" in done.stderr


@LINUX
def test_a_result_goes_into_a_file(place: Path) -> None:
    for form, beginning in (("html", "<!doctype html>"), ("markdown", "#"), ("json", "{")):
        done = typed(place, "show", "--format", form, "-o", f"out.{form}")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", f"necropsy: wrote out.{form}\n")
        assert (place / f"out.{form}").read_text().startswith(beginning)
        assert (place / f"out.{form}").stat().st_mode & 0o777 == 0o600


@LINUX
def test_the_report_of_a_run_goes_into_a_file(place: Path) -> None:
    done = typed(place, "run", "--format", "markdown", "-o", "run.md", "-c", "import ctypes; ctypes.string_at(16)")
    assert done.returncode == -signal.SIGSEGV
    assert "string_at" in (place / "run.md").read_text()
    assert "string_at" not in done.stderr
    assert "seen" in done.stderr


@LINUX
@pytest.mark.parametrize(
    ("words", "variables", "coloured"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color", "always"], {}, True),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
    ],
)
def test_colour_is_as_asked_for(words: list[str], variables: dict[str, str], coloured: bool, place: Path) -> None:
    assert ("\x1b[" in typed(place, "show", *words, **variables).stdout) is coloured


@LINUX
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("necropsy run python o", "file"),
        ("necropsy run pyth", "python"),
        ("necropsy explain t.l", "file"),
        ("necropsy explain stack-sm", "stack-smash"),
        ("necropsy show ", "file"),
        ("necropsy list --rule nul", "null-dereference"),
        ("necropsy attach 1", ""),
        ("necropsy open df", "file"),
        ("necropsy comp", "completion"),
    ],
)
def test_the_shell_is_offered_what_fits(line: str, offered: str, place: Path) -> None:
    words = line.split(" ")
    done = typed(place, COMP_WORDS=line, COMP_CWORD=str(len(words) - 1), _NECROPSY_COMPLETE="bash_complete")
    assert done.stderr == ""
    assert offered in done.stdout


@LINUX
def test_old_reports_are_deleted(tmp_path: Path) -> None:
    for _ in range(3):
        typed(tmp_path, "run", "-c", "import os; os.abort()")
    assert "deleted 2 reports" in typed(tmp_path, "prune", "--keep", "1", "--yes").stderr
    assert "nothing to delete" in typed(tmp_path, "prune", "--older-than", "1d", "--yes").stderr
    assert "deleted 1 report\n" in typed(tmp_path, "prune", "--older-than", "0s", "--yes").stderr
    done = typed(tmp_path, "show")
    assert done.returncode == 66
    assert "`necropsy run COMMAND` keeps one of each crash" in done.stderr


@pytest.mark.parametrize("name", ["", *cli.commands])
def test_help_fits_a_terminal_of_80_columns_and_40_lines(name: str) -> None:
    command = cli.commands.get(name, cli)
    root = click.Context(cli, info_name="necropsy", terminal_width=80, help_option_names=["-h", "--help"])
    ctx = root if command is cli else click.Context(command, info_name=name, parent=root)
    lines = command.get_help(ctx).splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", [name for name, one in cli.commands.items() if isinstance(one, BriefCommand)])
def test_the_long_help_shows_the_options_that_the_short_one_leaves_out(name: str, tmp_path: Path) -> None:
    short, long = (typed(tmp_path, name, option) for option in ("--help", "--help-all"))
    assert (long.returncode, long.stderr) == (0, "")
    assert "--help-all" in short.stdout
    command = cli.commands[name]
    assert isinstance(command, BriefCommand)
    rare = command.rare
    assert rare <= {word.rstrip(",") for word in long.stdout.split()}
    assert not rare & {word.rstrip(",") for word in short.stdout.split("Options:")[1].split()}
    options = [param for param in command.params if isinstance(param, click.Option) and not param.hidden]
    every = {name for param in options for name in param.opts}
    assert every <= {word.rstrip(",") for word in long.stdout.split()}


def test_a_rare_option_is_completed_and_suggested(tmp_path: Path) -> None:
    words = {"COMP_WORDS": "necropsy run --full", "COMP_CWORD": "2", "_NECROPSY_COMPLETE": "bash_complete"}
    assert "--full-memory" in typed(tmp_path, **words).stdout
    assert "--full-memory" in typed(tmp_path, "run", "--full-memry", "true").stderr
