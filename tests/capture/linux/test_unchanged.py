"""A wait of the loop in C goes on while a profiled process does the same as before, and ends when it does not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from necropsy.capture.linux.supervise import c_library

pytestmark = pytest.mark.skipif(c_library.load() is None, reason="needs the C library")

BEGIN = """
import ctypes, mmap, os, signal, struct, threading, time
from necropsy.capture.linux.inspect.resource_limits import open_files
from necropsy.capture.linux.inspect.resource_use import count_of_threads, resident
from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.event_loop import Kind, Baseline
from necropsy.capture.linux.supervise.c_loop import open_loop
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.stderr.log_source import Log
class Journal:
    started = executed = finished = lambda self, entry: None
FOREVER = 1 << 30
NEAR = 32 << 20  # a fork touches some memory yet, once it runs
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
go, goes = os.pipe()
command = os.fork()
if not command:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.read(go, 1)
    DOES
    time.sleep(1000)
ptrace.seize(command, ptrace.FOLLOW | ptrace.EXITKILL)
loop, slow = open_loop(command, front=os.getpid(), facts=Facts(), journal=Journal(), log=Log("off"))
assert slow is None, slow
def seen():
    with open(f"/proc/{command}/task/{command}/children") as file:
        children = len(file.read().split())
    return resident(command), os.stat(f"/proc/{command}/fd").st_size, count_of_threads(command), children
def expect(looks, interval_s=0.01, rings=()):
    size, descriptors, threads, _ = seen()
    near = range(max(size - NEAR, 0), size + NEAR)
    loop.wait_while(Baseline(command, interval_s, looks, near, descriptors, range(threads, threads + 1), rings))
    os.write(goes, b"x")
before = seen()
def changed():
    now, most = seen(), (NEAR, 0, 0, 0)
    return [(was, one) for was, one, more in zip(before, now, most) if abs(one - was) > more]
"""
CHANGES = {
    "memory": "kept = bytearray(b'x') * (128 << 20)",
    "threads": "threading.Thread(target=time.sleep, args=(1000,)).start()",
    "children": "os.fork()",
}
COUNTED = pytest.mark.skipif(not os.stat("/proc/self/fd").st_size, reason="Linux tells it from 6.2 on")


def check(does: str, code: str) -> None:
    program = BEGIN.replace("DOES", does) + code
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("what", [*CHANGES, pytest.param("descriptors", marks=COUNTED)])
def test_a_wait_goes_on_until_something_changes(what: str) -> None:
    check(
        CHANGES.get(what, "kept = open('/dev/null')"),
        """
expect(FOREVER)
assert loop.next(0.01).kind is Kind.NOTHING
assert len(changed()) == 1, changed()
""",
    )


def test_a_wait_goes_on_as_often_as_it_may() -> None:
    """Without a limit, it would go on for 1,000 s."""
    check(
        "pass",
        """
begin = time.monotonic()
expect(3)
assert loop.next(0.02).kind is Kind.NOTHING
assert time.monotonic() - begin >= 0.02 + 3 * 0.01
assert loop.next(0.01).kind is Kind.NOTHING
assert changed() == []
""",
    )


def test_a_wait_ends_before_a_ring_of_page_faults_is_full() -> None:
    check(
        "pass",
        """
ring = mmap.mmap(-1, 2 * mmap.PAGESIZE)
struct.pack_into("<QQ", ring, 1024, 5000, 5000 - mmap.PAGESIZE // 2)
expect(5, rings=[ring])
begin = time.monotonic()
assert loop.next(0.0).kind is Kind.NOTHING
assert time.monotonic() - begin >= 0.05
struct.pack_into("<Q", ring, 1024, 5001)
expect(FOREVER, rings=[ring])
assert loop.next(0.01).kind is Kind.NOTHING
assert changed() == []
ring.close()
""",
    )


def test_a_wait_ends_with_the_process() -> None:
    check(
        "os._exit(0)",
        """
expect(FOREVER)
while loop.next(0.01).kind is Kind.NOTHING:  # its memory may be gone before it has ended
    assert resident(command) is None
""",
    )
