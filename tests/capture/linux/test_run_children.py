"""Every descendant is followed, and none is changed by it: many, quick, vforked, threaded, orphaned, executed by a thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from harness import build
from supervised import is_alive, kill, python, record_of, run, run_and_record, started, until, words


def test_many_short_children(tmp_path: Path) -> None:
    done, record = run_and_record(
        ["sh", "-c", "n=0; while [ $n -lt 200 ]; do /bin/true; n=$((n+1)); done; exit 4"], tmp_path
    )
    assert done.returncode == 4
    root, *others = record.processes
    assert len(others) == 200
    assert {one.parent for one in others} == {root.pid}
    assert {one.executable for one in others} == {os.path.realpath("/bin/true")}
    assert all(one.exit is not None and (one.exit.kind, one.exit.code) == ("exited", 0) for one in others)
    assert all(one.wall_s is not None and one.peak_rss for one in others)
    assert record.crashes == ()
    assert record.gaps == ()


def test_the_table_of_processes(tmp_path: Path) -> None:
    done, record = run_and_record(["sh", "-c", "sh -c 'exit 3'; (exit 5); kill -TERM $$"], tmp_path)
    assert done.returncode == -signal.SIGTERM
    root, child, forked = record.processes
    assert (root.role, child.role, forked.role) == ("command", "child", "child")
    assert root.command == ("sh", "-c", "sh -c 'exit 3'; (exit 5); kill -TERM $$") == forked.command
    assert child.command == ("sh", "-c", "exit 3")
    assert [one.exit.code if one.exit else None for one in (child, forked)] == [3, 5]
    assert root.started is not None and child.started is not None and root.started <= child.started


def test_a_child_that_dies_while_the_command_goes_on(tmp_path: Path) -> None:
    code = "import os, subprocess, sys; subprocess.run([sys.executable, '-c', 'import os; os.abort()']); raise SystemExit(2)"
    done, record = run_and_record(python(code), tmp_path)
    assert done.returncode == 2
    (crash,) = record.crashes
    assert crash.pid == record.processes[1].pid
    assert crash.fault is not None and crash.fault.signal == "SIGABRT"
    assert crash.crashed_thread is not None


def test_many_children_die_at_once(tmp_path: Path) -> None:
    code = """
    import os
    pids = []
    for n in range(8):
        pid = os.fork()
        if not pid:
            os.kill(os.getpid(), 11)
        pids.append(pid)
    assert [os.waitpid(pid, 0)[1] & 127 for pid in pids] == [11] * 8
    """
    done, record = run_and_record(python(textwrap.dedent(code)), tmp_path, popen={"cwd": tmp_path})
    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(crash.pid or 0 for crash in record.crashes) == sorted(one.pid for one in record.processes[1:])


def test_a_daemon_that_outlives(tmp_path: Path) -> None:
    out = tmp_path / "pid"
    code = f"""
    import os, time
    if os.fork(): os._exit(0)
    os.setsid()
    if os.fork(): os._exit(0)
    with open({str(out) + ".new"!r}, "w") as file: file.write(str(os.getpid()))
    os.rename({str(out) + ".new"!r}, {str(out)!r})
    time.sleep(100)
    """
    daemon = 0
    try:
        record = tmp_path / "record"
        with started(python(textwrap.dedent(code)), record=record, popen={"stdout": subprocess.PIPE}) as front:
            assert front.wait(30) == 0
            daemon = int(until(lambda: out.exists() and out.read_text(), "the daemon"))
        assert is_alive(daemon)

        def tracer() -> str:
            return next(
                line.split()[1]
                for line in Path(f"/proc/{daemon}/status").read_text().splitlines()
                if line.startswith("TracerPid")
            )

        until(lambda: tracer() == "0", "the daemon is detached")
        os.kill(daemon, signal.SIGTERM)
        until(lambda: not is_alive(daemon), "it takes its signals as before")
        running = [one.exit.kind for one in record_of(record).processes if one.pid == daemon and one.exit]
        assert running in ([], ["running"])
    finally:
        kill(daemon) if daemon else None


def test_vfork_and_exec(tmp_path: Path) -> None:
    source = """
    #include <unistd.h>
    #include <sys/wait.h>
    int main(void) {
        int status, bad = 0;
        for (int i = 0; i < 50; i++) {
            pid_t pid = vfork();
            if (!pid) { execl("/bin/sh", "sh", "-c", "exit 3", (char *)0); _exit(1); }
            if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 3) bad++;
        }
        return bad;
    }
    """
    done, record = run_and_record([str(build(tmp_path, source))], tmp_path)
    assert done.returncode == 0
    assert len(record.processes) == 51
    assert all(one.command == ("sh", "-c", "exit 3") for one in record.processes[1:])


THREADS_EXEC = """
#include <pthread.h>
#include <unistd.h>
static void *idle(void *x) { for (;;) pause(); }
static void *go(void *x) { execl("/bin/sh", "sh", "-c", "exit 6", (char *)0); _exit(1); }
int main(void) {
    pthread_t t;
    for (int i = 0; i < 10; i++) pthread_create(&t, 0, idle, 0);
    pthread_create(&t, 0, go, 0);
    for (;;) pause();
}
"""


def test_a_thread_that_executes(tmp_path: Path) -> None:
    for _ in range(10):
        done, record = run_and_record([str(build(tmp_path, THREADS_EXEC))], tmp_path)
        assert done.returncode == 6
        (process,) = record.processes
        assert process.command == ("sh", "-c", "exit 6")
        assert record.crashes == ()
        assert record.gaps == ()


def test_threads_come_and_go(tmp_path: Path) -> None:
    source = """
    #include <pthread.h>
    #include <unistd.h>
    static void *nothing(void *x) { return x; }
    int main(void) {
        for (int i = 0; i < 500; i++) { pthread_t t; pthread_create(&t, 0, nothing, 0); pthread_join(t, 0); }
        pthread_t t;
        for (int i = 0; i < 20; i++) pthread_create(&t, 0, (void *(*)(void *))pause, 0);
        return 8;
    }
    """
    done, record = run_and_record([str(build(tmp_path, source))], tmp_path)
    assert done.returncode == 8
    assert record.gaps == ()
    assert record.crashes == ()


def test_the_main_thread_ends_first(tmp_path: Path) -> None:
    source = """
    #include <pthread.h>
    #include <stdlib.h>
    #include <unistd.h>
    static void *late(void *x) { usleep(200000); exit(9); }
    int main(void) { pthread_t t; pthread_create(&t, 0, late, 0); pthread_exit(0); }
    """
    done, record = run_and_record([str(build(tmp_path, source))], tmp_path)
    assert done.returncode == 9
    assert record.crashes == ()


def test_a_program_that_lives_on_signals(tmp_path: Path) -> None:
    """A timer of 1 ms, a handler without SA_RESTART: what EINTR it sees, it would have seen without us."""
    source = """
    #include <signal.h>
    #include <stdio.h>
    #include <sys/time.h>
    #include <time.h>
    static volatile int ticks;
    static void tick(int s) { ticks++; }
    int main(void) {
        struct sigaction a = {.sa_handler = tick};
        sigaction(SIGALRM, &a, 0);
        struct itimerval t = {{0, 1000}, {0, 1000}};
        setitimer(ITIMER_REAL, &t, 0);
        while (ticks < 300) { struct timespec s = {1, 0}; nanosleep(&s, 0); }
        return 0;
    }
    """
    assert run([str(build(tmp_path, source))]).returncode == 0


def test_supervision_inside_supervision(tmp_path: Path) -> None:
    # ptrace knows one tracer only: the inner one stands back and says so, and the end is still the command's own.
    inner = tmp_path / "inner"
    outer = tmp_path / "outer"
    done = run(words(["sh", "-c", "kill -SEGV $$"], record=inner), record=outer)
    assert done.returncode == -signal.SIGSEGV
    assert any(gap.part == "fault" and "ptrace" in gap.why for gap in record_of(inner).gaps)
    assert any(crash.threads for crash in record_of(outer).crashes)


def test_a_tap_inside_of_a_tap(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    command = python("import os; os.write(2, b'words\\n')")
    done = run(words(command, record=inner, log="tap"), record=outer, log="tap")
    assert (done.returncode, done.stderr) == (0, b"words\n")
    assert any(gap.part == "log_tail" and "another" in gap.why for gap in record_of(inner).gaps)
    assert record_of(outer).log_tail == "words\n"


def test_a_debugger_of_the_command_works_on_itself_only(tmp_path: Path) -> None:
    """A process that asks to be traced by its parent is refused, as under any tracer; nothing hangs."""
    code = """
    import ctypes, os
    pid = os.fork()
    if not pid:
        os._exit(0 if ctypes.CDLL(None).ptrace(0, 0, 0, 0) == -1 else 1)
    raise SystemExit(os.waitpid(pid, 0)[1])
    """
    assert run([sys.executable, "-c", textwrap.dedent(code)]).returncode == 0
