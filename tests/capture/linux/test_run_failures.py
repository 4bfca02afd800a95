"""Whatever of ours fails or is killed, the command runs on and ends as it would have; one line says what failed."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from supervised import (
    CORES_HERE,
    Terminal,
    command_pid,
    is_alive,
    kill,
    named,
    python,
    record_of,
    run,
    run_and_record,
    started,
    state,
    until,
    words,
)

CHATTER = """
import os, sys, time
failed = 0
while not os.path.exists(sys.argv[1] + ".end"):
    try:
        os.write(2, b"line\\n")
    except OSError:
        failed += 1
    time.sleep(0.001)
with open(sys.argv[1], "w") as file:
    file.write(str(failed))
raise SystemExit(9)
"""
"""Writes to stderr every millisecond until it is told to end, and counts the writes that fail."""


def end(out: Path) -> None:
    """Tell it."""
    out.with_name(out.name + ".end").touch()


def failures(out: Path) -> str:
    """Its count, once it has ended."""
    return str(until(lambda: out.exists() and out.read_text(), "the command's own end"))


root_only = pytest.mark.skipif(os.geteuid() != 0, reason="auto takes the tap only with CAP_SYS_ADMIN")


def drained(reading: int) -> Any:
    """A process that reads everything, as the other end of stderr."""
    return subprocess.Popen(["cat"], stdin=reading, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("log", ["auto", "tap", "pty", "off"])
@pytest.mark.parametrize("target", ["file", "pipe"])
def test_the_front_is_killed(log: str, target: str, tmp_path: Path) -> None:
    out, record = tmp_path / "failed", tmp_path / "record"
    reading, writing = os.pipe()
    reader = drained(reading)
    os.close(reading)
    stderr = writing if target == "pipe" else os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    command = 0
    try:
        with started(python(CHATTER, str(out)), popen={"stderr": stderr}, log=log, record=record) as front:
            command = command_pid(front.pid)
            time.sleep(0.2)
            front.kill()
            assert front.wait(30) == -signal.SIGKILL
            assert is_alive(command)
            if target == "file":
                before = (tmp_path / "log").stat().st_size
                until(lambda: (tmp_path / "log").stat().st_size > before + 500, "it says more")
            time.sleep(0.2)
            end(out)
            assert failures(out) == "0"
            until(record.exists, "the report")
    finally:
        kill(command) if command else None
        os.close(writing)
        if stderr != writing:
            os.close(stderr)
        reader.wait(30)  # and nobody holds the pipe


@pytest.mark.parametrize("log", ["auto", "tap", "pty"])
def test_the_front_is_killed_on_a_terminal(log: str, tmp_path: Path) -> None:
    out = tmp_path / "failed"
    # The shell keeps the terminal's session alive when the front is gone.
    with Terminal(
        ["sh", "-c", 'trap "" HUP; "$@"; sleep 100', "sh", *words(python(CHATTER, str(out)), log=log)]
    ) as terminal:
        terminal.expect(b"line")
        front = named(terminal.pid, "python")
        command = command_pid(front)
        kill(front)
        try:
            terminal.expect(b"line", times=terminal.read().count(b"line") + 100)
            end(out)
            until(lambda: terminal.read() and out.exists() and out.read_text() != "", "the command's own end")
        finally:
            kill(command)
        assert out.read_text() == "0"


@pytest.mark.parametrize("log", ["auto", "tap", "pty", "off"])
def test_the_tracer_is_killed(log: str, tmp_path: Path) -> None:
    out = tmp_path / "failed"
    with started(python(CHATTER, str(out)), popen={"stderr": subprocess.PIPE}, log=log) as front:
        command_pid(front.pid)
        tracer = named(front.pid, "necropsy-trace")
        time.sleep(0.2)
        kill(tracer)
        until(lambda: not is_alive(tracer), "its end")
        time.sleep(0.2)
        end(out)
        assert front.stderr is not None
        said = front.stderr.read().replace(b"line\n", b"")
        assert front.wait(30) == 9
    assert out.read_text() == "0"
    assert said.count(b"\n") == 1
    assert b"tracer was killed by SIGKILL" in said


def test_the_tracer_is_killed_and_the_command_dies(tmp_path: Path) -> None:
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started(["sh", "-c", "read line; kill -SEGV $$"], popen=pipes) as front:
        assert front.stdin is not None
        command_pid(front.pid)
        kill(named(front.pid, "necropsy-trace"))
        front.stdin.close()
        assert front.wait(30) == -signal.SIGSEGV


def test_the_tracer_is_killed_while_the_command_is_stopped() -> None:
    with started(["sleep", "100"]) as front:
        command = command_pid(front.pid)
        tracer = named(front.pid, "necropsy-trace")
        os.kill(command, signal.SIGSTOP)
        until(lambda: state(command) == "t", "stopped")
        kill(tracer)
        until(lambda: state(command) == "T", "still stopped, by the kernel alone")
        os.kill(command, signal.SIGCONT)
        os.kill(front.pid, signal.SIGCONT)
        until(lambda: state(command) == "S", "running")
        kill(command)
        assert front.wait(30) == -signal.SIGKILL


@pytest.mark.parametrize(("log", "name"), [("tap", "necropsy-tap"), ("pty", "necropsy-relay")])
def test_the_helper_of_the_log_is_killed_again_and_again(log: str, name: str, tmp_path: Path) -> None:
    out, record = tmp_path / "failed", tmp_path / "record"
    log_file = tmp_path / "log"
    # A pipe: a file would be read back, without a tap.
    with (
        log_file.open("wb") as file,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file) as reader,
        started(python(CHATTER, str(out)), popen={"stderr": reader.stdin}, log=log, record=record) as front,
    ):
        command_pid(front.pid)
        for _ in range(40):
            kill(named(front.pid, name))
            time.sleep(0.02)
        end(out)
        assert front.wait(30) == 9
    assert out.read_text() == "0"
    assert b"line\n" in log_file.read_bytes()
    if log == "tap":  # nothing lost and nothing twice; a relay may take what it has in hand with it
        assert record_of(record).log_tail == log_file.read_text()


def test_all_of_ours_are_killed(tmp_path: Path) -> None:
    # With the tap and its keeper both dead nobody can answer a write any more; without a tap nothing changes.
    out = tmp_path / "failed"
    with started(python(CHATTER, str(out)), popen={"stderr": subprocess.DEVNULL}, log="off") as front:
        command = command_pid(front.pid)
        try:
            kill(front.pid, named(front.pid, "necropsy-trace"))
            time.sleep(0.2)
            end(out)
            assert failures(out) == "0"
        finally:
            kill(command)


@pytest.mark.parametrize("log", ["tap", "pty"])
def test_without_a_helper_nothing_is_run(log: str, tmp_path: Path) -> None:
    # The command's writes to stderr would fail or be lost: it is not run at all, and that is said.
    done = run(["touch", str(tmp_path / "ran")], fault="no_helper", log=log)
    assert done.returncode == 125
    assert done.stderr == b"cannot start touch: Resource temporarily unavailable\n"
    assert not (tmp_path / "ran").exists()


def test_a_tracer_that_ends_before_the_log_is_out_has_not_failed() -> None:
    done = run(python("import os; os.write(2, b'line\\n')"), fault="slow_relay", log="pty")
    assert (done.returncode, done.stderr) == (0, b"line\n")


# ---------------------------------------------------------------- ptrace refused

_PTRACE = 101


def refuse_ptrace() -> None:
    """A seccomp filter as containers have it: ptrace(2) answers EPERM."""
    code = b"".join(
        struct.pack("<HBBI", *one)
        for one in ((0x20, 0, 0, 0), (0x15, 0, 1, _PTRACE), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000))
    )

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    libc = ctypes.CDLL(None)
    libc.prctl(38, 1, 0, 0, 0)
    assert libc.prctl(22, 2, ctypes.byref(Program(4, code)), 0, 0) == 0


@pytest.mark.parametrize(
    ("command", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -SEGV $$", -11), ("kill -KILL $$", -9)]
)
def test_ptrace_is_refused(command: str, code: int, tmp_path: Path) -> None:
    done, record = run_and_record(
        ["sh", "-c", f"echo last words >&2; {command}"], tmp_path, popen={"preexec_fn": refuse_ptrace}
    )
    assert done.returncode == code
    assert done.stderr == b"last words\n"
    assert record.processes[0].exit is not None
    assert record.processes[0].command == ("sh", "-c", f"echo last words >&2; {command}")
    assert any(gap.part == "fault" and "ptrace" in gap.why for gap in record.gaps)
    assert len(record.crashes) == (1 if code < 0 else 0)
    for crash in record.crashes:
        assert crash.fault is None
        assert crash.exit is not None and crash.exit.signal == signal.Signals(-code).name
        assert crash.gap("fault") is not None


def test_ptrace_is_refused_and_the_log_is_a_file(tmp_path: Path) -> None:
    with (tmp_path / "log").open("ab") as log:
        done, record = run_and_record(
            ["sh", "-c", "echo last words >&2; kill -ABRT $$"],
            tmp_path,
            popen={"preexec_fn": refuse_ptrace, "capture_output": False, "stderr": log},
        )
    assert done.returncode == -signal.SIGABRT
    assert record.crashes[0].log_tail == "last words\n"


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    for log in ("auto", "tap", "pty", "off"):
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
        with started(["cat"], log=log, popen=pipes) as front:
            command_pid(front.pid)
            beside = [named(front.pid, "necropsy-trace")]
            beside += [named(front.pid, "necropsy-tap")] if log == "tap" else []
            beside += [named(front.pid, "necropsy-relay")] if log == "pty" else []
            assert front.stdin is not None
            front.stdin.close()
            assert front.wait(30) == 0
            # Not even as zombies, which another parent would have to reap.
            assert not [pid for pid in beside if state(pid) is not None], log


# ---------------------------------------------------------------- the ladder where ptrace is refused


def refuse_ptrace_and_allow_cores() -> None:
    refuse_ptrace()
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@CORES_HERE
def test_where_ptrace_is_refused_the_kernels_core_is_read(tmp_path: Path) -> None:
    code = "import ctypes, sys; print('last words', file=sys.stderr, flush=True); ctypes.string_at(0x18)"
    popen = {"preexec_fn": refuse_ptrace_and_allow_cores, "cwd": tmp_path}
    done, record = run_and_record(python(code), tmp_path, popen=popen)
    assert done.returncode == -signal.SIGSEGV
    (crash,) = record.crashes
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.address) == ("SIGSEGV", 0x18)
    assert crash.pid == record.processes[0].pid
    assert crash.exit == record.processes[0].exit
    assert crash.crashed_thread is not None
    assert "PyEval_EvalCode" in [frame.function for frame in crash.crashed_thread.frames or ()]
    gap = crash.gap("process")
    assert gap is not None
    assert "ptrace" in gap.why and str(tmp_path / "core") in gap.why
    assert not any(gap.part == "fault" for gap in record.gaps)


@CORES_HERE
def test_an_older_core_is_nobodys_death(tmp_path: Path) -> None:
    popen: dict[str, Any] = {"preexec_fn": refuse_ptrace_and_allow_cores, "cwd": tmp_path}
    run_and_record(python("import ctypes; ctypes.string_at(0x18)"), tmp_path, popen=popen)
    assert (tmp_path / "core").exists()
    _, record = run_and_record(["sh", "-c", "ulimit -c 0; kill -SEGV $$"], tmp_path, popen=popen)
    assert record.crashes[0].fault is None
    assert record.crashes[0].gap("fault") is not None


def test_where_ptrace_is_refused_faulthandler_names_the_line(tmp_path: Path) -> None:
    code = "def innermost():\n    import ctypes; ctypes.string_at(0x18)\ninnermost()"
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    popen = {"preexec_fn": refuse_ptrace, "env": environment}
    done, record = run_and_record(python(code), tmp_path, popen=popen)
    assert done.returncode == -signal.SIGSEGV
    (crash,) = record.crashes
    assert crash.log_tail is not None
    assert "in innermost" in crash.log_tail
    assert "faulthandler" in {message.kind for message in crash.messages or ()}


def without_the_right_to_trace() -> None:
    """What root in a container has not got: CAP_SYS_PTRACE (19), dropped from the bounding set."""
    assert ctypes.CDLL(None).prctl(24, 19, 0, 0, 0) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="drops a capability of root's")
def test_a_process_that_forbids_to_be_read(tmp_path: Path) -> None:
    code = "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); ctypes.string_at(0x18)"
    done, record = run_and_record(python(code), tmp_path, popen={"preexec_fn": without_the_right_to_trace})
    assert done.returncode == -signal.SIGSEGV
    (crash,) = record.crashes
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.code, crash.fault.address) == ("SIGSEGV", "SEGV_MAPERR", 0x18)
    assert crash.threads is None
    assert crash.registers is not None and "rip" in crash.registers
    gap = crash.gap("process")
    assert gap is not None
    assert "ermi" in gap.why or "denied" in gap.why
