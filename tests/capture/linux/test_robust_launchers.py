"""Launchers: a worker dies natively while its parent lives on. One report each, and the tree of processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from supervised import LIMIT_S, run_and_record

from necropsy.capture.linux.supervise.launch import RunRecord

WORK = """
import ctypes, os, sys
def work(number):
    if number % 2:
        ctypes.string_at(number)
    return number
"""


def launched(code: str, folder: Path) -> tuple[int, RunRecord]:
    """The program is a file: spawn and forkserver import it again."""
    (folder / "work.py").write_text(WORK)
    program = folder / "launcher.py"
    program.write_text(textwrap.dedent(code))
    popen = {"cwd": folder, "env": {**os.environ, "PYTHONPATH": str(folder)}}
    done, record = run_and_record([sys.executable, str(program)], folder, popen=popen)
    assert b"necropsy:" not in done.stderr
    return done.returncode, record


def check(record: RunRecord, addresses: set[int]) -> None:
    """Each death is told once; its parents up to the command are in the table; the Python line is known."""
    root = record.processes[0]
    known = {process.pid: process for process in record.processes}
    assert {crash.fault.address for crash in record.crashes if crash.fault} == addresses
    assert len(record.crashes) == len(addresses)
    for crash in record.crashes:
        assert crash.pid is not None and crash.pid != root.pid
        assert crash.exit is not None and crash.exit.signal == "SIGSEGV"
        pid, steps = crash.pid, 0
        while pid != root.pid:
            parent = known[pid].parent
            assert parent is not None and steps < 10
            pid, steps = parent, steps + 1
        thread = crash.crashed_thread
        assert thread is not None and thread.python is not None
        assert "work" in [frame.function for frame in thread.python]
    assert root.exit is not None and (root.exit.kind, root.exit.code) == ("exited", 0)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str, tmp_path: Path) -> None:
    code = f"""
    import multiprocessing, work
    if __name__ == "__main__":
        context = multiprocessing.get_context({method!r})
        workers = [context.Process(target=work.work, args=(number,)) for number in (1, 2, 3, 4)]
        for one in workers: one.start()
        for one in workers: one.join()
        assert [one.exitcode for one in workers] == [-11, 0, -11, 0], [one.exitcode for one in workers]
    """
    status, record = launched(code, tmp_path)
    assert status == 0
    check(record, {1, 3})


def test_a_pool_that_breaks(tmp_path: Path) -> None:
    code = """
    import concurrent.futures, work
    if __name__ == "__main__":
        with concurrent.futures.ProcessPoolExecutor(2) as pool:
            try:
                pool.submit(work.work, 5).result()
            except concurrent.futures.process.BrokenProcessPool:
                print("broken")
            else:
                raise SystemExit(9)
    """
    status, record = launched(code, tmp_path)
    assert status == 0
    crashes = [crash for crash in record.crashes if crash.fault and crash.fault.signal == "SIGSEGV"]
    assert len(crashes) == 1 and crashes[0].fault and crashes[0].fault.address == 5
    # The pool ends its other workers by SIGTERM.
    others = {crash.exit.signal for crash in record.crashes if crash.exit and crash not in crashes}
    assert others <= {"SIGTERM"}


def test_ranks(tmp_path: Path) -> None:
    """As torchrun does it: a process group of workers by RANK, each its own interpreter; one dies, the others are ended."""
    code = """
    import os, signal, subprocess, sys, time
    if "RANK" in os.environ:
        import work
        if os.environ["RANK"] == "2":
            work.work(7)
        time.sleep(60)
    else:
        workers = [
            subprocess.Popen([sys.executable, __file__], env={**os.environ, "RANK": str(rank)}, start_new_session=True)
            for rank in range(4)
        ]
        assert workers[2].wait() == -11
        for one in workers:
            one.poll() is None and one.terminate()
        assert [one.wait() for one in workers] == [-15, -15, -11, -15]
    """
    status, record = launched(code, tmp_path)
    assert status == 0
    native = [crash for crash in record.crashes if crash.exit and crash.exit.signal == "SIGSEGV"]
    (crash,) = native
    assert crash.environment is not None and crash.environment.variables is not None
    assert crash.environment.variables["RANK"] == "2"
    assert len(record.processes) == 5
    assert {process.parent for process in record.processes[1:]} == {record.processes[0].pid}


def test_several_of_several_kinds(tmp_path: Path) -> None:
    """A grandchild by shell, a child by posix_spawn, a double fork: each death is its own, in the order of time."""
    code = """
    import os, subprocess, sys, time
    if len(sys.argv) > 1:
        import work
        work.work(int(sys.argv[1]))
    me = [sys.executable, __file__]
    subprocess.run(["sh", "-c", f"{sys.executable} {__file__} 11; exit 0"], check=True)
    os.waitpid(os.posix_spawn(me[0], [*me, "13"], os.environ), 0)
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        if not os.fork():
            import work
            work.work(15)
        os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    os.read(read, 1)
    """
    status, record = launched(code, tmp_path)
    assert status == 0
    assert [crash.fault.address for crash in record.crashes if crash.fault] == [11, 13, 15]
    assert [crash.at for crash in record.crashes] == sorted(crash.at or "" for crash in record.crashes)
    check_signals = {crash.exit.signal for crash in record.crashes if crash.exit}
    assert check_signals == {signal.SIGSEGV.name}


def test_the_document_has_a_report_of_each_and_the_tree(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text(WORK)
    program = tmp_path / "launcher.py"
    program.write_text(
        "import subprocess, sys\n"
        "for number in ('1', '2', '3'):\n"
        "    subprocess.run([sys.executable, '-c', f'import work; work.work({number})'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "necropsy", "run", "--full", "--json", "out.json", sys.executable, str(program)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "NECROPSY_OUTPUT": str(tmp_path / "reports")},
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, "the launcher lives on"
    document = json.loads((tmp_path / "out.json").read_text())
    root, *workers = document["processes"]
    assert [worker["parent"] for worker in workers] == [root["pid"]] * 3
    assert [worker["exit"]["kind"] for worker in workers] == ["signaled", "exited", "signaled"]
    assert [report["crash"]["pid"] for report in document["reports"]] == [workers[0]["pid"], workers[2]["pid"]]
    text = done.stderr.decode()
    assert text.count("Verdict ") == 1
    assert f"necropsy: process {workers[2]['pid']} died in the same way." in text
    assert len(list((tmp_path / "reports").glob("*.necropsy"))) == 1
