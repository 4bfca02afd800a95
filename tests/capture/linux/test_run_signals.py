"""A signal sent to us is the command's, once; the terminal's keys work as they do without us."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from supervised import (
    Terminal,
    children,
    command_pid,
    is_alive,
    kill,
    named,
    python,
    record_of,
    started,
    state,
    until,
    words,
)

COUNT = """
import os, signal, sys, time
seen = []
def note(signo, frame):
    # Not print(): the signal may come while the line below is still being written.
    seen.append(signo); os.write(1, f"got {signal.Signals(signo).name}\\n".encode())
for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT, signal.SIGCONT, signal.SIGWINCH):
    signal.signal(one, note)
print("ready", flush=True)
while not seen:
    time.sleep(0.01)
time.sleep(0.3)
print("total", len(seen), flush=True)
"""
"""Waits for a signal, and a little longer for one too many."""


@pytest.mark.parametrize(
    "signo", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH, signal.SIGCONT]
)
def test_a_signal_sent_to_us_reaches_the_command_once(signo: signal.Signals) -> None:
    with started(python(COUNT), popen={"stdout": subprocess.PIPE}) as front:
        assert front.stdout is not None
        assert front.stdout.readline() == b"ready\n"
        front.send_signal(signo)
        assert front.stdout.read() == f"got {signo.name}\ntotal 1\n".encode()
        assert front.wait(30) == 0


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_sent_to_the_group_reaches_the_command_once(signo: signal.Signals) -> None:
    with started(python(COUNT), popen={"stdout": subprocess.PIPE}) as front:
        assert front.stdout is not None
        assert front.stdout.readline() == b"ready\n"
        os.killpg(front.pid, signo)
        assert front.stdout.read() == f"got {signo.name}\ntotal 1\n".encode()


def test_a_signal_to_the_group_that_the_command_blocks_is_not_doubled() -> None:
    code = """
import signal, time
got = []
signal.signal(signal.SIGUSR1, lambda *a: got.append(1))
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print("ready", flush=True)
while signal.SIGUSR1 not in signal.sigpending():
    time.sleep(0.01)
time.sleep(0.3)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
time.sleep(0.3)
print(len(got))
"""
    with started(python(code), popen={"stdout": subprocess.PIPE}) as front:
        assert front.stdout is not None
        front.stdout.readline()
        os.killpg(front.pid, signal.SIGUSR1)
        assert front.stdout.read() == b"1\n"


def test_a_signal_that_kills(tmp_path: Path) -> None:
    with started(["sleep", "100"], record=tmp_path / "record") as front:
        command_pid(front.pid)
        front.send_signal(signal.SIGTERM)
        assert front.wait(30) == -signal.SIGTERM
    (crash,) = record_of(tmp_path / "record").crashes
    assert crash.fault is not None
    assert crash.fault.sender == os.getpid() != front.pid, "who passed it on has not sent it"


def test_the_sender_of_a_signal_to_the_command_itself_is_known(tmp_path: Path) -> None:
    with started(["sleep", "100"], record=tmp_path / "record") as front:
        os.kill(command_pid(front.pid), signal.SIGTERM)
        assert front.wait(30) == -signal.SIGTERM
    (crash,) = record_of(tmp_path / "record").crashes
    assert crash.fault is not None
    assert (crash.fault.sender, crash.fault.sent_by_itself) == (os.getpid(), False)


@pytest.mark.parametrize("log", ["auto", "pty"])
def test_ctrl_c_reaches_the_command_exactly_once(log: str) -> None:
    with Terminal(words(python(COUNT), log=log)) as terminal:
        terminal.expect(b"ready")
        terminal.type(b"\x03")
        terminal.expect(b"total")
        terminal.expect(b"total 1")
        assert terminal.seen.count(b"got SIGINT") == 1
        assert terminal.wait() == 0


def test_ctrl_c_that_kills() -> None:
    with Terminal(words(["sleep", "100"])) as terminal:
        command_pid(terminal.pid)
        terminal.type(b"\x03")
        assert os.waitstatus_to_exitcode(terminal.wait()) == -signal.SIGINT


def test_ctrl_backslash_reaches_the_command_exactly_once() -> None:
    with Terminal(words(python(COUNT))) as terminal:
        terminal.expect(b"ready")
        terminal.type(b"\x1c")
        terminal.expect(b"total 1")


def test_resized_window_reaches_the_command_once() -> None:
    import fcntl
    import struct
    import termios

    for log in ("auto", "pty"):
        with Terminal(words(python(COUNT + "print(os.get_terminal_size(2))"), log=log)) as terminal:
            terminal.expect(b"ready")
            fcntl.ioctl(terminal.end, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
            terminal.expect(b"total 1")
            terminal.expect(b"columns=77, lines=33")


def test_hang_up_of_the_terminal_reaches_the_command(tmp_path: Path) -> None:
    # The front is the leader of the session here: the kernel tells it alone.
    out = tmp_path / "out"
    code = """
import os, signal, sys
def note(signo, frame):
    open(sys.argv[1], "w").write("hang-up")
    os._exit(4)
signal.signal(signal.SIGHUP, note)
print("ready", flush=True)
while True:
    signal.pause()
"""
    with Terminal(words(python(code, str(out)))) as terminal:
        terminal.expect(b"ready")
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, terminal.end)  # the last descriptor of our end is closed
        os.close(null)
        assert os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1]) == 4
        terminal.ended = True
    assert out.read_text() == "hang-up"


# ---------------------------------------------------------------- job control, from a shell with a terminal

SHELL = ["bash", "--norc", "--noprofile", "-i"]


def shell(terminal: Terminal, line: str) -> None:
    terminal.type(line.encode() + b"\n")


@pytest.fixture
def prompt(monkeypatch: pytest.MonkeyPatch) -> bytes:
    monkeypatch.setenv("PS1", "PROMPT> ")
    monkeypatch.setenv("HISTFILE", "/dev/null")
    return b"PROMPT> "


def quoted(command: list[str]) -> str:
    import shlex

    return shlex.join(command)


GO_ON = """
import os, sys, time
print("re" + "ady", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
print("en" + "ded", flush=True)
sys.exit(5)
"""
"""Works until it is told to end, by a file."""


@pytest.mark.parametrize("log", ["auto", "pty", "off"])
def test_ctrl_z_fg(prompt: bytes, log: str, tmp_path: Path) -> None:
    script, end = tmp_path / "works.py", tmp_path / "end"
    script.write_text(GO_ON)
    with Terminal(SHELL) as terminal:
        terminal.expect(prompt)
        shell(terminal, quoted(words([sys.executable, str(script), str(end)], log=log)) + "; echo status=$?")
        terminal.expect(b"ready")
        front = until(lambda: next(iter(children(terminal.pid)), 0), "the front")
        command = command_pid(front)
        terminal.type(b"\x1a")
        terminal.expect(b"Stopped")
        terminal.expect(prompt, times=2)
        assert (state(front), state(command)) == ("T", "t")
        end.touch()
        time.sleep(0.3)
        assert b"ended" not in terminal.read()
        shell(terminal, "fg; echo status=$?")
        terminal.expect(b"ended")
        terminal.expect(b"status=5")
        shell(terminal, "exit")
        terminal.wait()


def test_ctrl_z_bg_then_wait(prompt: bytes, tmp_path: Path) -> None:
    script, end = tmp_path / "works.py", tmp_path / "end"
    script.write_text(GO_ON)
    with Terminal(SHELL) as terminal:
        terminal.expect(prompt)
        shell(terminal, quoted(words([sys.executable, str(script), str(end)])))
        terminal.expect(b"ready")
        terminal.type(b"\x1a")
        terminal.expect(b"Stopped")
        end.touch()
        shell(terminal, "bg; wait %1; echo status=$?")
        terminal.expect(b"ended")
        terminal.expect(b"status=5")
        shell(terminal, "exit")
        terminal.wait()


def test_ctrl_z_twice_then_ctrl_c(prompt: bytes) -> None:
    with Terminal(SHELL) as terminal:
        terminal.expect(prompt)
        shell(terminal, quoted(words(["sleep", "100"])))
        front = until(lambda: next(iter(children(terminal.pid)), 0), "the front")
        command_pid(front)
        for count in (1, 2):
            terminal.type(b"\x1a")
            terminal.expect(b"Stopped", times=count)
            shell(terminal, "fg")
            until(lambda: state(front) == "S", "the front runs")
        terminal.type(b"\x03")
        until(lambda: not is_alive(front), "the end")
        shell(terminal, "echo status=$?")
        terminal.expect(b"status=130")
        shell(terminal, "exit")
        terminal.wait()


def test_reading_from_the_terminal_in_the_background_stops_both(prompt: bytes) -> None:
    with Terminal(SHELL) as terminal:
        terminal.expect(prompt)
        shell(terminal, quoted(words(["cat"])) + " &")
        terminal.expect(prompt, times=2)
        front = until(lambda: next(iter(children(terminal.pid)), 0), "the front")
        until(lambda: state(front) == "T", "the front is stopped")
        shell(terminal, "fg")
        until(lambda: state(front) == "S", "the front runs")
        shell(terminal, "through cat")
        terminal.expect(b"through cat", times=2)
        terminal.type(b"\x04")
        until(lambda: not is_alive(front), "the end")
        shell(terminal, "exit")
        terminal.wait()


def test_an_interactive_shell_as_the_command(prompt: bytes) -> None:
    with Terminal(words(SHELL)) as terminal:
        terminal.expect(prompt)
        shell(terminal, "sleep 100")
        named(command_pid(terminal.pid), "sleep")
        terminal.type(b"\x1a")
        terminal.expect(b"Stopped")
        shell(terminal, "kill %1; exit 7")
        terminal.expect(b"exit")
        shell(terminal, "exit 7")
        assert os.waitstatus_to_exitcode(terminal.wait()) == 7


def test_a_command_that_stops_itself_and_is_continued_by_another() -> None:
    # Its child continues it and knows nothing of us: we must come back too, or the end is never seen.
    code = """
import os, signal, time
pid = os.getpid()
if os.fork() == 0:
    os.read(0, 1); os.kill(pid, signal.SIGCONT); os._exit(0)
os.kill(pid, signal.SIGSTOP)
os.wait()
raise SystemExit(6)
"""
    with started(python(code), popen={"stdin": subprocess.PIPE}) as front:
        assert front.stdin is not None
        until(lambda: state(front.pid) == "T", "the front is stopped")
        front.stdin.close()
        assert front.wait(30) == 6


def test_a_command_that_is_stopped_and_continued_faster_than_we_can_stop() -> None:
    code = """
import os, signal, time
pid = os.getpid()
child = os.fork()
while child == 0:
    os.kill(pid, signal.SIGCONT)
    time.sleep(0.0002)
for n in range(300):
    os.kill(pid, signal.SIGSTOP)
os.kill(child, signal.SIGKILL)
raise SystemExit(6)
"""
    with started(python(code)) as front:
        assert front.wait(60) == 6


def test_ctrl_z_many_times(prompt: bytes) -> None:
    with Terminal(SHELL) as terminal:
        terminal.expect(prompt)
        shell(terminal, quoted(words(["sleep", "100"])))
        front = until(lambda: next(iter(children(terminal.pid)), 0), "the front")
        command = command_pid(front)
        for count in range(1, 30):
            terminal.type(b"\x1a")
            terminal.expect(b"Stopped", times=count)
            shell(terminal, "fg")
            terminal.expect(b"fg\r\n", times=count)
            until(lambda: state(front) == "S" and state(command) == "S", "both run")
        terminal.type(b"\x03")
        until(lambda: not is_alive(front), "the end")
        shell(terminal, "exit")
        terminal.wait()


def test_stopping_and_continuing_by_signals_to_us() -> None:
    with started(["sleep", "100"]) as front:
        command = command_pid(front.pid)
        # A session of its own without a terminal: its group is an orphan, where only SIGSTOP stops.
        os.kill(command, signal.SIGSTOP)
        until(lambda: state(front.pid) == "T" and state(command) == "t", "both are stopped")
        os.kill(front.pid, signal.SIGCONT)
        until(lambda: state(front.pid) == "S" and state(command) == "S", "both run")
        kill(command)
        assert front.wait(30) == -signal.SIGKILL
