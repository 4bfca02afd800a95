"""Signals that wait are taken as they were sent; none is made up."""

from __future__ import annotations

import subprocess
import sys
import time

CODE = """
import os, signal, sys, time
from necropsy.capture.linux.supervise.signal_wait import take
signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
"""


def output(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", CODE + code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def test_what_was_sent_and_by_whom() -> None:
    code = """
me = os.getpid()
for signo in (signal.SIGUSR1, signal.SIGRTMAX):
    os.kill(me, signo)
    taken = take(signal.valid_signals(), 10)
    print((taken.signo, taken.code, taken.sender) == (signo, 0, me))
os.kill(me, signal.SIGUSR1)
print(take({signal.SIGUSR2}, 0), take({signal.SIGUSR1}, 0).signo == signal.SIGUSR1)
"""
    assert output(code).split("\n") == ["True", "True", "None True", ""]


def test_nothing_was_sent() -> None:
    begin = time.monotonic()
    assert output("print(take(signal.valid_signals(), 0.5))") == "None\n"
    assert time.monotonic() - begin > 0.5


def test_a_stop_that_lasts_longer_than_the_wait_is_no_signal() -> None:
    code = """
pid = os.fork()
if not pid:
    print(take({signal.SIGUSR1}, 0.3), flush=True)
    os._exit(0)
time.sleep(0.1)
os.kill(pid, signal.SIGSTOP)
time.sleep(0.5)
os.kill(pid, signal.SIGCONT)
os.waitpid(pid, 0)
"""
    assert output(code) == "None\n"


def test_a_stop_does_not_shorten_the_wait() -> None:
    code = """
pid = os.fork()
if not pid:
    print(take({signal.SIGUSR1}, 60).signo == signal.SIGUSR1, flush=True)
    os._exit(0)
for _ in range(3):
    time.sleep(0.05)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.05)
    os.kill(pid, signal.SIGCONT)
os.kill(pid, signal.SIGUSR1)
os.waitpid(pid, 0)
"""
    assert output(code) == "True\n"
