"""An uncaught exception is read where the interpreter begins to end, by a breakpoint that needs no rights."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from supervised import record_of, until, words

from necropsy.capture.linux.inspect.interpreter import InterpreterState
from necropsy.capture.linux.stderr.exception_watch import Finalizations
from necropsy.capture.linux.supervise import hardware_breakpoint, ptrace

WITHOUT_CAPABILITIES = ("setpriv", "--inh-caps=-all", "--bounding-set=-all")
OPENS = """
import os, sys
from necropsy.capture.linux.supervise import hardware_breakpoint
hardware_breakpoint.opened(os.getpid(), 0x1000)
"""
FAILS = "import sys; sys.stdin.read(); raise RuntimeError('no licence')"
FORKS = """
import os, sys
if os.fork():
    os.wait()
    os.execv(sys.executable, ["python", "-c", ""])
"""
TRACES = """
import sys, time
from necropsy.capture.linux.supervise import ptrace
from necropsy.capture.linux.stderr.exception_watch import Finalizations
ptrace.seize(int(sys.argv[1]), 0)
ends = Finalizations()
ends.expect(int(sys.argv[1]))
print("waits" if ends.waits_for(int(sys.argv[1])) else "waits for nothing", flush=True)
time.sleep(1000)
"""


def is_permitted() -> bool:
    """This machine lets a process without capabilities set a breakpoint."""
    if sys.platform != "linux" or shutil.which("setpriv") is None:
        return False
    command = [*WITHOUT_CAPABILITIES, sys.executable, "-c", OPENS]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not is_permitted(), reason="breakpoints of perf_event_open(2) are not permitted here")


@pytest.fixture
def failing() -> Iterator[subprocess.Popen[bytes]]:
    """A program that fails when its stdin is closed, and waits for that now."""
    process = subprocess.Popen([sys.executable, "-c", FAILS], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    until(lambda: Path(f"/proc/{process.pid}/syscall").read_text().startswith("0 0x0 "), "it reads its stdin")
    yield process
    process.kill()
    process.wait()


def test_it_stops_once_with_the_exception_in_hand_and_ends_as_it_would_have(
    failing: subprocess.Popen[bytes],
) -> None:
    ptrace.seize(failing.pid, 0)
    ends = Finalizations()
    ends.expect(failing.pid)
    assert failing.stdin is not None
    failing.stdin.close()
    stopped, status = os.waitpid(failing.pid, ptrace.WALL)
    assert (stopped, os.WSTOPSIG(status)) == (failing.pid, signal.SIGTRAP)
    assert hardware_breakpoint.is_hit(failing.pid, signal.SIGTRAP)
    assert ends.has_begun(failing.pid, failing.pid)
    found = InterpreterState.find(failing.pid)
    assert found is not None
    said = found.said(None)
    found.close()
    assert said is not None
    assert (said.kind, said.text.splitlines()[-1]) == ("uncaught", "RuntimeError: no licence")
    ptrace.cont(failing.pid)
    assert failing.wait() == 1


def test_a_tracer_that_is_killed_leaves_no_breakpoint_behind(failing: subprocess.Popen[bytes]) -> None:
    tracer = subprocess.Popen([sys.executable, "-c", TRACES, str(failing.pid)], stdout=subprocess.PIPE)
    assert tracer.stdout is not None
    assert tracer.stdout.readline() == b"waits\n"
    tracer.kill()
    tracer.communicate()
    assert failing.stdin is not None
    failing.stdin.close()
    assert failing.wait() == 1


@pytest.mark.parametrize("fault", ["late_to_look", "late_to_look_in_python"])
def test_an_exception_is_told_even_where_every_look_comes_too_late(fault: str, tmp_path: Path) -> None:
    record = tmp_path / "record"
    command = [sys.executable, "-c", "import this_is_not_there"]
    done = subprocess.run(
        [*WITHOUT_CAPABILITIES, *words(command, record=record, fault=fault)], check=False, capture_output=True
    )
    assert done.returncode == 1
    (crash,) = record_of(record).ends.values()
    assert crash.last_words is not None
    assert crash.last_words.text == "ModuleNotFoundError: No module named 'this_is_not_there'"


def test_what_was_executed_since_or_forked_is_not_stopped(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(FORKS)
    command = [*WITHOUT_CAPABILITIES, *words([sys.executable, str(program)], record=tmp_path / "record")]
    done = subprocess.run(command, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
