"""Deaths by the kernel's hand and hangs, real ones: killed for memory, at a limit, at the time limit."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from live import library, python, report_of, reports_of, reports_of_standing, told, verdict_of

import needs
from control_group import inside, limited, needed

DEADLOCK = """
    #include <pthread.h>
    #include <unistd.h>
    static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
    static pthread_barrier_t both;
    static void *other(void *unused) {
      pthread_mutex_lock(&b); pthread_barrier_wait(&both); pthread_mutex_lock(&a); return unused;
    }
    void deadlock(void) {
      pthread_t thread;
      pthread_barrier_init(&both, 0, 2);
      pthread_create(&thread, 0, other, 0);
      pthread_mutex_lock(&a); pthread_barrier_wait(&both); pthread_mutex_lock(&b);
    }
"""


@pytest.fixture
def memory_group() -> Iterator[Path]:
    with limited(160 << 20, only_version_1=True) as group:
        yield group


@needed(only_version_1=True)
def test_killed_for_want_of_memory(memory_group: Path, tmp_path: Path) -> None:
    eat = python("kept = []\nwhile True: kept.append(bytearray(8 << 20))")
    report = report_of(eat, tmp_path, before=inside(memory_group))
    assert verdict_of(report) == ("out-of-memory-killed", "certain")
    # 2: the process of necropsy that reads deaths was the first victim, and it is not known yet that it has ended.
    assert re.search(r"oom_kill \+[12]\b", told(report))
    assert report["crash"]["memory_limit"] == 160 << 20
    assert report["crash"]["memory_cgroup"] == str(memory_group)


@needed(only_version_1=True)
def test_killed_by_hand_in_the_same_group(memory_group: Path, tmp_path: Path) -> None:
    report = report_of(python("import os; os.system('kill -9 $PPID')"), tmp_path, before=inside(memory_group))
    assert verdict_of(report)[0] == "killed-by-signal"
    assert "not the OOM killer" in report["verdict"]["summary"]


@needed(only_version_1=True)
def test_one_kill_is_counted_for_one_death(memory_group: Path, tmp_path: Path) -> None:
    """A launcher that kills the other workers after one was killed for memory: those died of the launcher.

    They are no deaths of their own, and certainly not because memory ran out.
    """
    launcher = python("""
        import os, subprocess, sys, time
        idle = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        eater = subprocess.Popen([sys.executable, "-c", "kept = []\\nwhile True: kept.append(bytearray(8 << 20))"])
        eater.wait()
        idle.kill()
        idle.wait()
        print(eater.pid, idle.pid, file=open("pids", "w"))
    """)
    reports = reports_of(launcher, tmp_path, before=inside(memory_group))
    eater, idle = map(int, (tmp_path / "pids").read_text().split())
    rules = {report["pid"]: report["verdict"]["rule"] for report in reports if report["verdict"]}
    assert rules[eater] == "out-of-memory-killed"
    assert idle not in rules


def test_cpu_time(tmp_path: Path) -> None:
    report = report_of(python("while True: pass"), tmp_path, before=["sh", "-c", 'ulimit -S -t 2; exec "$@"', "sh"])
    assert verdict_of(report) == ("cpu-or-file-limit", "certain")
    assert "2 seconds" in report["verdict"]["summary"]


def test_a_hard_limit_on_cpu_time(tmp_path: Path) -> None:
    """The kernel sends SIGKILL then, and tells nobody why."""
    report = report_of(python("while True: pass"), tmp_path, before=["sh", "-c", 'ulimit -t 1; exec "$@"', "sh"])
    assert verdict_of(report) == ("cpu-or-file-limit", "certain")
    assert "1 s of 1 s in use" in told(report)


def test_address_space(tmp_path: Path) -> None:
    eat = python("kept = []\nwhile True: kept.append(bytearray(8 << 20))")
    report = report_of(eat, tmp_path, before=["sh", "-c", 'ulimit -v 1000000; exec "$@"', "sh"])
    assert verdict_of(report) == ("allocation-failed", "certain")
    assert "The limit on address space was reached" in report["verdict"]["summary"]
    (limit,) = (one for one in report["crash"]["limits"] if one["name"] == "RLIMIT_AS")
    assert limit["limit"] == 1_000_000 * 1024
    assert limit["limit"] - (9 << 20) < limit["peak"] <= limit["limit"]


def test_threads_without_address_space(tmp_path: Path) -> None:
    start = python("""
        import threading, time
        while True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
    """)
    report = report_of(start, tmp_path, before=["sh", "-c", 'ulimit -v 500000; exec "$@"', "sh"])
    assert verdict_of(report) == ("thread-limit", "certain")
    assert "The limit on address space was reached" in report["verdict"]["summary"]


def test_file_size(tmp_path: Path) -> None:
    code = """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as in any program but Python
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        open("large", "wb").write(bytes(1 << 20))
    """
    report = report_of(python(code), tmp_path)
    assert verdict_of(report) == ("cpu-or-file-limit", "certain")
    assert "65,536" in report["verdict"]["summary"]


def test_threads(tmp_path: Path) -> None:
    code = """
        import resource, threading, time
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
        threading.stack_size(256 << 20)
        for _ in range(8):
            threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    """
    report = report_of(python(code), tmp_path)
    assert verdict_of(report)[0] == "thread-limit"


@needs.MOUNT
def test_shared_memory(tmp_path: Path) -> None:
    folder = tmp_path / "shm"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    try:
        code = f"""
            import ctypes, mmap, os
            file = os.open("{folder}/torch_1", os.O_RDWR | os.O_CREAT)
            os.ftruncate(file, 8 << 20)
            memory = mmap.mmap(file, 8 << 20)
            ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 1, 8 << 20)
        """
        report = report_of(python(code), tmp_path)
        assert verdict_of(report) == ("shared-memory-exhausted", "certain")
        shortened = f"""
            import ctypes, mmap, os
            file = os.open("{folder}/torch_2", os.O_RDWR | os.O_CREAT)
            os.ftruncate(file, 8 << 20)
            memory = mmap.mmap(file, 8 << 20)
            os.ftruncate(file, 0)
            ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 1, 8 << 20)
        """
        report = report_of(python(shortened), tmp_path)
        assert verdict_of(report)[0] == "bus-error"
    finally:
        subprocess.run(["umount", str(folder)], check=True)


# ---------------------------------------------------------------- the time limit


def test_deadlock_of_two_mutexes(tmp_path: Path) -> None:
    path = library(DEADLOCK, tmp_path, "-pthread")
    (report,) = reports_of_standing(python(f"import ctypes; ctypes.CDLL('{path}').deadlock()"), tmp_path)
    assert verdict_of(report) == ("hang", "certain")
    assert "deadlocked" in report["verdict"]["summary"]
    assert report["crash"]["exit"]["kind"] == "timeout"


def test_deadlock_of_two_python_locks(tmp_path: Path) -> None:
    script = tmp_path / "locks.py"
    script.write_text(
        "import threading\n"
        "a, b, together = threading.Lock(), threading.Lock(), threading.Barrier(2)\n"
        "def both(first, second):\n"
        "    with first:\n"
        "        together.wait()\n"
        "        with second: pass\n"
        "threading.Thread(target=both, args=(a, b)).start()\n"
        "both(b, a)\n"
    )
    (report,) = reports_of_standing([*python("")[:1], str(script)], tmp_path)
    assert verdict_of(report) == ("hang", "likely")
    assert "locks.py:6" in report["verdict"]["summary"]
    assert told(report).count("waits for a lock that") == 2


def test_busy_loop(tmp_path: Path) -> None:
    code = "def spin():\n    open('spins', 'w')\n    while True: pass\nspin()"
    (report,) = reports_of_standing(python(code), tmp_path, tmp_path / "spins")
    assert verdict_of(report) == ("hang", "certain")
    assert "was running" in report["verdict"]["summary"]
    assert report["verdict"]["culprit"]["python"]["function"] == "spin"


def test_a_program_that_ends_at_the_signal_is_told_where_it_stood(tmp_path: Path) -> None:
    code = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))
        time.sleep(600)
    """
    (report,) = reports_of_standing(python(code), tmp_path)
    assert verdict_of(report)[0] == "hang"
    assert "sleeps" in report["verdict"]["summary"]
    assert report["crash"]["exit"]["code"] == 3


def test_a_forked_child_at_a_lock_that_its_parent_held(tmp_path: Path) -> None:
    code = """
        import os, threading, time
        lock = threading.Lock()
        threading.Thread(target=lambda: (lock.acquire(), time.sleep(600)), daemon=True).start()
        while not lock.locked(): time.sleep(0.01)
        forked_child = os.fork()
        if not forked_child:
            lock.acquire()
        open("child", "w").write(str(forked_child))
        os.waitpid(forked_child, 0)
    """
    reports = reports_of_standing(python(code), tmp_path)
    child = int((tmp_path / "child").read_text())
    try:
        rules = {report["pid"] == child: verdict_of(report) for report in reports}
        assert rules == {False: ("hang", "certain"), True: ("fork-after-threads", "likely")}
        assert "waits for a child" in reports[0]["verdict"]["summary"]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
