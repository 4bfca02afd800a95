"""Looks at what a program writes: the calls that its main thread waits in are not disturbed, nor is each write slower."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from supervised import words

PROGRAM = """
import ctypes, os, socket, struct, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)
long = ctypes.c_long
half = struct.pack("qq", 0, 300_000_000)
epoll, semaphore = libc.epoll_create1(0), libc.semget(0, 1, 0o600)
ours, _theirs = socket.socketpair()
ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, 300_000))
context = ctypes.c_ulong()
libc.syscall(long(206), long(1), ctypes.byref(context))
signals, end = struct.pack("Q", 1 << 9), threading.Event()
full, drain = os.pipe()[::-1]
os.set_blocking(full, False)
while True:
    try:
        os.write(full, bytes(4096))
    except BlockingIOError:
        break
os.set_blocking(full, True)
CALLS = {
    "epoll_wait": (232, epoll, bytes(16), 1, 300),
    "semtimedop": (220, semaphore, struct.pack("hhh", 0, -1, 0), 1, half),
    "recvfrom": (45, ours.fileno(), bytes(16), 16, 0, 0, 0),
    "nanosleep": (35, half, 0),
    "rt_sigtimedwait": (128, signals, 0, half, 8),
    "io_getevents": (208, context.value, 1, 1, bytes(64), half),
    "poll": (7, 0, 0, 300),
    "write": (1, full, bytes(300_000), 300_000),
}

def noise():
    while not end.wait(0.005):
        os.write(2, b".\\n")

def drained():
    time.sleep(0.3)
    while os.read(drain, 65536):
        pass

def made(when):
    for name, (number, *arguments) in CALLS.items():
        if name == "write":
            threading.Thread(target=drained, daemon=True).start()
        ctypes.set_errno(0)
        result = libc.syscall(long(number), *(long(one) if isinstance(one, int) else one for one in arguments))
        print(when, name, result, ctypes.get_errno(), flush=True)
        if name == "write":
            os.set_blocking(full, True)

threading.Thread(target=noise).start()
if sys.argv[1:] == ["late"]:
    del CALLS["write"]
made("first")
CALLS.pop("write", None)
try:
    raise ValueError
except ValueError:
    made("handling")
libc.semctl(semaphore, 0, 0)
end.set()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the supervisor is for Linux")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv gives up rights")
def test_calls_of_the_main_thread_return_what_they_return_without(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program)]
    before = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"]
    ways = {
        "plain": command,
        "supervised": [*before, *words(command)],
        # PROGRAM leaves out the write: one that was stopped late has written a part, and says how much.
        "late": [*before, *words([*command, "late"], fault="late_to_stop")],
        "late, Python": [*before, *words([*command, "late"], fault="late_to_stop_in_python")],
    }
    # Side by side: nearly all of it is waiting.
    runs = {way: subprocess.Popen(one, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for way, one in ways.items()}
    said = {}
    try:
        for way, run in runs.items():
            said[way], written = run.communicate(timeout=300)
            assert b".\n" in written
    finally:
        for run in runs.values():
            run.kill()
    plain = said.pop("plain")
    assert plain.count(b"\n") == 8 + 7
    assert b" 4\n" not in plain  # EINTR
    assert said.pop("supervised") == plain
    assert set(said.values()) == {plain.replace(b"first write 300000 0\n", b"")}


WATCH = """
import os, signal, time
from pathlib import Path

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
said, (reads, writes) = os.dup(1), os.pipe()
os.dup2(writes, 2)

from necropsy.capture.linux.stderr.exception_watch import ExceptionWatch
from necropsy.capture.linux.stderr.log_source import Log

watch = ExceptionWatch.of(Log("off", why="", is_wanted=True))

def state():
    rung = "rung" if signal.sigtimedwait([signal.SIGUSR1], 0) is not None else "silent"
    is_watched = "inotify wd:" in Path(f"/proc/self/fdinfo/{watch.handle}").read_text()
    os.write(said, f"{'watched' if is_watched else 'unwatched'}, {rung}\\n".encode())

state()
for left in (50.0, 50.0, 0.0):
    for _ in range(100):
        os.write(2, b"line\\n")
    state()
    watch._left, watch._at = left, time.monotonic() + 1  # a second passes for ten looks
    watch.look(())
    state()
"""


def test_the_kernel_watches_stderr_only_until_the_next_write() -> None:
    done = subprocess.run([sys.executable, "-c", WATCH], stdout=subprocess.PIPE, text=True, timeout=300, check=True)
    written, looked_at = "unwatched, rung", "watched, silent"
    assert done.stdout.splitlines() == [
        "watched, silent",
        *(written, looked_at),
        *(written, looked_at),
        *(written, "unwatched, silent"),  # a look that would be one too many
    ]
