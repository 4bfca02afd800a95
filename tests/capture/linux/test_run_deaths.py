"""What is known of a death: the signal and its sender, who else crashed, what a handler had caught before."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness import build
from supervised import command_pid, kill, named, python, run_and_record, started

from necropsy.model import Crash

NULL = "int main(void) { *(volatile int *)8 = 1; return 0; }"


def crash_of(source: str, folder: Path, *arguments: str, **options: Any) -> tuple[int, Crash]:
    done, record = run_and_record([str(build(folder, source, "-O0", "-g")), *arguments], folder, **options)
    (crash,) = record.crashes
    return done.returncode, crash


def test_a_fault_of_the_cpu(tmp_path: Path) -> None:
    code, crash = crash_of(NULL, tmp_path)
    assert code == -signal.SIGSEGV
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.code, crash.fault.address) == ("SIGSEGV", "SEGV_MAPERR", 8)
    assert crash.fault.handled_first is False
    assert crash.crashed_thread is not None
    assert crash.crashed_thread.frames is not None and crash.crashed_thread.frames[0].function == "main"


HANDLER = """
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int how, times;
static void handler(int s) {
    write(1, "handled\\n", 8);
    if (how == 4 && !times++) raise(s);
    signal(s, SIG_DFL);
    if (how == 1 || how == 4) raise(s);
    if (how == 2) kill(getpid(), s);
    if (how == 3) abort();
}
int main(int argc, char **argv) {
    how = argv[1][0] - '0';
    struct sigaction a;
    memset(&a, 0, sizeof a);
    static char other[65536];
    stack_t alternate = {.ss_sp = other, .ss_size = sizeof other};
    if (argv[2][0] == 'a') sigaltstack(&alternate, 0);
    a.sa_handler = handler;
    a.sa_flags = SA_NODEFER | SA_ONSTACK;
    sigaction(SIGSEGV, &a, 0);
    *(volatile int *)8 = 1;
    return 0;
}
"""


@pytest.mark.parametrize("stack", ["alternate", "same"])
@pytest.mark.parametrize(("how", "signo"), [("0", 11), ("1", 11), ("2", 11), ("3", 6), ("4", 11)])
def test_a_handler_that_passes_the_signal_on(how: str, signo: int, stack: str, tmp_path: Path) -> None:
    """0: returns, so the same instruction faults again; 1: raise; 2: kill; 3: abort; 4: raise, by two handlers in a row."""
    code, crash = crash_of(HANDLER, tmp_path, how, stack)
    assert code == -signo
    assert crash.exit is not None and crash.exit.signal == signal.Signals(signo).name
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.code, crash.fault.address) == ("SIGSEGV", "SEGV_MAPERR", 8)
    assert crash.fault.handled_first is True


def test_an_earlier_fault_that_was_repaired_is_not_the_cause(tmp_path: Path) -> None:
    source = """
    #include <setjmp.h>
    #include <signal.h>
    #include <stdlib.h>
    static sigjmp_buf back;
    static void handler(int s) { siglongjmp(back, 1); }
    int main(void) {
        signal(SIGSEGV, handler);
        if (!sigsetjmp(back, 1)) *(volatile int *)8 = 1;
        abort();
    }
    """
    code, crash = crash_of(source, tmp_path)
    assert code == -signal.SIGABRT
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.handled_first) == ("SIGABRT", False)


def test_a_stack_overflow_with_a_handler_that_has_no_stack(tmp_path: Path) -> None:
    source = """
    #include <signal.h>
    static void handler(int s) { }
    static int deep(int n) { volatile char pad[256]; pad[0] = n; return deep(n + 1) + pad[0]; }
    int main(void) { signal(SIGSEGV, handler); return deep(0); }
    """
    code, crash = crash_of(source, tmp_path)
    assert code == -signal.SIGSEGV
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.code) == ("SIGSEGV", "SEGV_MAPERR")
    assert crash.fault.handled_first is True
    stack = crash.crashed_thread.stack if crash.crashed_thread else None
    assert stack is not None and stack.guard_hit is True


def test_pythons_faulthandler(tmp_path: Path) -> None:
    code = "import ctypes, faulthandler; faulthandler.enable(); ctypes.string_at(8)"
    done, record = run_and_record(python(code), tmp_path)
    assert done.returncode == -signal.SIGSEGV
    (crash,) = record.crashes
    assert crash.fault is not None
    assert (crash.fault.address, crash.fault.handled_first) == (8, True)


def test_two_threads_crash_at_once(tmp_path: Path) -> None:
    source = """
    #include <pthread.h>
    #include <unistd.h>
    static pthread_barrier_t together;
    static void *die(void *x) { pthread_barrier_wait(&together); *(volatile int *)8 = 1; return 0; }
    int main(void) {
        pthread_t t;
        pthread_barrier_init(&together, 0, 4);
        for (int i = 0; i < 4; i++) pthread_create(&t, 0, die, 0);
        for (;;) pause();
    }
    """
    for _ in range(5):
        code, crash = crash_of(source, tmp_path)
        assert code == -signal.SIGSEGV
        assert crash.threads is not None and sum(thread.crashed for thread in crash.threads) >= 1
        assert crash.fault is not None and crash.fault.address == 8


def test_a_seccomp_kill(tmp_path: Path) -> None:
    source = """
    #include <stddef.h>
    #include <sys/prctl.h>
    #include <linux/seccomp.h>
    #include <linux/filter.h>
    #include <unistd.h>
    int main(void) {
        struct sock_filter f[] = {{0x20, 0, 0, 0}, {0x15, 0, 1, 110}, {6, 0, 0, 0x80000000u}, {6, 0, 0, 0x7fff0000u}};
        struct sock_fprog p = {4, f};
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        prctl(PR_SET_SECCOMP, 2, &p);
        return getppid();
    }
    """
    code, crash = crash_of(source, tmp_path)
    assert code == -signal.SIGSYS
    assert crash.fault is not None and crash.fault.signal == "SIGSYS"
    assert crash.crashed_thread is not None and crash.crashed_thread.frames is not None
    assert any(frame.function == "main" for frame in crash.crashed_thread.frames)


def test_the_kernels_killers_leave_no_details(tmp_path: Path) -> None:
    done, record = run_and_record(["sh", "-c", "sh -c 'kill -KILL $PPID'; exit 0"], tmp_path)
    assert done.returncode == -signal.SIGKILL
    (crash,) = record.crashes
    assert crash.fault is not None and (crash.fault.signal, crash.fault.sender) == ("SIGKILL", None)
    assert crash.threads is None and crash.gap("threads") is not None


def test_always_measures_every_thread_of_a_healthy_run(tmp_path: Path) -> None:
    source = """
    #include <pthread.h>
    #include <unistd.h>
    static pthread_barrier_t done;
    static int deep(int n) { volatile char pad[1000]; pad[0] = 1; return n ? deep(n - 1) + pad[0] : 0; }
    static void *work(void *x) { deep(2000); pthread_barrier_wait(&done); for (;;) pause(); }
    static void *brief(void *x) { return x; }
    int main(void) {
        pthread_t t;
        pthread_barrier_init(&done, 0, 3);
        pthread_create(&t, 0, brief, 0);
        pthread_join(t, 0);
        for (int i = 0; i < 2; i++) pthread_create(&t, 0, work, 0);
        deep(200);
        pthread_barrier_wait(&done);
        return 0;
    }
    """
    done, record = run_and_record([str(build(tmp_path, source, "-O0"))], tmp_path, always=True)
    assert done.returncode == 0
    (process,) = record.processes
    assert process.stacks is not None and len(process.stacks) == 3
    by_tid = {one.tid: one for one in process.stacks}
    main = by_tid.pop(process.pid)
    assert main.peak is not None and 200_000 < main.peak < 600_000
    for one in by_tid.values():
        assert one.peak is not None and one.size is not None
        assert 2_000_000 < one.peak < 2_500_000 < one.size
    assert process.peak_rss is not None and process.peak_rss > 4_000_000
    (gap,) = record.gaps
    assert gap.part == "stack" and gap.why.endswith(": 1")


@pytest.mark.parametrize("fault", [None, "slow_to_continue"])
def test_always_measures_when_a_thread_calls_exit(fault: str | None, tmp_path: Path) -> None:
    """Also where that thread is faster than the tracer: the main thread then stands in the stop for its birth."""
    source = """
    #include <pthread.h>
    #include <stdlib.h>
    #include <unistd.h>
    static void *end(void *x) { exit(3); }
    int main(void) { pthread_t t; pthread_create(&t, 0, end, 0); for (;;) pause(); }
    """
    done, record = run_and_record([str(build(tmp_path, source))], tmp_path, always=True, fault=fault)
    assert done.returncode == 3
    stacks = record.processes[0].stacks
    assert stacks is not None and len(stacks) == 2
    assert [gap for gap in record.gaps if gap.part != "supervision"] == []


def test_without_always_nothing_is_measured(tmp_path: Path) -> None:
    _, record = run_and_record(["true"], tmp_path)
    assert record.processes[0].stacks is None


@pytest.mark.parametrize(
    "how", ["os.abort()", "signal.raise_signal(6)", "signal.raise_signal(3)", "ctypes.string_at(8)"]
)
def test_the_tracer_is_killed_while_it_reads(how: str, tmp_path: Path) -> None:
    # The signal that it was looking at must not be lost with it.
    code = f"import ctypes, os, signal, time; time.sleep(0.5); {how}; time.sleep(100)"
    expected = {"3": 3, "8": 11}.get(how[-2], 6)
    with started(python(code), fault="slow_reading", popen={"stderr": subprocess.PIPE}) as front:
        command_pid(front.pid)
        tracer = named(front.pid, "necropsy-trace")
        named(tracer, "reading")
        kill(tracer)
        assert front.wait(30) == -expected
