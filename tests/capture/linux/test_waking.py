"""The loop in C sleeps in one call that knows no time limit: a signal to it must end that, whenever it comes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from necropsy.capture.linux.supervise import c_library

pytestmark = pytest.mark.skipif(c_library.load() is None, reason="needs the C library")

BEGIN = """
import os, random, signal, sys, time
from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.supervise.event_loop import WAKES, Kind
from necropsy.capture.linux.supervise.c_loop import open_loop
from necropsy.capture.linux.supervise.shared_memory import Facts
from necropsy.capture.linux.stderr.log_source import Log
class Journal:
    started = executed = finished = lambda self, entry: None
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
command = os.fork()
if not command:
    time.sleep(1000)
ptrace.seize(command, ptrace.FOLLOW | ptrace.EXITKILL)
loop, slow = open_loop(command, front=os.getpid(), facts=Facts(), journal=Journal(), log=Log("off"))
assert slow is None, slow
"""


def check(code: str) -> None:
    # A missed signal takes 1000 s; 2000 that come take long as well where both processes wait for a core each time.
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code], capture_output=True, text=True, check=False, timeout=900
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_signal_is_missed() -> None:
    """Sent before the call, in the moment at which it begins, or while it waits: a missed one takes 1000 s."""
    check("""
tracer, (go, sends) = os.getpid(), os.pipe()
if not os.fork():
    os.close(sends)
    while os.read(go, 1):
        for _ in range(random.randrange(400)): pass
        os.kill(tracer, WAKES)
    os._exit(0)
for number in range(2000):
    os.write(sends, b"x")
    assert loop.next(1000.0).kind is Kind.NOTHING
assert WAKES in signal.pthread_sigmask(signal.SIG_BLOCK, ())
os.kill(command, signal.SIGKILL)
""")


def test_it_ends_in_time_and_not_before() -> None:
    check("""
for wait_s in (0.0, 0.001, 0.02, 0.3):
    begin = time.monotonic()
    assert loop.next(wait_s).kind is Kind.NOTHING
    assert time.monotonic() - begin >= wait_s
os.kill(command, signal.SIGKILL)
ends = []
while (event := loop.next(1000.0)).kind is not Kind.OVER:
    ends.append((event.kind, event.value))
    if event.kind is Kind.EXITING:
        loop.let_exit(event.tid)
assert ends == [(Kind.EXITING, 9), (Kind.ENDED, 9)], ends
""")
