"""The command has what it would have without us: environment, descriptors, signals, limits, terminal, process group."""

from __future__ import annotations

import os
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from supervised import Terminal, is_alive, python, run, started, until, words

LOOK = """
import json, os, resource
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
fds = {n: os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")}
print(json.dumps({
    "signals": {k: status[k].strip() for k in ("SigBlk", "SigIgn", "SigCgt", "SigPnd", "ShdPnd")},
    "privileges": {k: status.get(k, "").strip() for k in ("NoNewPrivs", "CapEff", "Groups", "Uid")},
    "fds": sorted((n, re_pipe(l)) for n, l in fds.items()),
    "cwd": os.getcwd(), "umask": status["Umask"].strip(), "nice": os.nice(0), "group": os.getpgrp() - 0, "session": os.getsid(0),
    "limits": {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")},
    "personality": open("/proc/self/personality").read(), "oom": open("/proc/self/oom_score_adj").read(),
    "affinity": sorted(os.sched_getaffinity(0)), "scheduler": os.sched_getscheduler(0), "timerslack": open("/proc/self/timerslack_ns").read(),
}))
""".replace("re_pipe(l)", "l if not l.startswith('/proc') else 'proc'")


def with_and_without(command: list[str], **popen: Any) -> tuple[bytes, bytes]:
    settings: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stderr": subprocess.PIPE, "timeout": 60, **popen}
    plain = subprocess.run(command, stdout=subprocess.PIPE, check=True, **settings)
    ours = subprocess.run(words(command, log="off"), stdout=subprocess.PIPE, check=True, **settings)
    return plain.stdout, ours.stdout


def without_pipes(looked: bytes) -> str:
    """The same with the numbers of pipes left out: each run has its own."""
    return re.sub(r"pipe:\[\d+\]", "pipe", looked.decode())


def test_everything_that_exec_hands_on() -> None:
    plain, ours = with_and_without(python(LOOK))
    assert without_pipes(plain) == without_pipes(ours)


def test_inherited_descriptors() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    null = os.open(os.devnull, os.O_RDWR)
    high = os.dup2(null, 57)
    try:
        plain, ours = with_and_without(python(LOOK), pass_fds=(writing, high))
        assert without_pipes(plain) == without_pipes(ours)
        assert '"57"' in ours.decode()
    finally:
        for end in (reading, writing, null, high):
            os.close(end)


@pytest.mark.parametrize("closed", [(0,), (1,), (0, 2), (0, 1, 2)])
def test_closed_descriptors_stay_closed(closed: tuple[int, ...], tmp_path: Path) -> None:
    seen = []
    for index, command in enumerate((["sh"], words(["sh"], log="off"))):
        out = tmp_path / f"out{index}"
        redirect = " ".join(f"{number}>&-" for number in closed)
        script = f"exec {redirect}; exec \"$@\" -c 'ls -l /proc/self/fd >{out}; exit 3'"
        # ls itself opens one more; where 1 is closed the redirection opens it for ls alone
        done = subprocess.run(["sh", "-c", script, "sh", *command], check=False, timeout=60, capture_output=True)
        assert done.returncode == 3
        seen.append(sorted(line.split()[8] for line in out.read_text().splitlines() if "->" in line))
    assert seen[0] == seen[1]


def test_environment_is_byte_for_byte_the_same() -> None:
    for environment in (
        {"PATH": os.environ["PATH"]},
        {"PATH": os.environ["PATH"], "LC_ALL": "C", "ODD": "a=b\nc", "EMPTY": ""},
        {"Z": "1", "PATH": os.environ["PATH"], "A": "2", "LC_CTYPE": "C", "M": "3"},
        {b"PATH": os.environb[b"PATH"], b"BYTES": b"\xff\xfe"},
    ):
        plain, ours = with_and_without(["env", "-0"], env=environment)
        assert plain == ours


def test_environment_with_duplicates_and_entries_without_a_value() -> None:
    import ctypes

    entries = [b"PATH=" + os.environb[b"PATH"], b"TWICE=1", b"TWICE=2", b"no-equals-sign"]
    seen = []
    for command in (["env", "-0"], words(["env", "-0"], log="off")):
        path = ("/usr/bin/env" if command[0] == "env" else command[0]).encode()
        reading, writing = os.pipe()
        pid = os.fork()
        if not pid:
            os.dup2(writing, 1)
            argv = (ctypes.c_char_p * (len(command) + 1))(*[os.fsencode(word) for word in command], None)
            envp = (ctypes.c_char_p * (len(entries) + 1))(*entries, None)
            ctypes.CDLL(None).execve(path, argv, envp)
            os._exit(1)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            seen.append(file.read())
        assert os.waitpid(pid, 0)[1] == 0
    assert seen[0] == seen[1] != b""


def disposed(ignored: tuple[int, ...], blocked: tuple[int, ...]) -> Any:
    def prepare() -> None:
        for signo in ignored:
            signal.signal(signo, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    return prepare


@pytest.mark.parametrize(
    ("ignored", "blocked"),
    [
        ((signal.SIGHUP,), ()),
        ((signal.SIGINT, signal.SIGQUIT), ()),
        ((signal.SIGCHLD,), ()),
        ((signal.SIGUSR1,), (signal.SIGUSR1, signal.SIGTERM)),
        ((), (signal.SIGINT, signal.SIGCHLD, signal.SIGRTMIN + 3)),
    ],
)
def test_signal_mask_and_dispositions(ignored: tuple[int, ...], blocked: tuple[int, ...]) -> None:
    # grep, not Python: Python ignores two signals by itself.
    command = ["grep", "-E", "^Sig(Blk|Ign|Cgt)", "/proc/self/status"]
    plain, ours = with_and_without(command, preexec_fn=disposed(ignored, blocked))
    assert plain == ours


def test_exit_status_where_sigchld_is_ignored() -> None:
    assert run(["sh", "-c", "exit 9"], popen={"preexec_fn": disposed((signal.SIGCHLD,), ())}).returncode == 9


def test_limits_umask_nice_and_folder(tmp_path: Path) -> None:
    def prepare() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (3_000_000, 5_000_000))
        resource.setrlimit(resource.RLIMIT_NOFILE, (77, 99))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.umask(0o027)
        os.nice(3)
        os.chdir(tmp_path)

    plain, ours = with_and_without(python(LOOK), preexec_fn=prepare)
    assert without_pipes(plain) == without_pipes(ours)


def test_stdin_and_stdout_pass_through() -> None:
    data = os.urandom(1_000_000)
    done = subprocess.run(words(["cat"]), input=data, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, data)


def test_the_reader_of_stdout_sees_its_end_when_the_command_closes_it() -> None:
    code = "import os, sys; os.write(1, b'x'); os.close(1); os.read(0, 1)"
    with started(python(code), popen={"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}) as front:
        assert front.stdout is not None and front.stdin is not None
        assert front.stdout.read() == b"x"  # would wait for ever if one of ours held the pipe
        assert front.poll() is None
        front.stdin.close()
        assert front.wait(30) == 0


def test_a_lock_held_by_descriptor_ends_when_the_command_lets_go(tmp_path: Path) -> None:
    import fcntl

    file = tmp_path / "lock"
    held = os.open(file, os.O_CREAT | os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    code = f"import os; os.close({held}); os.read(0, 1)"
    with started(python(code), popen={"stdin": subprocess.PIPE, "pass_fds": (held,)}) as front:
        os.close(held)

        def is_free() -> bool:
            with file.open() as other:
                try:
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return False
                return True

        until(is_free, "the lock is free")
        assert front.poll() is None


def test_a_closed_stdout_reaches_the_command_as_sigpipe() -> None:
    done = subprocess.run(
        [
            "sh",
            "-c",
            '{ "$@"; echo $? >&2; } | true',
            "sh",
            *words(["sh", "-c", "sleep 0.3; while :; do echo y; done"], log="off"),
        ],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.stderr.strip() == b"141"


def test_a_socket_as_stdin_and_stdout() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        front = subprocess.Popen(words(["cat"], log="off"), stdin=theirs.fileno(), stdout=theirs.fileno())
        theirs.close()
        ours.sendall(b"hello")
        assert ours.recv(100) == b"hello"
        ours.shutdown(socket.SHUT_WR)
        assert front.wait(30) == 0
        assert ours.recv(100) == b""


@pytest.mark.parametrize("log", ["auto", "off", "pty", "tap"])
def test_terminal(log: str) -> None:
    code = "import os; print('tty', [os.isatty(n) for n in range(3)], os.get_terminal_size(2), os.tcgetpgrp(0) == os.getpgrp())"
    with Terminal(words(python(code), log=log)) as terminal:
        terminal.expect(b"[True, True, True]")
        terminal.expect(b"True\r\n")
        assert os.waitstatus_to_exitcode(terminal.wait()) == 0


def test_terminal_settings_are_not_touched() -> None:
    import termios

    for log in ("auto", "pty"):
        with Terminal(words(["sleep", "0.3"], log=log)) as terminal:
            before = termios.tcgetattr(terminal.end)
            terminal.wait()
            assert termios.tcgetattr(terminal.end) == before


def test_the_kernels_parent_death_signal_reaches_the_command() -> None:
    # The launcher says: when I die, my child dies. Without us that is the command.
    code = f"""
import ctypes, os, subprocess, sys
def die_with_parent():
    ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
child = subprocess.Popen({words(python("import os, time; print(os.getpid(), flush=True); time.sleep(100)"), log="off")!r}, preexec_fn=die_with_parent)
sys.stdin.read()
os._exit(0)
"""
    with subprocess.Popen(python(code), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as launcher:
        assert launcher.stdin is not None and launcher.stdout is not None
        command = int(launcher.stdout.readline())
        assert is_alive(command)
        launcher.stdin.close()
        until(lambda: not is_alive(command), "the command's end")


def test_nothing_of_ours_in_the_command(tmp_path: Path) -> None:
    code = "import sys; print(sorted(k for k in sys.modules if 'necropsy' in k), open('/proc/self/maps').read().count('necropsy'))"
    assert run(python(code)).stdout == b"[] 0\n"


def test_an_alarm_set_before_reaches_the_command() -> None:
    # `perl -e 'alarm 1; exec @ARGV'`: a timer lives on in exec, but not in fork.
    code = f"import os, signal; signal.alarm(1); os.execv({sys.executable!r}, {words(['sleep', '50'], log='off')!r})"
    begin = time.monotonic()
    assert subprocess.run(python(code), check=False, timeout=50).returncode == -signal.SIGALRM
    assert time.monotonic() - begin < 45
