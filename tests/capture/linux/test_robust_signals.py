"""Signals to anybody at any moment: the command gets what it would have got, and killing us never harms it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import build
from supervised import (
    Terminal,
    children,
    command_pid,
    is_alive,
    kill,
    named,
    python,
    record_of,
    run_and_record,
    started,
    stat_of,
    state,
    until,
    words,
)

import crashers.build

WORKER = (crashers.build.HERE / "counting.c").read_text()


def count(path: Path) -> int:
    data = path.read_bytes() if path.exists() else b""
    return int.from_bytes(data, "little")


def counts_on(path: Path, what: str) -> None:
    before = count(path)
    until(lambda: count(path) > before + 20, f"it counts on {what}")


def gone(pid: int) -> None:
    until(lambda: not is_alive(pid), f"the end of {pid}")


def let_go(pid: int) -> None:
    until(lambda: state(pid) != "t", f"{pid} is not held")


def ours_of(front: int) -> list[int]:
    """The front and its helpers."""
    helpers = [pid for pid, name in children(front).items() if name.startswith("necropsy-")]
    return [front, *helpers]


def processes_of(mark: str) -> list[int]:
    """Whose command line has this word in it, as ``pgrep -f`` finds them."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
    return found


@pytest.fixture
def heir() -> Iterator[None]:
    """Processes whose parent is killed become ours, so that we learn how they end (prctl(2))."""
    libc = ctypes.CDLL(None)
    assert libc.prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
    yield
    libc.prctl(36, 0, 0, 0, 0)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@contextlib.contextmanager
def counting(program: str, folder: Path, log: str, *, file: bool) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """``program`` counts under our eyes; stderr is a file, or a pipe with a reader."""
    with (folder / "err").open("wb") as err:
        target = None if file else subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=err)
        front = subprocess.Popen(
            words([program, str(folder / "counter"), str(folder / "stop")], log=log, record=folder / "record"),
            stderr=target.stdin if target else err,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        if target and target.stdin:
            target.stdin.close()
        try:
            yield front, folder / "counter"
        finally:
            kill(*processes_of(str(folder)), front.pid)
            front.wait()
            if target:
                target.wait(30)


def lines_of(folder: Path) -> int:
    return sum(line.isdigit() for line in (folder / "err").read_bytes().split(b"\n"))


@pytest.mark.usefixtures("heir")
@pytest.mark.parametrize(("stderr", "log", "turns"), [("file", "auto", 25), ("pipe", "auto", 50), ("pipe", "off", 25)])
def test_all_of_ours_are_killed_at_random_moments(stderr: str, log: str, turns: int, tmp_path: Path) -> None:
    """A hundred times: all of them in one go. The command counts on, writes every line, and ends as it would."""
    program = str(build(tmp_path, WORKER, name="worker"))
    rng = random.Random(stderr + log)
    for turn in range(turns):
        folder = tmp_path / str(turn)
        folder.mkdir()
        with counting(program, folder, log, file=stderr == "file") as (front, counter):
            worker = command_pid(front.pid)
            if turn % 2:
                counts_on(counter, "at first")
                time.sleep(rng.uniform(0, 0.03))
            victims = processes_of(str(folder / "record"))
            assert len(victims) >= 2 and worker not in victims
            kill(*victims)
            counts_on(counter, f"after turn {turn}")
            for victim in victims:  # who is killed may live on for a while on a full machine, and have its child still
                gone(victim)
            let_go(worker)
            (folder / "stop").touch()
            assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == 9, "no write of it has failed"
        assert lines_of(folder) >= count(counter) - 1


@pytest.mark.parametrize(("stderr", "log"), [("file", "auto"), ("pipe", "auto"), ("pipe", "tap"), ("pipe", "pty")])
def test_one_of_ours_is_killed_at_random_moments(stderr: str, log: str, tmp_path: Path) -> None:
    """Whichever it is, the command counts on and every line is written.

    With a tap or a relay one process of two must be left to answer for what the command writes
    (docs/explanation/limits.md).
    """
    program = str(build(tmp_path, WORKER, name="worker"))
    rng = random.Random(stderr + log)
    for turn in range(15):
        folder = tmp_path / str(turn)
        folder.mkdir()
        with counting(program, folder, log, file=stderr == "file") as (front, counter):
            worker = command_pid(front.pid)
            if turn % 2:
                counts_on(counter, "at first")
                time.sleep(rng.uniform(0, 0.03))
            victim = rng.choice(ours_of(front.pid))
            kill(victim)
            counts_on(counter, f"after turn {turn}")
            let_go(worker)
            (folder / "stop").touch()
            gone(worker)
            if front.pid != victim:
                assert front.wait(30) == 9
        # What a killed relay had just taken may be lost with it.
        assert lines_of(folder) >= count(counter) - (50 if log == "pty" else 1), (turn, victim)


def test_killed_while_it_starts(tmp_path: Path) -> None:
    """The front dies before, while or after it starts the command: there is no command, or it runs and is not held."""
    program = str(build(tmp_path, WORKER, name="worker"))
    for turn in range(20):
        counter, stop = tmp_path / f"counter{turn}", tmp_path / f"stop{turn}"
        with (tmp_path / "err").open("wb") as file:
            front = subprocess.Popen(
                words([program, str(counter), str(stop)]), stderr=file, stdin=subprocess.DEVNULL, start_new_session=True
            )
            time.sleep(0.05 + turn * 0.012)
            kill(front.pid)
            front.wait()
        try:
            time.sleep(0.05)
            if counter.exists():
                counts_on(counter, f"after turn {turn}")
        finally:
            stop.touch()
        empty(front.pid)


def session_of(leader: int) -> list[int]:
    """Who lives in the session (the tracer and its helpers are in sessions of their own, but share nothing longer)."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and (stat_of(int(entry.name)) or ["Z", "", "", "0"])[3] == str(leader)
        if is_alive(int(entry.name))
    ]


def empty(leader: int) -> None:
    until(lambda: not session_of(leader), "nothing is left of it")


# ------------------------------------------------------------ stopped and continued


def test_stopped_and_continued_all_the_time(tmp_path: Path) -> None:
    """SIGSTOP and SIGCONT to the command, to us, and to its threads, again and again; then it dies and is read."""
    source = r"""
    #include <pthread.h>
    #include <unistd.h>
    static void *work(void *a) { volatile unsigned long n = 0; for (;;) n++; }
    int main(void) {
        char end;
        pthread_t one;
        pthread_create(&one, 0, work, 0);
        pthread_create(&one, 0, work, 0);
        write(1, "ready", 5);
        read(0, &end, 1);
        *(volatile int *)8 = 1;
    }
    """
    record = tmp_path / "record"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started([str(build(tmp_path, source))], record=record, popen=pipes) as front:
        assert front.stdin is not None and front.stdout is not None
        assert front.stdout.read(5) == b"ready"
        command = command_pid(front.pid)
        rng = random.Random(3)
        for _ in range(60):
            for target in (command, front.pid):
                os.kill(target, signal.SIGSTOP)
                time.sleep(rng.uniform(0, 0.003))
                os.kill(target, signal.SIGCONT)
        os.kill(command, signal.SIGSTOP)
        until(lambda: state(command) in {"T", "t"}, "it is stopped")
        # What comes while it is stopped waits, as it would without us.
        front.stdin.write(b"x")
        front.stdin.flush()
        os.kill(command, signal.SIGCONT)
        os.kill(front.pid, signal.SIGCONT)
        assert front.wait(30) == -signal.SIGSEGV
    (crash,) = record_of(record).crashes
    assert crash.fault is not None and crash.fault.address == 8
    assert crash.threads is not None and len(crash.threads) == 3


def test_stopped_while_it_is_read(tmp_path: Path) -> None:
    """A stop in the middle of its death changes nothing of it."""
    source = r"""
    #include <signal.h>
    #include <unistd.h>
    int main(void) {
        pid_t pid = getpid();
        if (!fork()) { for (int i = 0; i < 40; i++) { usleep(5000); kill(pid, SIGSTOP); kill(pid, SIGCONT); } _exit(0); }
        usleep(20000);
        *(volatile int *)8 = 1;
    }
    """
    done, record = run_and_record([str(build(tmp_path, source))], tmp_path)
    assert done.returncode == -signal.SIGSEGV
    (crash,) = record.crashes
    assert crash.fault is not None and crash.fault.address == 8


# ------------------------------------------------------------ twice

TWICE = """
import signal, sys, time
seen = 0
def count(*_):
    global seen
    seen += 1
    print("seen", seen, flush=True)
    if seen == 2: raise SystemExit(42)
signal.signal(signal.Signals[sys.argv[1]], count)
print("ready", flush=True)
while True: time.sleep(0.05)
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_twice_to_us_while_it_runs(name: str) -> None:
    with started(python(TWICE, name), popen={"stdout": subprocess.PIPE}) as front:
        assert front.stdout is not None
        assert front.stdout.readline() == b"ready\n"
        for expected in (b"seen 1\n", b"seen 2\n"):
            os.kill(front.pid, signal.Signals[name])
            assert front.stdout.readline() == expected
        assert front.wait(30) == 42


def test_ctrl_c_twice_at_the_terminal() -> None:
    with Terminal(words(python(TWICE, "SIGINT"))) as terminal:
        terminal.expect(b"ready")
        terminal.type(b"\x03")
        terminal.expect(b"seen 1")
        terminal.type(b"\x03")
        terminal.expect(b"seen 2")
        assert os.waitstatus_to_exitcode(terminal.wait()) == 42
        assert b"Traceback" not in terminal.seen


@pytest.mark.parametrize("signo", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_twice_to_us_while_the_report_is_written(signo: signal.Signals, tmp_path: Path) -> None:
    """A FIFO without a reader holds the report up for ever; an impatient user gets the command's own end at once."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with started(python("import os; os.kill(os.getpid(), 11)"), record=fifo) as front:
        tracer = named(front.pid, "necropsy-trace")
        reporter = int(until(lambda: reporter_of(tracer) if not commands(front.pid) else 0, "the report"))
        os.kill(front.pid, signo)
        os.kill(front.pid, signo)
        assert front.wait(10) == -signal.SIGSEGV
        kill(reporter)
        until(lambda: not is_alive(tracer), "the tracer ends too")


def reporter_of(tracer: int) -> int:
    return next((pid for pid, name in children(tracer).items() if name != "necropsy-read"), 0)


def commands(front: int) -> list[int]:
    return [pid for pid, name in children(front).items() if not name.startswith("necropsy-")]


# ------------------------------------------------------------ the terminal afterwards


@pytest.mark.parametrize("log", ["auto", "pty", "off"])
@pytest.mark.parametrize("signo", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
def test_the_terminal_is_left_as_the_command_left_it(log: str, signo: signal.Signals) -> None:
    """A program that dies in raw mode leaves raw mode: with us and without us the same."""
    code = f"import os, tty; tty.setraw(0); os.write(1, b'raw'); os.kill(os.getpid(), {int(signo)})"
    left = []
    for command in (python(code), words(python(code), log=log)):
        with Terminal(command) as terminal:
            terminal.expect(b"raw")
            status = terminal.wait()
            assert os.waitstatus_to_exitcode(status) == -signo
            left.append(termios.tcgetattr(terminal.end))
            assert b"\x1b" not in terminal.seen
    assert left[0] == left[1]


def test_the_terminal_is_left_as_it_was_where_the_command_did_not_touch_it(tmp_path: Path) -> None:
    """Also where we are killed in the middle."""
    for victim in ("nobody", "front", "necropsy-trace"):
        with Terminal(words(python("import sys; print('ready', flush=True); sys.stdin.readline()"))) as terminal:
            before = termios.tcgetattr(terminal.end)
            terminal.expect(b"ready")
            if victim == "front":
                command = command_pid(terminal.pid)
                kill(terminal.pid)
                gone(command)
            elif victim != "nobody":
                kill(named(terminal.pid, victim))
            if victim != "front":
                terminal.type(b"\n")
            terminal.wait()
            assert termios.tcgetattr(terminal.end) == before
