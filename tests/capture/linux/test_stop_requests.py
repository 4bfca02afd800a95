"""A signal from outside that asks a process to end: its threads are read, and it does what it would have done."""

from __future__ import annotations

import os
import signal
import subprocess
import textwrap
from pathlib import Path

import pytest
from supervised import LOOPS, Terminal, children, command_pid, python, record_of, run_and_record, started, words

from necropsy.capture.linux.supervise import termination_requests
from necropsy.capture.linux.supervise.crash_context import Request, Sent
from necropsy.capture.linux.supervise.traced_processes import Traced
from necropsy.document import news, of_run
from necropsy.model import Crash, Exit, StopRequest
from necropsy.rules import crash_rules

WAIT = """
import os, signal, sys, threading, time
lock = threading.Lock()
lock.acquire()
def worker():
    lock.acquire()
threading.Thread(target=worker, daemon=True).start()
def end(signo, frame):
    os._exit(int(sys.argv[1]))
if len(sys.argv) > 1:
    signal.signal(signal.SIGTERM, end)
def wait():
    print("ready", flush=True)
    while True:
        time.sleep(100)
wait()
"""


@pytest.fixture(params=LOOPS, autouse=True)
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The loop that is in use."""
    name = str(request.param)
    monkeypatch.setenv("NECROPSY_LOOP", name)
    return name


def ended(tmp_path: Path, *arguments: str, status: int, signo: int = signal.SIGTERM, **options: object) -> list[Crash]:
    """What is recorded of ``WAIT`` after one signal from here."""
    record = tmp_path / "record"
    with started(python(WAIT, *arguments), record=record, popen={"stdout": subprocess.PIPE}, **options) as front:
        assert front.stdout is not None and front.stdout.readline() == b"ready\n"
        os.kill(command_pid(front.pid), signo)
        assert front.wait(60) == status
    return list(record_of(record).crashes)


def functions(crash: Crash) -> set[str | None]:
    """The innermost functions of the program's own code, of each thread."""
    lines = [frame for thread in crash.threads or () for frame in thread.python or () if frame.source == "<string>"]
    return {frame.function for frame in lines}


def asked(crash: Crash) -> StopRequest:
    assert crash.stop_request is not None
    return crash.stop_request


def test_who_dies_of_it_is_read_before(tmp_path: Path) -> None:
    (crash,) = ended(tmp_path, status=-signal.SIGTERM)
    assert {"wait", "worker"} <= functions(crash)
    assert crash.fault is not None and crash.fault.sent_by_itself is False
    assert (asked(crash).signal, asked(crash).sender, asked(crash).handled) == ("SIGTERM", os.getpid(), False)
    assert asked(crash).sender_command
    assert crash.crashed_thread is None, "nobody crashed"


def test_who_handles_it_and_fails_is_told_with_what_was_read(tmp_path: Path) -> None:
    (crash,) = ended(tmp_path, "143", status=143)
    assert {"wait", "worker"} <= functions(crash)
    assert asked(crash).handled is True
    assert crash.fault is None and crash.exit is not None and crash.exit.code == 143


def test_who_handles_it_and_ends_well_is_no_news(tmp_path: Path) -> None:
    assert ended(tmp_path, "0", status=0) == []


def test_nothing_is_read_at_a_signal_that_was_left_out(tmp_path: Path) -> None:
    (crash,) = ended(tmp_path, status=-signal.SIGTERM, no_stacks_at=["SIGTERM"])
    assert crash.stop_request is None and crash.threads is None
    (crash,) = ended(tmp_path, status=-signal.SIGQUIT, signo=signal.SIGQUIT, no_stacks_at=["SIGQUIT"])
    assert crash.threads is None


def test_a_parent_that_ends_its_own_child_is_not_from_outside(tmp_path: Path) -> None:
    code = "import subprocess; one = subprocess.Popen(['sleep', '100']); one.terminate(); one.wait()"
    _, record = run_and_record(python(code), tmp_path)
    (crash,) = record.crashes
    assert crash.fault is not None and crash.fault.signal == "SIGTERM"
    assert crash.stop_request is None and crash.threads is None


def test_who_is_asked_often_is_not_read_often(tmp_path: Path) -> None:
    """A thread that sleeps gives up the processor once for each time that it is stopped."""
    times = 40
    code = f"""
    import os, signal, threading, time
    got = []
    signal.signal(signal.SIGTERM, lambda *a: (got.append(1), os.write(1, b"x")))
    lock = threading.Lock()
    lock.acquire()
    thread = threading.Thread(target=lock.acquire, daemon=True)
    thread.start()
    def switches():
        with open(f"/proc/self/task/{{thread.native_id}}/status") as file:
            return sum(int(line.split()[1]) for line in file if "ctxt_switches" in line)
    time.sleep(0.2)
    before = switches()
    os.write(1, b"x")
    while len(got) < {times}:
        time.sleep(0.05)
    os.write(1, b" %d" % (switches() - before))
    """
    with started(python(textwrap.dedent(code)), popen={"stdout": subprocess.PIPE}) as front:
        assert front.stdout is not None
        command = command_pid(front.pid)
        for _ in range(times):
            assert front.stdout.read(1) == b"x"
            os.kill(command, signal.SIGTERM)
        rest = front.stdout.read()
        assert front.wait(60) == 0
    stops = int(rest.removeprefix(b"x"))
    assert 1 <= stops < times / 2, "it was read, and not each time"


def test_of_a_launcher_the_program_is_told(tmp_path: Path) -> None:
    """As timeout(1) and batch systems do: both get the signal, and the shell only waits."""
    record = tmp_path / "record"
    line = f"{' '.join(map(repr, python('import time; print(7, flush=True); time.sleep(100)')))}; exit 3"
    with started(["sh", "-c", line], record=record, popen={"stdout": subprocess.PIPE}) as front:
        assert front.stdout is not None and front.stdout.readline() == b"7\n"
        command = command_pid(front.pid)
        (program,) = children(command)
        os.killpg(front.pid, signal.SIGTERM)
        front.wait(60)
    run = record_of(record)
    assert program in {crash.pid for crash in run.crashes}
    told = news(of_run(run, ("sh",), crash_rules())).reports
    assert told[0].pid == program
    assert told[0].verdict is not None and "<string>:1" in told[0].verdict.summary


def test_ctrl_c_is_read_for_a_document_only(tmp_path: Path, loop: str) -> None:
    """It makes no report that is printed or kept; the signal is the user's own."""
    record = tmp_path / "record"
    code = "import time; print('re' + 'ady', flush=True); time.sleep(100)"
    for options in ({}, {"at_terminal": True}):
        with Terminal(words(python(code), record, **options)) as terminal:
            terminal.expect(b"ready")
            terminal.type(b"\x03")
            terminal.expect(b"KeyboardInterrupt")
            assert os.waitstatus_to_exitcode(terminal.wait()) == -signal.SIGINT
        run = record_of(record)
        (crash,) = run.crashes
        assert (crash.stop_request is not None) == bool(options), loop
        assert news(of_run(run, ("python",), crash_rules())).reports == ()
        record.unlink()


@pytest.mark.parametrize(
    ("signo", "code", "after_s", "follows"),
    [
        (signal.SIGTERM, 143, 300.0, True),
        (signal.SIGTERM, 1, 2.0, True),
        (signal.SIGTERM, 1, 300.0, False),
        (signal.SIGTERM, 0, 0.1, False),
        (signal.SIGQUIT, 1, 2.0, False),
        (signal.SIGQUIT, 131, 2.0, True),
    ],
)
def test_a_failure_long_after_is_no_answer(signo: int, code: int, after_s: float, *, follows: bool) -> None:
    process = Traced(7, begun=0.0, wall_s=1000.0, exit=Exit(kind="exited", code=code))
    process.request = Request(signo, Sent(), handled=True, begun=0.0, read_at=1000.0 - after_s)
    assert termination_requests.follows(process) is follows
