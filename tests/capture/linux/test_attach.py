"""A process that runs is read and goes on as if nothing had happened."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import build
from supervised import state, until

from necropsy.capture import open_core
from necropsy.capture.linux.supervise.attach import attach
from necropsy.errors import AttachRefusedError, NoInputError

PROGRAM = r"""
import os, signal, threading, time
def handle(number, frame): os.write(1, b"handled\n")
signal.signal(signal.SIGUSR1, handle)
lock = threading.Lock()
lock.acquire()
def waiting(): lock.acquire()
for _ in range(3): threading.Thread(target=waiting, daemon=True).start()
def innermost():
    while True:
        os.write(1, b"tick\n")
        time.sleep(0.02)
innermost()
"""


WAITS = """
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
int main(void) {
    struct epoll_event event = {.events = EPOLLIN};
    int poll = epoll_create1(0);
    epoll_ctl(poll, EPOLL_CTL_ADD, 0, &event);
    int found = epoll_wait(poll, &event, 1, 60000);
    return found == 1 ? 7 : errno;
}
"""


@contextlib.contextmanager
def running(code: str = PROGRAM) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        tick(process)
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def tick(process: subprocess.Popen[bytes], what: bytes = b"tick\n") -> None:
    """Wait until it says that."""
    assert process.stdout is not None
    while (line := process.stdout.readline()) != what:
        assert line, "it ended"


def field(pid: int, name: str) -> str:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return line.split(":", 1)[1].strip()
    raise AssertionError(name)


def until_state(pid: int, letter: str) -> None:
    for _ in range(20_000):
        if field(pid, "State").startswith(letter):
            return
        time.sleep(0.005)
    raise AssertionError(f"never {letter}: {field(pid, 'State')}")


def until_all_wait(pid: int) -> None:
    """Until every thread but the first is in futex(2) without a time limit: who waits for the GIL has one."""

    def waits(tid: str) -> bool:
        fields = Path(f"/proc/{pid}/task/{tid}/syscall").read_text().split()
        return fields[0] == "202" and fields[4] == "0x0"

    for _ in range(20_000):
        if all(waits(tid) for tid in os.listdir(f"/proc/{pid}/task") if tid != str(pid)):
            return
        time.sleep(0.005)
    raise AssertionError("not all of them wait")


def test_where_every_thread_stands_and_it_goes_on() -> None:
    with running() as process:
        until_all_wait(process.pid)
        for _ in range(5):
            crash = attach(process.pid)
            assert crash.fault is None
            assert crash.exit is not None
            assert crash.exit.kind == "running"
            assert crash.crashed_thread is None
            assert crash.threads is not None
            assert len(crash.threads) == 4
            main = next(one for one in crash.threads if one.tid == process.pid)
            assert main.python is not None
            assert [frame.function for frame in main.python] == ["innermost", "<module>"]
            assert main.waits is None or main.waits.call in {"clock_nanosleep", "write"}
            others = [one for one in crash.threads if one is not main]
            assert all(one.python and one.python[0].function == "waiting" for one in others)
            assert all(one.waits is not None and one.waits.call == "futex" for one in others)
            tick(process)
        assert field(process.pid, "TracerPid") == "0"
        process.send_signal(signal.SIGUSR1)
        tick(process, b"handled\n")


def test_a_stopped_process_stays_stopped() -> None:
    with running() as process:
        process.send_signal(signal.SIGSTOP)
        until_state(process.pid, "T")
        crash = attach(process.pid)
        assert crash.threads is not None
        assert len(crash.threads) == 4
        until_state(process.pid, "T")
        process.send_signal(signal.SIGCONT)
        tick(process)


def test_signals_that_come_meanwhile_are_delivered() -> None:
    with running() as process:
        for _ in range(20):
            process.send_signal(signal.SIGUSR1)
            attach(process.pid)
            tick(process, b"handled\n")


def test_its_core_is_as_good_as_a_dead_ones(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with running() as process:
        alive = attach(process.pid, core=packed)
        tick(process)
    path = tmp_path / "core"
    path.write_bytes(gzip.decompress(packed.getvalue()))
    dead = open_core.read(path)
    assert dead.fault is None
    for before, after in zip(alive.threads or (), dead.threads or (), strict=True):
        assert [frame.function for frame in after.frames or ()] == [frame.function for frame in before.frames or ()]


def test_who_is_not_there() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(NoInputError, match="ended"):
        attach(process.pid)
    process.wait()
    with pytest.raises(NoInputError, match="no process"):
        attach(process.pid)


def test_who_may_not_be_read() -> None:
    with running() as process:
        # One tracer at a time: while this process holds it, another one is refused.
        code = f"""
import sys
from necropsy.capture.linux.supervise.attach import attach, held
from necropsy.errors import AttachRefusedError
import subprocess
with held({process.pid}):
    done = subprocess.run([sys.executable, "-c", '''
from necropsy.capture.linux.supervise.attach import attach
from necropsy.errors import AttachRefusedError
try:
    attach({process.pid})
except AttachRefusedError as error:
    print(error)
    print(error.hint)
'''], capture_output=True, text=True)
    print(done.stdout, done.stderr)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert "is being traced by another process" in done.stdout
        assert "ptrace_scope" in done.stdout
        tick(process)
    with pytest.raises(AttachRefusedError):
        attach(os.getpid())


def test_killed_while_it_is_read_harms_nobody() -> None:
    """kill -9 of the reader at any moment: the process goes on."""
    with running() as process:
        for delay in (0.0, 0.002, 0.01, 0.03, 0.1):
            code = f"from necropsy.capture.linux.supervise.attach import attach\nprint('go', flush=True)\nattach({process.pid})"
            reader = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
            assert reader.stdout is not None
            reader.stdout.readline()
            time.sleep(delay)
            reader.kill()
            reader.wait()
            reader.stdout.close()
            tick(process)
            assert field(process.pid, "TracerPid") == "0"


def test_a_call_that_a_stop_interrupts_goes_on(tmp_path: Path) -> None:
    """``epoll_wait`` is not restarted by the kernel: it would return EINTR."""
    with subprocess.Popen([build(tmp_path, WAITS)], stdin=subprocess.PIPE) as process:
        until(lambda: state(process.pid) == "S", "it waits")
        for _ in range(3):
            attach(process.pid)
            until(lambda: state(process.pid) == "S", "it waits again")
        assert process.poll() is None
        process.communicate(b"x", timeout=30)
        assert process.returncode == 7


@pytest.mark.parametrize("handled", [True, False])
def test_a_signal_that_comes_meanwhile(tmp_path: Path, handled: bool) -> None:
    """A handler's signal interrupts the call, as it would have done without us."""
    source = WAITS.replace("int main(void) {", "#include <signal.h>\nvoid handle(int n) {}\nint main(void) { HOW")
    how = ".sa_handler = handle" if handled else ".sa_handler = SIG_IGN"
    source = source.replace("HOW", f"struct sigaction a = {{{how}}}; sigaction(SIGUSR1, &a, 0);")
    with subprocess.Popen([build(tmp_path, source)], stdin=subprocess.PIPE) as process:
        until(lambda: state(process.pid) == "S", "it waits")
        attach(process.pid)
        until(lambda: state(process.pid) == "S", "it waits again")
        process.send_signal(signal.SIGUSR1)
        if not handled:
            process.communicate(b"x", timeout=30)
        assert process.wait(30) == (errno.EINTR if handled else 7)
