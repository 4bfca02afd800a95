"""Many of everything: children, threads, executions; and nothing to spare: descriptors, memory, disk."""

from __future__ import annotations

import contextlib
import math
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import build
from supervised import children, named, record_of, run_and_record, started

SEGV = [sys.executable, "-c", "import ctypes; ctypes.string_at(8)"]


def memory_of(pid: int) -> int:
    """Bytes of anonymous memory.

    Not its private pages: a page that was shared since the fork becomes private when the *other* process writes to it.
    """
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Anonymous:")) * 1024


def descriptors_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def test_ten_thousand_children_leave_nothing(tmp_path: Path) -> None:
    """The tracer's descriptors, its zombies and its memory after 1,000 short children and after 10,000."""
    source = r"""
    #include <stdlib.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void some(int count) {
        while (count--) {
            int status;
            pid_t pid = vfork();
            if (!pid) _exit(3);
            if (waitpid(pid, &status, 0) != pid || WEXITSTATUS(status) != 3) _exit(1);
        }
    }
    int main(void) {
        char go;
        some(1000);
        write(1, "1", 1);
        read(0, &go, 1);
        some(9000);
        write(1, "2", 1);
        read(0, &go, 1);
        return 7;
    }
    """
    path = tmp_path / "record"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with started([str(build(tmp_path, source))], record=path, popen=pipes) as front:
        assert front.stdin is not None and front.stdout is not None
        seen = []
        for _ in range(2):
            assert front.stdout.read(1)
            tracer = named(front.pid, "necropsy-trace")
            assert set(children(tracer).values()) <= {"necropsy-read"}
            seen.append((memory_of(tracer), descriptors_of(tracer), memory_of(front.pid), descriptors_of(front.pid)))
            front.stdin.write(b"x")
            front.stdin.flush()
        assert front.wait(60) == 7
    (tracer_before, fds_before, front_before, front_fds_before), (tracer_now, fds_now, front_now, front_fds_now) = seen
    assert front_fds_now == front_fds_before
    assert fds_now - fds_before <= 1, "the reader's socket"
    assert front_now - front_before < 1 << 20
    assert tracer_now - tracer_before < 4 << 20, (tracer_before, tracer_now)
    kept = record_of(path)
    assert kept.crashes == ()
    ended = len(kept.processes) - 1
    assert 1000 <= ended <= 2000, "the table of processes has an end too"
    (gap,) = kept.gaps
    assert gap.why == f"children that ended, not told of: {10_000 - ended:,}"


def test_deaths_without_end(tmp_path: Path) -> None:
    """A hundred deaths of children are reported, the others counted; the command's own is reported in any case."""
    source = r"""
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        for (int i = 0; i < 300; i++) {
            int status;
            pid_t pid = fork();
            if (!pid) *(volatile int *)8 = 1;
            if (waitpid(pid, &status, 0) != pid || WTERMSIG(status) != 11) _exit(1);
        }
        *(volatile int *)16 = 1;
    }
    """
    done, found = run_and_record([str(build(tmp_path, source, "-static"))], tmp_path)
    assert done.returncode == -signal.SIGSEGV
    assert len(found.crashes) == 101
    assert found.crashes[-1].pid == found.processes[0].pid
    assert found.crashes[-1].fault is not None and found.crashes[-1].fault.address == 16
    assert [gap.why for gap in found.gaps] == ["deaths of children, not told of: 200"]
    told = {crash.pid for crash in found.crashes}
    assert told <= {process.pid for process in found.processes}


def test_executed_over_itself(tmp_path: Path) -> None:
    source = r"""
    #include <stdio.h>
    #include <stdlib.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        char next[16];
        int left = atoi(argv[1]);
        if (!left) *(volatile int *)8 = 1;
        snprintf(next, sizeof next, "%d", left - 1);
        execl("/proc/self/exe", argv[0], next, (char *)0);
        return 1;
    }
    """
    done, found = run_and_record([str(build(tmp_path, source, "-g")), "200"], tmp_path)
    assert done.returncode == -signal.SIGSEGV
    (process,) = found.processes
    assert process.command is not None and process.command[1:] == ("0",)
    (crash,) = found.crashes
    assert crash.crashed_thread is not None and crash.crashed_thread.frames
    assert crash.crashed_thread.frames[0].function == "main"


def most_threads() -> float:
    """How many this system allows: for the user, in all, and in the control group."""
    limits = [math.inf]
    for path in ("/proc/sys/kernel/threads-max", "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"):
        with contextlib.suppress(OSError, ValueError):  # "max" is not a number
            limits.append(int(Path(path).read_text()))
    of_the_user = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if os.geteuid() and of_the_user != resource.RLIM_INFINITY:
        limits.append(of_the_user)
    return min(limits)


@pytest.mark.skipif(most_threads() < 6000, reason="this system does not allow 5,000 threads")
def test_five_thousand_threads(tmp_path: Path) -> None:
    """The thread that crashed is read; of the others what the time allows, and the rest is a gap."""
    source = r"""
    #include <pthread.h>
    #include <unistd.h>
    static void *idle(void *a) { for (;;) pause(); }
    int main(void) {
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 65536);
        for (int i = 0; i < 5000; i++) {
            pthread_t one;
            if (pthread_create(&one, &small, idle, 0)) return 77;
        }
        *(volatile int *)8 = 1;
    }
    """
    program = [str(build(tmp_path, source, "-g"))]
    done, found = run_and_record(program, tmp_path, budget_s=0, core="small", fault="patient")
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr == b""
    (crash,) = found.crashes
    assert crash.crashed_thread is not None and crash.crashed_thread.frames
    assert crash.crashed_thread.frames[0].function == "main"
    assert crash.threads is not None
    assert len(crash.threads) == 5001
    late = [thread for thread in crash.threads[1:] if not thread.complete]
    gaps = [gap.why for gap in crash.gaps if gap.part.startswith("frames")]
    assert len(gaps) <= 5
    assert late, "no time is not enough"
    counted = [re.fullmatch(r"threads whose frames were .*: ([\d,]+), because the time .*", why) for why in gaps]
    assert sum(int(match[1].replace(",", "")) for match in counted if match) == len(late)
