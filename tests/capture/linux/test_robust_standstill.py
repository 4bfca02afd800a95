"""Whoever of ours stands still or is slow: the command is not held, and its end is not waited for in vain."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import build
from supervised import (
    children,
    command_pid,
    is_alive,
    kill,
    named,
    python,
    record_of,
    run,
    run_and_record,
    started,
    stat_of,
    until,
)

from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.supervise.watchdog import LOOK_S, STILL_S, STOPPED_S, Watchdog

# ---------------------------------------------------------------- looks


class Clock:
    """Time that passes when it is told to; ``jump_s`` is what a frozen container does not feel."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def looks_until_given_up(standstill: Watchdog, clock: Clock, pid: int, *, most: int = 500, beat: bool = False) -> int:
    for number in range(1, most + 1):
        if beat:
            standstill.facts.beat()
        clock.now += LOOK_S
        if standstill.look(pid):
            return number
    return 0


def sleeper() -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(1000)"], stdout=-1)
    assert process.stdout is not None
    process.stdout.readline()
    until(lambda: stat_of(process.pid)[0] == "S", "it sleeps")
    return process


def test_looks() -> None:
    clock, facts = Clock(), Facts()
    with sleeper() as process:
        try:
            still = looks_until_given_up(Watchdog(facts, 100, clock), clock, process.pid, beat=True)
            assert still == int(STILL_S / LOOK_S) + 1
            # What is read may take its time, but not for ever.
            facts.mark_reading(True)
            assert looks_until_given_up(Watchdog(facts, 100, clock), clock, process.pid, beat=True) == 0
            assert looks_until_given_up(Watchdog(facts, 40, clock), clock, process.pid) == int(40 / LOOK_S) + 1
            os.kill(process.pid, signal.SIGSTOP)
            until(lambda: stat_of(process.pid)[0] == "T", "it is stopped")
            stopped = looks_until_given_up(Watchdog(facts, 100, clock), clock, process.pid, beat=True)
            assert stopped == int(STOPPED_S / LOOK_S)
        finally:
            process.kill()


def test_a_leap_of_the_clock_is_one_look() -> None:
    clock = Clock()
    with sleeper() as process:
        try:
            standstill = Watchdog(Facts(), 100, clock)
            clock.now += 3600
            assert not standstill.look(process.pid)
            clock.now += 3600
            assert not standstill.look(process.pid)
            for _ in range(1000):  # nor do looks count that follow each other at once
                assert not standstill.look(process.pid)
        finally:
            process.kill()


def test_who_works_gets_on() -> None:
    clock = Clock()
    with subprocess.Popen([sys.executable, "-c", "print(1, flush=True)\nwhile True: pass"], stdout=-1) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()  # it has been loaded: before, it may have waited for a disk
            assert looks_until_given_up(Watchdog(Facts(), 1000, clock), clock, process.pid, most=200, beat=True) == 0
        finally:
            process.kill()


# ---------------------------------------------------------------- the tracer


DIES_WHEN_TOLD = ["sh", "-c", "read line; kill -SEGV $$"]


def test_a_tracer_that_is_stopped_is_given_up() -> None:
    with started(DIES_WHEN_TOLD, popen={"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}) as front:
        command_pid(front.pid)
        tracer = named(front.pid, "necropsy-trace")
        os.kill(tracer, signal.SIGSTOP)
        assert front.stdin is not None and front.stderr is not None
        front.stdin.close()
        said = front.stderr.read()
        assert front.wait(30) == -signal.SIGSEGV
    assert said.count(b"\n") == 1
    assert b"stopped answering" in said


def test_a_tracer_that_is_stopped_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    record = tmp_path / "record"
    with started(DIES_WHEN_TOLD, record=record, popen={"stdin": subprocess.PIPE}) as front:
        assert front.stdin is not None
        command_pid(front.pid)
        tracer = named(front.pid, "necropsy-trace")
        os.kill(tracer, signal.SIGSTOP)
        front.stdin.close()
        time.sleep(2.5)
        os.kill(tracer, signal.SIGCONT)
        assert front.wait(30) == -signal.SIGSEGV
    (crash,) = record_of(record).crashes
    assert crash.threads


def test_a_first_thread_that_has_ended_holds_nobody(tmp_path: Path) -> None:
    """It is a zombie for as long as the others live: that is no tracer that stands still."""
    source = """
    #include <pthread.h>
    #include <stdlib.h>
    #include <unistd.h>
    static void *late(void *x) { sleep(4); exit(9); }
    int main(void) { pthread_t t; pthread_create(&t, 0, late, 0); pthread_exit(0); }
    """
    done, record = run_and_record([str(build(tmp_path, source))], tmp_path, fault="impatient", budget_s=-13.5)
    assert (done.returncode, done.stderr) == (9, b"")
    assert record.processes[0].exit is not None and record.processes[0].exit.code == 9


def test_killed_while_its_first_thread_is_about_to_end(tmp_path: Path) -> None:
    """The tracer has seen that stop, but waits for it later: by then the thread is a zombie, and the others wait for us."""
    source = """
    #include <pthread.h>
    #include <signal.h>
    #include <unistd.h>
    static void *late(void *x) { usleep(100000); kill(getpid(), SIGKILL); for (;;) pause(); }
    int main(void) { pthread_t t; pthread_create(&t, 0, late, 0); pthread_exit(0); }
    """
    done, record = run_and_record([str(build(tmp_path, source))], tmp_path, fault="slow_to_wait")
    assert (done.returncode, done.stderr) == (-signal.SIGKILL, b"")
    assert record.processes[0].exit is not None and record.processes[0].exit.signal == "SIGKILL"
    assert [gap for gap in record.gaps if gap.part != "supervision"] == [], "the tracer was not given up"


UNTIL_TRACED = "while 'TracerPid:\\t0' in open('/proc/self/status').read(): time.sleep(0.02)"


@pytest.mark.parametrize(("end", "code"), [("os.kill(os.getpid(), 11)", -11), ("raise SystemExit(3)", 3)])
def test_a_tracer_that_comes_late_still_tells_the_end(end: str, code: int, tmp_path: Path) -> None:
    command = python(f"import os, time\n{UNTIL_TRACED}\n{end}")
    done, record = run_and_record(command, tmp_path, fault="slow_to_attach", log="off")
    assert (done.returncode, done.stderr) == (code, b"")
    root = record.processes[0]
    assert root.command == tuple(command)
    assert root.exit is not None and root.exit.code == (code if code > 0 else None)
    assert len(record.crashes) == (code < 0)
    assert any("late" in gap.why for gap in record.gaps)


def test_a_tracer_that_waits_for_the_wrong_thread_is_given_up(tmp_path: Path) -> None:
    """All threads of the command stand, the first is a zombie, and the tracer sleeps: nothing will ever happen."""
    source = """
    #include <pthread.h>
    #include <stdlib.h>
    #include <unistd.h>
    static void *late(void *x) { usleep(200000); exit(9); }
    int main(void) { pthread_t t; pthread_create(&t, 0, late, 0); pthread_exit(0); }
    """
    done = run([str(build(tmp_path, source))], fault="asleep")
    assert done.returncode == 9
    assert b"stopped answering" in done.stderr


# ---------------------------------------------------------------- the front and the reporter


def test_the_front_is_stopped_for_a_while(tmp_path: Path) -> None:
    """Longer than it looks away: then a wait of it ends by itself, and that is no signal for the command."""
    code = "import os; os.read(0, 1); raise SystemExit(9)"
    with started(python(code), popen={"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}) as front:
        command = command_pid(front.pid)
        for _ in range(2):
            os.kill(front.pid, signal.SIGSTOP)
            time.sleep(1.5)
            os.kill(front.pid, signal.SIGCONT)
            time.sleep(0.2)
        assert is_alive(command)
        assert front.stdin is not None and front.stderr is not None
        front.stdin.close()
        assert (front.wait(30), front.stderr.read()) == (9, b"")


def test_a_report_that_does_not_get_on_is_not_waited_for(tmp_path: Path) -> None:
    """A FIFO without a reader: a process that opens it to write waits for ever."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = python("import os; os.kill(os.getpid(), 11)")
    with started(command, record=fifo, fault="impatient", popen={"stderr": subprocess.PIPE}) as front:
        tracer = named(front.pid, "necropsy-trace")
        reporter = int(until(lambda: reporter_of(front.pid, tracer), "the report"))
        assert front.wait(30) == -signal.SIGSEGV
        kill(reporter)
        assert front.stderr is not None
        assert front.stderr.read().count(b"\n") == 1


def test_a_reporter_that_is_stopped_keeps_nobody_busy(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with started(python("import os; os.kill(os.getpid(), 11)"), record=fifo) as front:
        tracer = named(front.pid, "necropsy-trace")
        reporter = int(until(lambda: reporter_of(front.pid, tracer), "the report"))
        os.kill(reporter, signal.SIGSTOP)
        until(lambda: stat_of(reporter)[0] == "T", "it is stopped")
        time.sleep(0.1)
        before = cpu_ticks(tracer)
        time.sleep(1.0)
        assert cpu_ticks(tracer) - before < 20  # hundredths of a second
        os.kill(reporter, signal.SIGCONT)
        fifo.open("rb").close()  # it may write now, or fail because it has no reader
        assert front.wait(30) == -signal.SIGSEGV
        until(lambda: not is_alive(tracer), "the tracer's end")


def reporter_of(front: int, tracer: int) -> int:
    """The tracer's child, once the command has ended."""
    running = [name for name in children(front).values() if not name.startswith("necropsy-")]
    return 0 if running else next((pid for pid, name in children(tracer).items() if name != "necropsy-read"), 0)


def cpu_ticks(pid: int) -> int:
    fields = stat_of(pid)
    return int(fields[11]) + int(fields[12])
