"""It ends as the command ends: every exit code, every fatal signal, and what a shell says of a failed start."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from supervised import CORES_HERE, python, run, run_and_record, stat_of, until, words

import needs

FATAL = sorted(
    signal.valid_signals()
    - {
        *(signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH),
        *(signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU),
    }
)


@pytest.mark.parametrize("code", [0, 1, 2, 77, 124, 125, 126, 127, 128, 139, 255])
def test_exit_code(code: int, tmp_path: Path) -> None:
    done, record = run_and_record(["sh", "-c", f"exit {code}"], tmp_path)
    assert done.returncode == code
    assert (done.stdout, done.stderr) == (b"", b"")
    assert record.processes[0].exit is not None
    assert (record.processes[0].exit.kind, record.processes[0].exit.code) == ("exited", code)
    assert record.crashes == ()


@pytest.mark.parametrize("signo", FATAL, ids=lambda one: str(int(one)))
def test_fatal_signal(signo: int, tmp_path: Path) -> None:
    code = f"import os, signal; signal.signal({int(signo)}, 0) if {int(signo)} not in (9,) else 0; os.kill(os.getpid(), {int(signo)})"
    done, record = run_and_record(python(code), tmp_path, popen={"cwd": tmp_path})
    assert done.returncode == -signo
    assert (done.stdout, done.stderr) == (b"", b"")
    (crash,) = record.crashes
    assert crash.exit is not None and crash.exit.kind == "signaled"
    assert crash.at is not None
    assert crash.fault is not None and crash.fault.signal == crash.exit.signal
    if signo != signal.SIGKILL:
        assert crash.fault.sent_by_itself is True
    if signo in {signal.SIGSEGV, signal.SIGABRT, signal.SIGQUIT, signal.SIGXCPU}:
        assert crash.crashed_thread is not None and crash.crashed_thread.frames


@CORES_HERE
def test_no_core_of_ours_and_one_of_the_command(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)

    def allow() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))

    done = run(["sh", "-c", "kill -SEGV $$"], popen={"cwd": tmp_path, "preexec_fn": allow})
    assert done.returncode == -signal.SIGSEGV
    cores = list(tmp_path.iterdir())
    assert len(cores) == (1 if hard != 0 else 0)
    if cores:
        assert b"drive.py" not in cores[0].read_bytes()


def test_command_not_found() -> None:
    done = run(["no-such-command-of-ours"])
    assert done.returncode == 127
    assert done.stderr == b"no-such-command-of-ours: command not found\n"


def test_missing_path_and_empty_name() -> None:
    assert run(["/no/such/file"]).returncode == 127
    assert run([""]).returncode == 127


def test_not_executable(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.write_text("data")
    assert run([str(file)]).returncode == 126
    assert run([str(tmp_path)]).returncode == 126


def test_no_report_for_what_was_not_executed(tmp_path: Path) -> None:
    record = tmp_path / "record"
    assert run(["/no/such/file"], record=record).returncode == 127
    assert not record.exists()


def test_script_without_interpreter_line(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text('echo "$0 $1"; exit 7\n')
    script.chmod(0o755)
    done = run([str(script), "word"])
    assert done.returncode == 7
    assert done.stdout == f"{script} word\n".encode()


def test_search_in_path_goes_on_after_a_file_that_may_not_be_executed(tmp_path: Path) -> None:
    for name, mode in (("one", 0o644), ("two", 0o755)):
        (tmp_path / name).mkdir()
        tool = tmp_path / name / "tool"
        tool.write_text("#!/bin/sh\nexit 5\n")
        tool.chmod(mode)
    environment = {**os.environ, "PATH": f"{tmp_path}/one:{tmp_path}/two:{os.environ['PATH']}"}
    assert run(["tool"], popen={"env": environment}).returncode == 5


def test_arguments_are_bytes() -> None:
    odd = b"\xff\xfe \n'\"$"
    code = "import os, sys; sys.stdout.buffer.write(os.fsencode(sys.argv[1]))"
    command = [os.fsencode(word) for word in words(python(code))] + [odd]
    assert subprocess.run(command, capture_output=True, check=True).stdout == odd


def test_timeout_by_term(tmp_path: Path) -> None:
    done, record = run_and_record(["sleep", "100"], tmp_path, timeout_s=0.5)
    assert done.returncode == 124
    assert record.timed_out
    assert record.processes[0].exit is not None
    assert (record.processes[0].exit.kind, record.processes[0].exit.signal) == ("timeout", "SIGTERM")


def ignore_term() -> None:
    """What is ignored stays so in exec: the command need not be fast to ask for it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def test_timeout_by_kill_of_what_ignores_term(tmp_path: Path) -> None:
    done, record = run_and_record(["sleep", "100"], tmp_path, popen={"preexec_fn": ignore_term}, timeout_s=0.5)
    assert done.returncode == 124
    assert record.processes[0].exit is not None
    assert record.processes[0].exit.signal == "SIGKILL"


def test_timeout_ends_the_children_of_the_commands_process_group_and_only_these(tmp_path: Path) -> None:
    script = """
        exec > log 2>&1
        sleep 100 &
        echo $! > inside
        setsid sh -c 'echo $$ > outside; echo > stands; exec sleep 100' &
        wait
    """
    done, record = run_and_record(
        ["sh", "-c", script], tmp_path, popen={"cwd": tmp_path}, timeout_s=1000, fault="time_is_up_at_a_mark"
    )
    inside, outside = (int((tmp_path / name).read_text()) for name in ("inside", "outside"))
    try:
        assert done.returncode == 124
        ends = {crash.pid: crash.exit.kind for crash in record.crashes if crash.exit is not None}
        assert (ends[inside], ends[outside]) == ("timeout", "running")
        assert len(record.crashes) == 3  # the one that was ended is no death of its own
        until(lambda: (stat_of(inside) or "Z")[0] == "Z", "the child ends")
        until(lambda: stat_of(outside)[0] == "S", "the other one goes on")
    finally:
        os.kill(outside, signal.SIGKILL)


def test_in_time(tmp_path: Path) -> None:
    done, record = run_and_record(["sh", "-c", "exit 3"], tmp_path, timeout_s=50)
    assert (done.returncode, record.timed_out) == (3, False)


@needs.namespace("--pid", "--fork", "--mount-proc")
@pytest.mark.parametrize(("command", "code"), [("exit 9", 9), ("kill -SEGV $$", 139), ("kill -TERM $$", 143)])
def test_as_the_first_process_of_a_container(command: str, code: int) -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc", *words(["sh", "-c", command])]
    done = subprocess.run(unshare, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (code, b"")


def test_a_report_that_fails_costs_one_line_only() -> None:
    done = run(["sh", "-c", "exit 3"], record="raise")
    assert done.returncode == 3
    assert done.stderr.count(b"\n") == 1
    assert b"a report that fails" in done.stderr


def test_a_report_that_crashes_costs_one_line_only() -> None:
    done = run(["sh", "-c", "exit 3"], record="crash")
    assert done.returncode == 3
    assert done.stderr.count(b"\n") == 1
    assert b"SIGSEGV" in done.stderr


def test_interpreter_is_fast_enough_to_import() -> None:
    slow = {"drgn", "capstone", "symbolic", "rich"}
    code = f"import sys, necropsy.capture.linux.supervise.launch; sys.exit(bool({slow!r} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
