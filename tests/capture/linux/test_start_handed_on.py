"""What necropsy was started with is the command's, what the command says to its parent is the parent's: each program
runs plain and under necropsy, and both must see the same."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import build
from supervised import command_pid, python, started, stat_of, until, words

SETTINGS: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 60}


def both(*around: str, command: list[str], **settings: Any) -> list[tuple[int, bytes]]:
    """Exit code and output of the command, plain and under necropsy; ``around`` is put before each."""
    seen = []
    for one in (command, words(command, log="off")):
        done = subprocess.run([*around, *one], check=False, **{**SETTINGS, **settings})
        seen.append((done.returncode, done.stdout))
    return seen


def same(*around: str, command: list[str], **settings: Any) -> bytes:
    plain, ours = both(*around, command=command, **settings)
    assert ours == plain
    return plain[1]


# ------------------------------------------------------------ dispositions

LOOK = "grep -E 'Sig(Ign|Blk|Pnd)|ShdPnd' /proc/self/status; exit 3"


@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize("ignored", ["PIPE", "XFSZ", "PIPE XFSZ USR1"])
def test_what_the_shell_ignores(shell: str, ignored: str) -> None:
    script = f"trap '' {ignored}; \"$@\"; exit $?"
    out = same(shell, "-c", script, "sh", command=["sh", "-c", LOOK])
    number = getattr(signal, f"SIG{ignored.split(maxsplit=1)[0]}")
    assert int(out.split(b"SigIgn:")[1].split()[0], 16) >> (number - 1) & 1


def test_what_python_ignores_for_itself_is_not_handed_on() -> None:
    same(command=["sh", "-c", LOOK])


def test_a_broken_pipe_of_ours_does_not_end_the_command(tmp_path: Path) -> None:
    """The tracer is gone before the command tells its number: SIGPIPE, blocked then, must not be delivered later."""
    done = subprocess.run(words(["sh", "-c", LOOK], log="off", fault="no_tracer"), check=False, **SETTINGS)
    plain = subprocess.run(["sh", "-c", LOOK], check=False, **SETTINGS)
    assert (done.returncode, done.stdout) == (3, plain.stdout)
    assert b"the program was not affected" in done.stderr


# ------------------------------------------------------------ environment


def test_an_empty_environment_stays_empty() -> None:
    assert same("env", "-i", command=["/usr/bin/env", "-0"]) == b""


NO_PROC = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
FIRST_PROCESS = ["unshare", "--pid", "--fork", "--mount-proc"]


def may_unshare(*options: str) -> bool:
    return (
        shutil.which("unshare") is not None
        and subprocess.run([*options, "true"], check=False, **SETTINGS).returncode == 0
    )


@pytest.mark.skipif(not may_unshare(*NO_PROC), reason="file systems can be mounted by root alone")
def test_the_environment_without_proc() -> None:
    assert same(*NO_PROC, "env", "-i", "B=2", "A=1", command=["/usr/bin/env", "-0"]) == b"B=2\0A=1\0"


@pytest.mark.parametrize("name", ["LISTEN_PID", "WATCHDOG_PID", "SYSTEMD_EXEC_PID"])
def test_a_process_that_is_named_by_number_is_the_command(name: str) -> None:
    code = f"import os; print(os.environ['{name}'] == str(os.getpid()), os.environ.get('LISTEN_FDS'))"
    script = f'export {name}=$$ LISTEN_FDS=2; exec "$@"'
    assert same("sh", "-c", script, "sh", command=python(code)) == b"True 2\n"


def test_another_process_that_is_named_stays_named() -> None:
    code = "import os; print(os.environ['LISTEN_PID'], os.environ['LISTEN_PIDFDID'])"
    environment = {**os.environ, "LISTEN_PID": "1", "LISTEN_PIDFDID": "7"}
    assert same(command=python(code), env=environment) == b"1 7\n"


def test_activated_sockets_reach_the_command(tmp_path: Path) -> None:
    """As systemd starts a service: sockets from descriptor 3 on, and the number of the process."""
    code = """
import os, socket
assert os.environ["LISTEN_PID"] == str(os.getpid())
for number in range(3, 3 + int(os.environ["LISTEN_FDS"])):
    print(number, socket.socket(fileno=number).getsockname())
"""
    start = """
import os, socket, sys
for number in range(3, 15):
    one = socket.socket(socket.AF_UNIX)
    one.bind(f"\\0{os.getpid()}-{number}"[:1] + sys.argv[1] + str(number))
    one.listen()
    handle = one.detach()
    if handle != number:
        os.dup2(handle, number)
        os.close(handle)
    os.set_inheritable(number, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="12")
os.execvp(sys.argv[2], sys.argv[2:])
"""
    seen = same(*python(start, tmp_path.name + str(os.getpid())), command=python(code))
    assert seen.count(b"\n") == 12


# ------------------------------------------------------------ the parent

PARENT = """
import os, signal, subprocess, sys, time
got = []
for one in (signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGWINCH):
    signal.signal(one, lambda signo, frame: got.append(signal.Signals(signo).name))
kind, *command = sys.argv[1:]
child = subprocess.Popen(command, process_group=0) if kind == "apart" else subprocess.Popen(command)
code = child.wait()
time.sleep(0.1)
print(code, got)
"""
"""As a shell: it waits for its child, which is of its process group or of another, and tells what it was sent."""


@pytest.mark.parametrize("kind", ["apart", "together"])
@pytest.mark.parametrize("name", ["SIGUSR1", "SIGTERM", "SIGHUP", "SIGINT", "SIGWINCH"])
def test_a_signal_to_the_parent_is_the_parents(name: str, kind: str) -> None:
    code = f"""
import os, signal, sys, time
signal.signal(signal.{name}, lambda *_: os._exit(99))
os.kill(os.getppid(), signal.{name})
time.sleep(0.5)
sys.exit(5)
"""
    out = same(*python(PARENT, kind), command=python(code))
    assert out == f"5 ['{name}']\n".encode()


@pytest.mark.parametrize("kind", ["apart", "together"])
@pytest.mark.parametrize("way", ["SIG_IGN", "SIG_DFL", "lambda *_: os.write(1, b'mine')"])
def test_a_signal_to_its_own_group_is_no_signal_to_the_parent(kind: str, way: str) -> None:
    code = f"""
import os, signal, sys, time
from signal import SIG_IGN, SIG_DFL
signal.signal(signal.SIGWINCH, {way})
os.kill(0, signal.SIGWINCH)
time.sleep(0.5)
sys.exit(5)
"""
    out = same(*python(PARENT, kind), command=python(code), start_new_session=True)
    assert out.endswith(f"5 {[] if kind == 'apart' else ['SIGWINCH']}\n".encode())
    assert out.count(b"mine") == way.count("mine")


# ------------------------------------------------------------ orphans

ORPHAN = """
import os, time
command = os.getpid()
lives, orphan = os.pipe()
if not os.fork():
    parent = os.getpid()
    if not os.fork():
        while os.getppid() == parent:
            time.sleep(0.01)
        os.write(1, f"{os.getppid() == command}\\n".encode())
        os._exit(0)
    os._exit(0)
os.close(orphan)
os.wait()
try:
    os.wait()
    print("reaped by the command", flush=True)
except ChildProcessError:
    os.read(lives, 1)  # the orphan has ended
    print("not the command's", flush=True)
"""
SUBREAPER = "import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])"


def test_a_subreaper_stays_one() -> None:
    assert same(*python(SUBREAPER), command=python(ORPHAN)) == b"True\nreaped by the command\n"


def test_others_are_no_subreapers() -> None:
    assert same(command=python(ORPHAN)) == b"False\nnot the command's\n"


@pytest.mark.skipif(not may_unshare(*FIRST_PROCESS), reason="a container can be made by root alone")
def test_the_first_process_of_a_container_reaps_orphans() -> None:
    script = """
for i in 1 2 3 4 5 6 7 8 9 10; do (sleep 0.0$i &) ; done
sleep 1
for i in $(seq 600); do grep -q '^State:.Z' /proc/[0-9]*/status || break; sleep 0.1; done
grep -l '^State:.Z' /proc/[0-9]*/status | wc -l
exit 3
"""
    assert both(*FIRST_PROCESS, command=["bash", "-c", script]) == [(3, b"0\n"), (3, b"0\n")]


CLONE_PARENT = r"""
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(void) {
    for (int i = 0; i < 5; i++) {
        long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) _exit(i);
        if (pid < 0) return 1;
    }
    puts("cloned"); fflush(stdout);
    getchar();
    return 7;
}
"""


def test_children_cloned_for_the_parent_do_not_pile_up(tmp_path: Path) -> None:
    program = str(build(tmp_path, CLONE_PARENT, name="cloner"))
    with started([program], popen={"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}) as front:
        assert front.stdout is not None and front.stdin is not None
        assert front.stdout.readline() == b"cloned\n"

        def zombies() -> list[int]:
            entries = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
            return [pid for pid in entries if stat_of(pid)[:2] == ["Z", str(front.pid)]]

        until(lambda: not zombies(), "the front has reaped them")
        front.stdin.close()
        assert front.wait(30) == 7


# ------------------------------------------------------------ values

QUEUED = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
int main(void) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, 0);
    puts("ready"); fflush(stdout);
    for (int i = 0; i < 4; i++) {
        siginfo_t info;
        int signo = sigwaitinfo(&all, &info);
        printf("%d %d %d %ld\n", signo, info.si_code, info.si_value.sival_int, (long)info.si_pid);
        fflush(stdout);
    }
    return 4;
}
"""


def test_a_queued_signal_keeps_its_value_and_its_sender(tmp_path: Path) -> None:
    import ctypes

    program = str(build(tmp_path, QUEUED, name="queued"))
    seen = []
    for command in ([program], words([program], log="off")):
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            if command != [program]:
                command_pid(process.pid)
            for signo, value in (
                (signal.SIGUSR1, 41),
                (signal.SIGRTMIN, 42),
                (signal.SIGRTMIN, 43),
                (signal.SIGRTMAX, 44),
            ):
                assert not ctypes.CDLL(None).sigqueue(process.pid, int(signo), ctypes.c_void_p(value))
                seen.append(process.stdout.readline())
            assert process.wait(30) == 4
    assert seen[:4] == seen[4:]
    assert seen[0] == f"{int(signal.SIGUSR1)} -1 41 {os.getpid()}\n".encode()


WAITING = """
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.kill(os.getpid(), signal.SIGUSR1)
os.execvp(sys.argv[1], sys.argv[1:])
"""


def test_a_signal_that_waits_across_exec_reaches_the_command() -> None:
    code = "import signal; print(signal.sigtimedwait([signal.SIGUSR1], 5).si_signo)"
    assert same(*python(WAITING), command=python(code)) == f"{int(signal.SIGUSR1)}\n".encode()
