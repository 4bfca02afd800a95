"""Other tracers: around us, inside of us, and programs that trace themselves. A process has one tracer at most."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import build
from supervised import LIMIT_S, record_of, run_and_record, words

import needs

NULL = "int main(void) { *(volatile int *)8 = 1; return 0; }"


@needs.command("strace")
def test_under_strace(tmp_path: Path) -> None:
    """strace follows every child, so nobody is left for us: the end is the command's, and one line says who has it."""
    command = words([str(build(tmp_path, NULL))], record=tmp_path / "record")
    done = subprocess.run(
        ["strace", "-f", "-o", str(tmp_path / "trace"), *command],
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode in {-signal.SIGSEGV, 128 + signal.SIGSEGV}
    assert b"Traceback" not in done.stderr
    record = record_of(tmp_path / "record")
    (crash,) = record.crashes
    gap = next(gap for gap in crash.gaps if gap.part == "fault")
    assert gap.why.startswith("strace (process ")
    assert "traces it by ptrace already, and a process has one tracer at most" in gap.why
    assert crash.exit is not None and crash.exit.signal == "SIGSEGV"


@needs.command("gdb")
def test_under_gdb(tmp_path: Path) -> None:
    """gdb has the front only (it follows the parent), so the command is ours as ever; gdb sees the front's own end."""
    command = words([str(build(tmp_path, NULL))], record=tmp_path / "record")
    done = subprocess.run(
        ["gdb", "-nx", "-q", "-batch", "-ex", "run", "-ex", "print $_siginfo.si_signo", "--args", *command],
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "DEBUGINFOD_URLS": ""},
    )
    assert b"received signal SIGSEGV" in done.stdout
    (crash,) = record_of(tmp_path / "record").crashes
    assert crash.fault is not None and crash.fault.address == 8


def test_a_command_that_is_traced_by_its_parent(tmp_path: Path) -> None:
    """PTRACE_TRACEME before our start: the tracer has the front; whatever it does, the command is ours."""
    code = """
    #include <signal.h>
    #include <stdio.h>
    #include <sys/ptrace.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        pid_t pid = fork();
        if (!pid) { ptrace(PTRACE_TRACEME, 0, 0, 0); execv(argv[1], argv + 1); _exit(9); }
        for (;;) {
            int status;
            if (waitpid(pid, &status, 0) != pid) return 1;
            if (WIFEXITED(status)) return WEXITSTATUS(status);
            if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
            int signo = WSTOPSIG(status);
            ptrace(PTRACE_CONT, pid, 0, signo == SIGTRAP ? 0 : signo);
        }
    }
    """
    tracing = build(tmp_path, code, name="tracing")
    command = words([str(build(tmp_path, NULL))], record=tmp_path / "record")
    done = subprocess.run([str(tracing), *command], capture_output=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 128 + signal.SIGSEGV
    (crash,) = record_of(tmp_path / "record").crashes
    assert crash.fault is not None and crash.fault.address == 8


SELF = r"""
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (!strcmp(argv[1], "traceme")) {
        /* What a program does that does not want to be debugged. */
        if (ptrace(PTRACE_TRACEME, 0, 0, 0)) { printf("%d\n", errno); return 7; }
        return 8;
    }
    pid_t pid = fork();
    if (!pid) { for (;;) pause(); }
    int status, failed = ptrace(PTRACE_ATTACH, pid, 0, 0) ? errno : 0;
    printf("%d\n", failed);
    kill(pid, SIGKILL);
    if (waitpid(pid, &status, 0) != pid) return 9;
    return failed ? 7 : 8;
}
"""


@pytest.mark.parametrize("how", ["traceme", "attach"])
def test_a_command_that_traces_is_refused_and_goes_on(how: str, tmp_path: Path) -> None:
    """EPERM, as under any tracer: it is told so, nothing hangs, and its end is its own."""
    done, record = run_and_record([str(build(tmp_path, SELF)), how], tmp_path)
    assert (done.returncode, done.stdout) == (7, b"1\n")
    assert {crash.exit.signal for crash in record.crashes if crash.exit} <= {"SIGKILL"}


@pytest.mark.parametrize("name", [pytest.param(name, marks=needs.command(name)) for name in ("gdb", "strace")])
def test_a_debugger_as_the_command_ends_by_itself(name: str, tmp_path: Path) -> None:
    program = str(build(tmp_path, NULL))
    command = {"gdb": ["gdb", "-nx", "-q", "-batch", "-ex", "run", program], "strace": ["strace", "-f", program]}[name]
    done, _ = run_and_record(command, tmp_path)
    assert b"not permitted" in done.stderr
    assert b"necropsy:" not in done.stderr


def test_supervised_in_supervision_in_supervision(tmp_path: Path) -> None:
    """Whoever is outermost sees the death; the end goes through all."""
    program = str(build(tmp_path, NULL))
    inner = words(words([program], record=tmp_path / "third"), record=tmp_path / "second")
    done, outer = run_and_record(inner, tmp_path)
    assert done.returncode == -signal.SIGSEGV
    assert b"Traceback" not in done.stderr
    assert any(crash.fault and crash.fault.address == 8 for crash in outer.crashes)
    for name in ("second", "third"):
        (crash,) = record_of(tmp_path / name).crashes
        assert any("necropsy-trace (process" in gap.why for gap in crash.gaps)


def test_nested_command_lines(tmp_path: Path) -> None:
    """`necropsy run necropsy run ...`: one report, the outer one's."""
    necropsy = [sys.executable, "-m", "necropsy", "run"]
    program = str(build(tmp_path, NULL))
    environment = {**os.environ, "NECROPSY_OUTPUT": str(tmp_path / "reports")}
    done = subprocess.run(
        [*necropsy, *necropsy, program], capture_output=True, timeout=LIMIT_S, env=environment, check=False
    )
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr.count(b"Full report: ") == 1, done.stderr.decode()
    assert len(list((tmp_path / "reports").glob("*.necropsy"))) == 1
