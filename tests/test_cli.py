"""The command line as a user meets it: every run here is a real process, and those that die really die."""

from __future__ import annotations

import json
import os
import platform
import signal
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import json_schema
import standing
import warm
from necropsy import __version__, serialize
from necropsy.model import Document

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="`necropsy run` is for Linux")
SCHEMA = Path(__file__).parent.parent / "docs" / "reference" / "necropsy.schema.json"
NULL = "import ctypes; ctypes.string_at(16)"
ABORT = "import os; os.abort()"


def necropsy(*words: str | Path, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {"NECROPSY_OUTPUT"}
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("NECROPSY") or name in kept
    } | variables
    return warm.run(*words, cwd=cwd, env=environment, errors="surrogateescape")


def run(*words: str | Path, code: str, options: Sequence[str | Path] = ()) -> subprocess.CompletedProcess[str]:
    return necropsy("run", *options, "--", sys.executable, "-c", code, *words)


def read(path: Path) -> Document:
    """A document, and that it is what the schema's promises say."""
    document = serialize.loads(path.read_bytes())
    raw = json.loads(path.read_bytes())
    schema = json.loads(SCHEMA.read_text())
    assert json_schema.errors(raw, schema, schema) == []
    assert raw["schema"] == 1
    assert raw["kind"] in {"run", "diagnosis"}
    assert raw["complete"] is True
    assert serialize.dumps(document) == path.read_bytes(), "what is read back is what was written"
    return document


# ---------------------------------------------------------------- the outside


def test_version() -> None:
    done = necropsy("--version")
    assert (done.returncode, done.stdout) == (0, f"necropsy {__version__}\n")


def test_the_console_script_is_the_same() -> None:
    script = Path(sys.executable).with_name("necropsy")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"necropsy {__version__}\n"


@pytest.mark.parametrize("command", ["run", "explain"])
def test_help(command: str) -> None:
    done = necropsy(command, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: necropsy {command}")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["run"], 125),
        (["run", "--"], 125),
        (["run", "--bogus", "true"], 125),
        (["run", "--timeout", "0", "true"], 125),
        (["run", "--log", "loud", "true"], 125),
        (["run", "--json"], 125),
        (["run", "-m"], 125),
        (["explain"], 2),
        (["bogus"], 2),
        (["explain", "foo"], 65),
        (["explain", ""], 65),
        (["explain", "--format", "json", "stack-smash"], 65),
        (["explain", "--json", "x.json", "stack-smash"], 65),
        (["open", ""], 66),
        (["attach", "abc"], 2),
    ],
)
def test_wrong_usage_is_one_line(words: list[str], status: int) -> None:
    done = necropsy(*words)
    assert done.returncode == status
    assert done.stderr.startswith("necropsy: ")
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_a_complaint_names_the_help_of_the_command_that_complains() -> None:
    assert necropsy("attach", "abc").stderr == (
        "necropsy: Invalid value for 'PID': 'abc' is not a valid whole number. (see necropsy attach --help)\n"
    )
    assert (
        "'x' is not a length of time: give seconds, or 100ms, 90s, 10m, 2h, 1d (see necropsy run --help)"
        in necropsy("run", "--timeout", "x", "true").stderr
    )
    assert necropsy("show", "--core").stderr.endswith("requires an argument. (see necropsy show --help)\n")
    assert necropsy("--core").stderr.endswith("(see necropsy --help)\n")


@pytest.mark.parametrize(("shell", "words"), [("bash", "necropsy expl"), ("zsh", "necropsy expl")])
def test_the_shell_completes_commands(shell: str, words: str) -> None:
    done = necropsy(COMP_WORDS=words, COMP_CWORD="1", _NECROPSY_COMPLETE=f"{shell}_complete")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() and "explain" in done.stdout
    assert "_NECROPSY_COMPLETE" in necropsy(_NECROPSY_COMPLETE=f"{shell}_source").stdout


def test_without_a_command_the_help_is_shown() -> None:
    done = necropsy()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == necropsy("--help").stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("words", [["explain", "139"], ["--help"], ["rules"]])
def test_a_full_disk_under_stdout_is_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "necropsy", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 125
    assert len(done.stderr.splitlines()) == 1
    assert "No space left on device" in done.stderr
    assert "defect" not in done.stderr


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "a.log").write_text("x")
    (tmp_path / "closed").chmod(0)
    for command in ("explain", "open"):
        done = necropsy(command, tmp_path / "closed" / "a.log")
        assert (done.returncode, done.stderr) == (
            66,
            f"necropsy: cannot read {tmp_path / 'closed' / 'a.log'}: Permission denied\n",
        )


@LINUX
def test_in_a_folder_that_was_removed(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'rmdir ../gone; "$0" -m necropsy explain 139 >&2; "$0" -m necropsy run --json r.json -- sh -c "exit 3"'
    done = subprocess.run(
        ["sh", "-c", script, sys.executable], cwd=gone, stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 125
    assert done.stderr.startswith("139 is SIGSEGV")
    assert done.stderr.splitlines()[-1] == "necropsy: cannot write r.json: No such file or directory; nothing was run"


def test_a_defect_of_ours_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "msgspec.py").write_text("raise RuntimeError('broken\\x1b[31m')\n")
    done = necropsy("explain", "139", PYTHONPATH=str(tmp_path))
    assert done.returncode == 125
    assert done.stderr == (
        "necropsy: RuntimeError: broken\\x1b[31m (a defect of necropsy; NECROPSY_DEBUG=1 shows more)\n"
    )
    assert "Traceback" in necropsy("explain", "139", PYTHONPATH=str(tmp_path), NECROPSY_DEBUG="1").stderr


# ---------------------------------------------------------------- run: the program's own end


@LINUX
@pytest.mark.parametrize("status", [0, 1, 2, 3, 64, 125, 127, 255])
def test_exit_codes_pass_through_and_nothing_is_said(status: int) -> None:
    done = run(code=f"import sys; print('out'); sys.exit({status})")
    assert (done.returncode, done.stdout, done.stderr) == (status, "out\n", "")


@LINUX
@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGTERM", "SIGKILL", "SIGINT"])
def test_signals_pass_through(name: str) -> None:
    number = getattr(signal, name)
    done = run(code=f"import os, signal; signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), {int(number)})")
    assert done.returncode == -number


@LINUX
def test_a_traceback_is_the_programs_and_nothing_is_added() -> None:
    done = run(code="raise ValueError(3)")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].startswith("Traceback")
    assert done.stderr.splitlines()[-1] == "ValueError: 3"


@LINUX
@pytest.mark.parametrize("end", ["SIGINT", "SIGPIPE"])
def test_what_the_user_did_is_no_news(end: str) -> None:
    code = f"import os, signal; signal.signal(signal.{end}, signal.SIG_DFL); os.kill(os.getpid(), signal.{end})"
    done = run(code=code)
    assert done.returncode == -getattr(signal, end)
    assert done.stderr == ""


@LINUX
def test_the_programs_options_are_its_own() -> None:
    done = necropsy("run", sys.executable, "-c", "import sys; print(sys.argv[1:])", "--json", "x", "--help", "--", "-m")
    assert done.stdout == "['--json', 'x', '--help', '--', '-m']\n"


@LINUX
@pytest.mark.parametrize("spelled", [["-m", "pack.mod"], ["-mpack.mod"], ["--quiet", "-m", "pack.mod"]])
def test_a_module_runs_as_python_runs_it(spelled: list[str], tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "mod.py").write_text("import sys; print(__name__, sys.argv[1:])")
    done = necropsy("run", *spelled, "--json", "-v", "--", "x", cwd=tmp_path)
    assert done.stdout == "__main__ ['--json', '-v', '--', 'x']\n"


@LINUX
def test_a_module_runs_in_the_python_of_the_path(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho mine "$@"\n')
    python.chmod(0o755)
    done = necropsy("run", "-m", "pack.mod", "a", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert done.stdout == "mine -m pack.mod a\n"
    # Where the PATH has none, it is the interpreter that runs necropsy.
    empty = tmp_path / "empty"
    empty.mkdir()
    assert necropsy("run", "-m", "platform", PATH=str(empty)).returncode == 0


@LINUX
def test_no_such_command(tmp_path: Path) -> None:
    done = necropsy("run", "no-such-command-anywhere")
    assert done.returncode == 127
    assert done.stderr.startswith("necropsy: no-such-command-anywhere")
    script = tmp_path / "script"
    script.write_text("print(1)")
    assert necropsy("run", script).returncode == 126
    assert necropsy("run", tmp_path).returncode == 126


@LINUX
def test_a_time_limit() -> None:
    done = necropsy("run", "--timeout", "1", "sleep", "600")
    assert (done.returncode, done.stdout) == (124, "")
    assert done.stderr.startswith("necropsy: the time limit of 1 s passed; the program was stopped\n")


@LINUX
def test_what_was_written_before_the_time_limit_stays() -> None:
    words = [*standing.necropsy(), "run", "--timeout", standing.NEVER, "sh", "-c", "echo up; exec sleep 600"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (124, "up\n")
    assert done.stderr.startswith(f"necropsy: the time limit of {standing.NEVER} s passed; the program was stopped\n")


# ---------------------------------------------------------------- run: what is told


@LINUX
def test_a_death_is_told_on_stderr_only() -> None:
    done = run(code="print('out', flush=True)\n" + NULL)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "out\n")
    assert "null-dereference" in done.stderr
    assert "\x1b" not in done.stderr
    assert all(len(line) <= 80 for line in done.stderr.splitlines())


@LINUX
def test_one_under_another_steps_aside() -> None:
    inner = [sys.executable, "-m", "necropsy", "run"]
    done = necropsy("run", *inner, sys.executable, "-c", NULL)
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr.count("necropsy: ") == 1, "one death, one report"
    assert "null-dereference" in done.stderr
    assert necropsy("run", *inner, sys.executable, "-c", "import sys; sys.exit(7)").returncode == 7
    missing = necropsy("run", *inner, "no-such-command")
    assert missing.returncode == 127
    assert missing.stderr.startswith("necropsy: no-such-command: command not found")


@LINUX
def test_one_under_another_does_what_it_was_told(tmp_path: Path) -> None:
    inner = [sys.executable, "-m", "necropsy", "run", "--json", str(tmp_path / "inner.json")]
    done = necropsy("run", *inner, sys.executable, "-c", "print('out')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "out\n", "")
    assert read(tmp_path / "inner.json").subject.command == (sys.executable, "-c", "print('out')")


@LINUX
def test_quiet_is_quiet(tmp_path: Path) -> None:
    done = run(code=NULL, options=["--quiet", "--json", tmp_path / "r.json"])
    assert (done.returncode, done.stderr) == (-signal.SIGSEGV, "")
    assert read(tmp_path / "r.json").reports


@LINUX
def test_a_healthy_run_has_a_document_and_no_reports(tmp_path: Path) -> None:
    done = run("--token", "abc", code="pass", options=["--json", tmp_path / "r.json"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    document = read(tmp_path / "r.json")
    assert document.kind == "run"
    assert document.subject.kind == "process"
    assert document.subject.command == (sys.executable, "-c", "pass", "--token", "***")
    assert document.reports == ()
    own = document.processes[0]
    assert own.exit is not None
    assert (own.exit.kind, own.exit.code) == ("exited", 0)
    assert own.command is None or "abc" not in own.command
    assert stat.S_IMODE((tmp_path / "r.json").stat().st_mode) == 0o600


@LINUX
def test_a_death_has_a_report_with_evidence(tmp_path: Path) -> None:
    run(code=ABORT, options=["--json", tmp_path / "r.json"])
    document = read(tmp_path / "r.json")
    (report,) = document.reports
    assert report.pid == document.processes[0].pid
    assert report.crash.exit is not None
    assert report.crash.exit.signal == "SIGABRT"
    assert report.crash.fault is not None
    assert report.verdict is not None
    assert report.verdict.rule == "ended-by-its-own-call"
    assert report.verdict.evidence
    assert report.signature
    assert report.took_s is not None
    assert report.took_s > 0
    assert document.processes[0].python == platform.python_version()


@LINUX
def test_a_plain_failure_is_silent_but_in_the_document(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("w") as stderr:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "necropsy",
                "run",
                "--json",
                tmp_path / "r.json",
                sys.executable,
                "-c",
                "raise ValueError(3)",
            ],
            stderr=stderr,
            check=False,
        )
    assert "necropsy:" not in log.read_text()
    (report,) = read(tmp_path / "r.json").reports
    assert report.verdict is not None
    assert report.verdict.rule == "python-exception"


@LINUX
def test_a_plain_failure_whose_log_names_a_native_cause_is_told(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import ctypes; ctypes.CDLL('libno_such_library_here.so.1')"
    with log.open("w") as stderr:
        subprocess.run(
            [sys.executable, "-m", "necropsy", "run", sys.executable, "-c", code], stderr=stderr, check=False
        )
    assert "missing-library" in log.read_text()
    assert log.read_text().index("OSError") < log.read_text().index("necropsy:"), "after the program's own words"


@LINUX
def test_a_secret_in_the_log_is_masked(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    with (tmp_path / "log").open("w") as stderr:
        subprocess.run(
            [
                sys.executable,
                "-m",
                "necropsy",
                "run",
                "--json",
                tmp_path / "r.json",
                sys.executable,
                "-c",
                f"raise ValueError('{secret}')",
            ],
            stderr=stderr,
            check=False,
        )
    assert secret in (tmp_path / "log").read_text(), "the program's own output is not touched"
    assert secret not in (tmp_path / "r.json").read_text()
    assert "***" in (tmp_path / "r.json").read_text()


@LINUX
def test_a_dead_child_is_told_though_the_command_ends_well(tmp_path: Path) -> None:
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ABORT!r}])"
    done = run(code=code, options=["--json", tmp_path / "r.json"])
    assert done.returncode == 0
    document = read(tmp_path / "r.json")
    (report,) = document.reports
    assert report.pid != document.processes[0].pid
    assert [one.python for one in document.processes] == [None, platform.python_version()]
    (line,) = done.stderr.splitlines()
    assert line.startswith("necropsy: a child process crashed: The program called os.abort() at <string>:1")


@LINUX
def test_children_that_die_on_purpose_below_a_command_that_ends_well_are_one_line(tmp_path: Path) -> None:
    """As a test suite that crashes children on purpose: the reports are kept, and told in one line."""
    dies = f"import sys; sys.argv[1] == 'null' and exec({NULL!r}); sys.argv[1] == 'abort' and exec({ABORT!r})"
    code = (
        "import subprocess, sys\n"
        "for way in ('null', 'abort', 'null', 'abort'):\n"
        f"    subprocess.run([sys.executable, '-c', {dies!r}, way])\n"
        "print('4 tests OK')\n"
    )
    done = necropsy("run", "--", sys.executable, "-c", code, NECROPSY_OUTPUT=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "4 tests OK\n")
    (line,) = done.stderr.splitlines()
    first, _, name = line.rpartition(" ")
    assert first == "necropsy: 4 child processes crashed (2 kinds): necropsy show"
    shown = necropsy("show", name, "--format", "json", NECROPSY_OUTPUT=str(tmp_path))
    rules = [one["verdict"]["rule"] for one in json.loads(shown.stdout)["reports"]]
    assert sorted(rules) == ["ended-by-its-own-call"] * 2 + ["null-dereference"] * 2
    text = necropsy("show", name, NECROPSY_OUTPUT=str(tmp_path)).stdout
    assert "1 more process died in the same way: " in text
    assert "2 processes: The program called os.abort()" in text
    assert len(text.strip().splitlines()) <= 20


@LINUX
def test_a_child_that_its_parent_stops_is_no_news() -> None:
    code = "import subprocess; p = subprocess.Popen(['sleep', '600']); p.terminate(); p.wait()"
    done = run(code=code)
    assert (done.returncode, done.stderr) == (0, "")


@LINUX
def test_always_reports_on_healthy_runs(tmp_path: Path) -> None:
    done = run(code="print('out')", options=["--always", "--json", tmp_path / "r.json"])
    assert (done.returncode, done.stdout) == (0, "out\n")
    assert "exited with code 0" in " ".join(done.stderr.split())
    assert "main thread" in done.stderr
    assert "Windows, python.exe, 2,000,000 bytes: fits" in " ".join(done.stderr.split())
    (own,) = read(tmp_path / "r.json").processes
    assert own.stacks
    main = own.stacks[0]
    assert main.peak is not None
    assert main.size is not None
    assert 0 < main.peak < main.size
    assert own.peak_rss


@LINUX
def test_always_sees_a_stack_that_would_not_fit_elsewhere() -> None:
    # alloca by way of a C function that is given a large structure by value: 3 MB on the stack, and it lives.
    code = """if True:
        import ctypes
        class Large(ctypes.Structure):
            _fields_ = [("bytes", ctypes.c_char * 3_000_000)]
        libc = ctypes.CDLL(None)
        libc.abs.argtypes = [Large]
        libc.abs(Large())
    """
    done = run(code=code, options=["--always"])
    assert done.returncode == 0
    assert "WOULD NOT FIT" in done.stderr


@LINUX
@pytest.mark.parametrize("mode", ["auto", "probe", "tap", "pty", "off"])
def test_every_log_mode_leaves_the_program_as_it_is(mode: str) -> None:
    done = run(code="import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)", options=["--log", mode])
    assert (done.returncode, done.stdout, done.stderr) == (3, "out\n", "err\n")


@LINUX
def test_a_log_that_is_not_read_is_a_gap(tmp_path: Path) -> None:
    run(code=NULL, options=["--log", "off", "--json", tmp_path / "r.json"])
    (report,) = read(tmp_path / "r.json").reports
    assert report.crash.log_tail is None
    assert report.crash.gap("log_tail") is not None


@LINUX
@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)])
def test_colour_is_for_terminals(variables: dict[str, str], coloured: bool) -> None:
    ours, theirs = os.openpty()
    environment = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [sys.executable, "-m", "necropsy", "run", sys.executable, "-c", NULL],
        stderr=theirs,
        env=environment | {"TERM": "xterm"} | variables,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # EIO: the last process that had the terminal is gone
            break
        seen += piece
    os.close(ours)
    process.wait()
    assert b"null-dereference" in seen
    assert (b"\x1b[" in seen) is coloured


@LINUX
@pytest.mark.parametrize(
    ("code", "status"), [("print('out')", 0), ("print('out', flush=True); " + ABORT, -signal.SIGABRT)]
)
def test_a_defect_of_the_report_costs_the_program_nothing(code: str, status: int, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'necropsy' in ' '.join(sys.orig_argv[:3]):\n"
        "    import necropsy.document\n"
        "    def broken(*_): raise ZeroDivisionError('by us')\n"
        "    necropsy.document.of_run = broken\n"
    )
    done = necropsy("run", "--always", sys.executable, "-c", code, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (status, "out\n")
    assert done.stderr == "necropsy: ZeroDivisionError: by us (a defect of necropsy; NECROPSY_DEBUG=1 shows more)\n"


@LINUX
def test_without_a_stderr_the_program_runs_as_ever() -> None:
    command = f'exec "{sys.executable}" -m necropsy run "{sys.executable}" -c "{ABORT}" 2>&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGABRT, "", "")


# ---------------------------------------------------------------- run: files


@LINUX
def test_output_keeps_each_run_in_a_folder_of_its_own(tmp_path: Path) -> None:
    for code in (ABORT, "pass"):
        run(code=code, options=["--output", tmp_path / "kept"])
    folders = sorted((tmp_path / "kept").iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert sorted(path.name for path in folder.iterdir()) == ["report.json", "report.txt"]
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
        assert read(folder / "report.json").id == folder.name
    texts = [(folder / "report.txt").read_text() for folder in folders]
    assert any("abort" in text for text in texts)
    assert any("exited with code 0" in text for text in texts)


@LINUX
@pytest.mark.parametrize("option", ["--json", "--output", "-o"])
def test_a_place_that_cannot_be_written_is_known_before_the_program_starts(option: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = run(code="print('out')", options=[option, tmp_path / "file" / "below"])
    assert (done.returncode, done.stdout) == (125, "")
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("necropsy: cannot write")


@LINUX
def test_a_full_disk_costs_one_line() -> None:
    done = run(code=ABORT, options=["--json", "/dev/full", "--quiet"])
    assert done.returncode == -signal.SIGABRT
    assert done.stderr == "necropsy: cannot write /dev/full: No space left on device\n"


@LINUX
def test_the_document_on_stdout(tmp_path: Path) -> None:
    done = run(code="pass", options=["--json", "/dev/stdout"])
    assert json.loads(done.stdout)["kind"] == "run"
    # Redirected to a file, /dev/stdout is a link to it: it must be written to, never replaced.
    with (tmp_path / "out").open("w") as stdout:
        subprocess.run(
            [sys.executable, "-m", "necropsy", "run", "--json", "/dev/stdout", sys.executable, "-c", "pass"],
            stdout=stdout,
            check=True,
        )
    assert json.loads((tmp_path / "out").read_text())["kind"] == "run"
    assert Path("/dev/stdout").is_symlink()


@LINUX
def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    run(code="pass", options=["--json", tmp_path / "link"])
    assert (tmp_path / "link").is_symlink()
    assert read(tmp_path / "target").kind == "run"


@LINUX
def test_paths_are_meant_from_where_the_user_stood(tmp_path: Path) -> None:
    done = necropsy("run", "--json", "r.json", sys.executable, "-c", "import os; os.chdir('/')", cwd=tmp_path)
    assert done.returncode == 0
    assert read(tmp_path / "r.json").kind == "run"


# ---------------------------------------------------------------- explain


def test_explain() -> None:
    done = necropsy("explain", "0xC0000409")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("0xC0000409 STATUS_STACK_BUFFER_OVERRUN, also shown as -1073740791 or 3221226505")
    # A command is to be copied: it is never broken.
    assert all(len(line) <= 80 or line.lstrip().startswith("$ ") for line in done.stdout.splitlines())


@pytest.mark.parametrize("spelled", ["-11", "-1073740791", "--", "-6"])
def test_negative_codes_are_no_options(spelled: str) -> None:
    assert necropsy("explain", *([spelled] if spelled != "--" else ["--", "-11"])).returncode == 0


def test_explain_has_a_document(tmp_path: Path) -> None:
    done = necropsy("explain", "--json", tmp_path / "e.json", "-1073740791", "0xC0000409")
    assert done.returncode == 0
    document = read(tmp_path / "e.json")
    assert (document.kind, document.subject.kind, document.subject.text) == (
        "diagnosis",
        "exit-status",
        "-1073740791 0xC0000409",
    )
    (report,) = document.reports
    assert report.crash.exit is not None
    assert report.crash.exit.ntstatus is not None
    assert report.crash.exit.ntstatus.value == "0xC0000409"
    assert report.verdict is None or report.verdict.confidence != "certain"


def test_explain_reads_a_file_and_a_code_as_one_death(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("step 1\n2026-11-20 21:17:51.617250: F a/b.cc:356] Check failed: d < dims() (3 vs. 2)\n")
    done = necropsy("explain", log, "134", "--json", tmp_path / "e.json")
    assert done.returncode == 0
    assert "check-failed" in done.stdout
    (report,) = read(tmp_path / "e.json").reports
    assert report.verdict is not None
    assert report.verdict.rule == "check-failed"
    assert report.crash.exit is not None
    assert report.crash.exit.signal == "SIGABRT"


def test_explain_reads_standard_input(tmp_path: Path) -> None:
    for words in (["-"], []):
        done = subprocess.run(
            [sys.executable, "-m", "necropsy", "explain", *words],
            input="free(): invalid pointer\nAborted (core dumped)\n",
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        assert "heap-corruption" in done.stdout


def test_explain_finds_nothing_in_a_healthy_log(tmp_path: Path) -> None:
    log = tmp_path / "healthy.log"
    log.write_text("Epoch 1/2\n100/100 - loss: 0.1\nEpoch 2/2\n100/100 - loss: 0.05\n")
    done = necropsy("explain", log, "--json", tmp_path / "e.json")
    assert done.returncode == 0
    assert " ".join(done.stdout.split()).startswith("Nothing found in ")
    assert read(tmp_path / "e.json").reports == ()


@pytest.mark.parametrize("name", ["none.log", "no log.txt"])
def test_explain_tells_of_a_missing_file_in_one_line(name: str, tmp_path: Path) -> None:
    done = necropsy("explain", tmp_path / name)
    assert done.returncode == 66
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_explain_into_a_closed_pipe_is_silent() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "necropsy", "explain", "139"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert done.stderr == ""


# ---------------------------------------------------------------- what is loaded

HEAVY = {"drgn", "capstone", "symbolic", "rich", "tensorflow", "numpy"}


def loaded(code: str) -> set[str]:
    code += "\nimport sys, json; print('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_import_necropsy_loads_nothing_else() -> None:
    ours = {name for name in loaded("import necropsy") if name.split(".")[0] == "necropsy"}
    assert ours == {"necropsy"}
    assert not loaded("import necropsy") & {*HEAVY, "click", "msgspec", "asyncio", "subprocess"}


def test_explain_loads_no_machinery() -> None:
    modules = loaded("from necropsy.cli import main; main(['explain', '0xC0000409'])")
    assert "necropsy.formats.exit_status" in modules
    assert not modules & HEAVY
    assert not {name for name in modules if name.startswith(("necropsy.capture.linux", "necropsy.rules"))}


def test_files_of_the_working_directory_are_none_of_our_modules(tmp_path: Path) -> None:
    for name in ("click", "msgspec", "json", "tomllib"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('not yours')\n")
    assert necropsy("explain", "139", cwd=tmp_path).returncode == 0
