"""A worker dies natively, and the others are ended for it: one report. Whoever is ended by somebody else has his own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from supervised import children, command_pid, named, record_of, run_and_record, started, state, until

from necropsy.capture.linux.supervise.launch import RunRecord
from necropsy.capture.linux.supervise.secondary_exits import LEAST_LOOKS
from necropsy.model import Crash


def launched(code: str, folder: Path) -> RunRecord:
    program = folder / "launcher.py"
    program.write_text(textwrap.dedent(code))
    done, record = run_and_record([sys.executable, str(program)], folder, popen={"cwd": folder})
    assert done.returncode == 0, done.stderr
    assert b"necropsy:" not in done.stderr
    return record


def signals(record: RunRecord) -> list[str | None]:
    """Of every death that is reported."""
    return [crash.exit.signal if crash.exit else None for crash in record.crashes]


def ended_by(record: RunRecord, name: str) -> int:
    return sum(one.exit is not None and one.exit.signal == name for one in record.processes)


def notes(crash: Crash) -> list[str]:
    return [gap.why for gap in crash.gaps if gap.part == "process"]


def check_one_report(record: RunRecord, name: str, count: int, *, by_root: bool = True) -> None:
    """The native death alone is told, the others are in the table, and a line says so."""
    assert signals(record) == ["SIGSEGV"]
    assert ended_by(record, name) == count
    (note,) = notes(record.crashes[0])
    assert note.startswith(f"{count} further process")
    assert f"ended by {name}" in note
    if by_root:
        assert f"sent by process {record.processes[0].pid}" in note


WORKERS = """
import ctypes, multiprocessing, os, signal, time
def work(number, ready):
    ready.wait()
    if number == 1:
        ctypes.string_at(8)
    time.sleep(100)
if __name__ == "__main__":
    ready = multiprocessing.Barrier(4)
    workers = [multiprocessing.Process(target=work, args=(number, ready)) for number in range(4)]
    for one in workers: one.start()
    workers[1].join()
"""


@pytest.mark.parametrize(("end", "name"), [("terminate", "SIGTERM"), ("kill", "SIGKILL")])
def test_a_launcher_ends_the_others(end: str, name: str, tmp_path: Path) -> None:
    ends = f"    for one in workers: one.{end}()\n    for one in workers: one.join()\n"
    check_one_report(launched(WORKERS + ends, tmp_path), name, 3, by_root=end == "terminate")


def test_a_launcher_asks_first_and_kills_after_a_while(tmp_path: Path) -> None:
    """As torchrun: SIGTERM, which a worker does not heed, and SIGKILL when the time of grace is over."""
    code = """
    import ctypes, os, signal, subprocess, sys, time
    def heeds_it_not(pid):
        status = open(f"/proc/{pid}/status").read()
        return "State:\\tS" in status and "ShdPnd:\\t0000000000000000" in status
    if "RANK" in os.environ:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready", flush=True)
        if os.environ["RANK"] == "2":
            ctypes.string_at(8)
        time.sleep(100)
    else:
        workers = [
            subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": str(rank)}, stdout=-1)
            for rank in range(3)
        ]
        for one in workers: one.stdout.readline()
        assert workers[2].wait() == -11
        for one in workers[:2]: one.terminate()
        while not all(heeds_it_not(one.pid) for one in workers[:2]): time.sleep(0.05)
        for one in workers[:2]: one.kill()
        assert [one.wait() for one in workers] == [-9, -9, -11]
    """
    check_one_report(launched(code, tmp_path), "SIGKILL", 2, by_root=False)


def test_a_pool_is_terminated(tmp_path: Path) -> None:
    """Its workers are replaced where they die; ``terminate`` ends those that are at work."""
    code = """
    import ctypes, multiprocessing, os, time
    def work(number):
        if number == 0:
            ctypes.string_at(8)
        open(str(number), "w").close()
        time.sleep(100)
    if __name__ == "__main__":
        pool = multiprocessing.Pool(3)
        for number in range(5): pool.apply_async(work, (number,))
        while not all(map(os.path.exists, "123")): time.sleep(0.05)
        pool.terminate()
        pool.join()
    """
    record = launched(code, tmp_path)
    check_one_report(record, "SIGTERM", 3)


def test_a_process_pool_executor_breaks(tmp_path: Path) -> None:
    code = """
    import concurrent.futures, ctypes, os, time
    def work(number):
        if number == 1:
            while not all(map(os.path.exists, "023")): time.sleep(0.05)
            ctypes.string_at(8)
        open(str(number), "w").close()
        time.sleep(100)
    if __name__ == "__main__":
        with concurrent.futures.ProcessPoolExecutor(4) as pool:
            futures = [pool.submit(work, number) for number in range(4)]
            try:
                futures[1].result()
            except concurrent.futures.process.BrokenProcessPool:
                pass
    """
    check_one_report(launched(code, tmp_path), "SIGTERM", 3)


def test_a_grandchild_is_ended_by_its_own_parent(tmp_path: Path) -> None:
    """The one that died natively is its uncle."""
    code = """
    import ctypes, os, signal, time
    read, write = os.pipe()
    middle = os.fork()
    if not middle:
        inner = os.fork()
        if not inner:
            time.sleep(100)
        os.read(read, 1)
        os.kill(inner, signal.SIGTERM)
        os.waitpid(inner, 0)
        os._exit(0)
    uncle = os.fork()
    if not uncle:
        ctypes.string_at(8)
    os.waitpid(uncle, 0)
    os.write(write, b"x")
    os.waitpid(middle, 0)
    """
    record = launched(code, tmp_path)
    check_one_report(record, "SIGTERM", 1, by_root=False)
    assert f"sent by process {record.processes[1].pid}" in notes(record.crashes[0])[0]


# ---------------------------------------------------------------- what keeps its own report


@pytest.mark.parametrize(("end", "name"), [("terminate", "SIGTERM"), ("kill", "SIGKILL")])
def test_a_watchdog_ends_one_that_hangs(end: str, name: str, tmp_path: Path) -> None:
    """Nobody died before: two such ends are two reports."""
    code = f"""
    import subprocess, time
    for _ in range(2):
        one = subprocess.Popen(["sleep", "100"])
        time.sleep(0.1)
        one.{end}()
        one.wait()
    """
    record = launched(code, tmp_path)
    assert signals(record) == [name, name]
    assert not any(notes(crash) for crash in record.crashes)


def test_a_worker_that_ends_by_itself_is_none_of_these(tmp_path: Path) -> None:
    """It is asked to end, and dies natively of that: a death of its own."""
    code = """
    import ctypes, os, signal, subprocess, sys
    if len(sys.argv) > 1:
        signal.signal(signal.SIGTERM, lambda *_: ctypes.string_at(16))
        print("ready", flush=True)
        signal.pause()
    one = subprocess.Popen([sys.executable, __file__, "worker"], stdout=-1)
    one.stdout.readline()
    subprocess.run([sys.executable, "-c", "import ctypes; ctypes.string_at(8)"])
    one.terminate()
    one.wait()
    """
    record = launched(code, tmp_path)
    assert signals(record) == ["SIGSEGV", "SIGSEGV"]
    assert [crash.fault.address for crash in record.crashes if crash.fault] == [8, 16]


def naps(pid: int) -> int:
    """How often it has slept: between two looks it does."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


@pytest.mark.parametrize("signo", [signal.SIGTERM, signal.SIGKILL])
def test_somebody_outside_ends_another_after_a_death(signo: signal.Signals, tmp_path: Path) -> None:
    """The parent sleeps meanwhile: it cannot have been the parent."""
    program = tmp_path / "launcher.py"
    program.write_text(
        textwrap.dedent(f"""
        import os, pathlib, subprocess, sys
        other = subprocess.Popen(["sleep", "100"])
        subprocess.run([sys.executable, "-c", "import ctypes; ctypes.string_at(8)"])
        pathlib.Path({str(tmp_path / "new")!r}).write_text(str(other.pid))
        os.rename({str(tmp_path / "new")!r}, {str(tmp_path / "pid")!r})
        other.wait()
        """)
    )
    record = tmp_path / "record"
    with started([sys.executable, str(program)], record=record) as front:
        until((tmp_path / "pid").exists, "the other's number")
        until(lambda: state(command_pid(front.pid)) == "S", "the parent waits")
        tracer = named(front.pid, "necropsy-trace")
        before = naps(tracer)
        until(lambda: naps(tracer) > before + 3 * LEAST_LOOKS, "none of the tracer's looks is older than that")
        os.kill(int((tmp_path / "pid").read_text()), signo)
        assert front.wait(30) == 0
    assert signals(record_of(record)) == ["SIGSEGV", signo.name]
    assert notes(record_of(record).crashes[0]) == []


def test_after_somebody_outside_has_killed_one_the_parent_ends_the_others(tmp_path: Path) -> None:
    """Sent by nobody of the run, that SIGTERM is a death of its own; what the parent does then follows it."""
    program = tmp_path / "launcher.py"
    program.write_text(
        textwrap.dedent(f"""
        import os, pathlib, subprocess
        workers = [subprocess.Popen(["sleep", "100"]) for _ in range(3)]
        pathlib.Path({str(tmp_path / "new")!r}).write_text(str(workers[0].pid))
        os.rename({str(tmp_path / "new")!r}, {str(tmp_path / "pid")!r})
        workers[0].wait()
        for one in workers[1:]: one.terminate()
        for one in workers[1:]: one.wait()
        """)
    )
    record = tmp_path / "record"
    with started([sys.executable, str(program)], record=record) as front:
        until((tmp_path / "pid").exists, "the first one's number")
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
        assert front.wait(30) == 0
    (crash,) = record_of(record).crashes
    assert crash.fault is not None and crash.fault.sender == os.getpid()
    assert [note[:11] for note in notes(crash)] == ["2 further p"]


def test_somebody_outside_ends_all_of_them(tmp_path: Path) -> None:
    """As systemd and batch systems do: every process gets the signal. That is one end, the command's."""
    record = tmp_path / "record"
    code = "sh -c 'trap exit\\ 7 TERM; while :; do sleep 0.1; done' & sleep 100 & echo ready; wait"
    with started(["sh", "-c", code], record=record, popen={"stdout": subprocess.PIPE}) as front:
        assert front.stdout is not None
        assert front.stdout.readline() == b"ready\n"
        command = command_pid(front.pid)
        until(lambda: len(children(command)) == 2, "the children")
        for pid in (*children(command), command):
            os.kill(pid, signal.SIGTERM)
        assert front.wait(30) == -signal.SIGTERM
    crashes = record_of(record).crashes
    assert command in {crash.pid for crash in crashes}
    assert all(crash.stop_request is not None for crash in crashes), "what was not read is no end of its own"


def test_the_command_itself_is_always_told_of(tmp_path: Path) -> None:
    """A child of it has died natively, another one ends it."""
    code = """
    import os, subprocess, sys, time
    subprocess.run([sys.executable, "-c", "import ctypes; ctypes.string_at(8)"])
    subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -TERM {os.getpid()}"])
    time.sleep(100)
    """
    program = tmp_path / "launcher.py"
    program.write_text(textwrap.dedent(code))
    done, record = run_and_record([sys.executable, str(program)], tmp_path)
    assert done.returncode == -signal.SIGTERM
    assert sorted(map(str, signals(record))) == ["SIGSEGV", "SIGTERM"]
