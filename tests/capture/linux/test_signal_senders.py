"""Who sent a signal: its command, its number in another PID namespace, and who is behind one that was passed on."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from supervised import python, record_of, run_and_record, started

from necropsy.capture.linux.supervise.shared_memory import Facts, Origin
from necropsy.model import Crash, Fault

NAMESPACE = ["unshare", "--pid", "--fork"]


def may_unshare() -> bool:
    return subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode == 0


needs_namespaces = pytest.mark.skipif(not may_unshare(), reason="no PID namespace can be made here")


def fault_of(crashes: tuple[Crash, ...]) -> Fault:
    (crash,) = crashes
    assert crash.fault is not None
    return crash.fault


@needs_namespaces
@pytest.mark.parametrize(
    ("code", "signo"),
    [
        ("os.abort()", "SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGTERM)", "SIGTERM"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
    ],
)
def test_who_signals_itself_does_so_in_another_namespace_too(code: str, signo: str, tmp_path: Path) -> None:
    line = f"{shlex.quote(sys.executable)} -c {shlex.quote('import os, signal; ' + code)}; exit 0"
    done, record = run_and_record([*NAMESPACE, "sh", "-c", line], tmp_path)
    assert done.returncode == 0
    fault = fault_of(record.crashes)
    assert (fault.signal, fault.sender, fault.sent_by_itself) == (signo, record.crashes[0].pid, True)


@needs_namespaces
def test_another_process_of_that_namespace_is_found(tmp_path: Path) -> None:
    """It has a number of its own there, which here is another process's, or nobody's."""
    _, record = run_and_record([*NAMESPACE, "sh", "-c", "sleep 60 & kill -ABRT $!; wait $!; exit 0"], tmp_path)
    fault = fault_of(record.crashes)
    shell = next(one for one in record.processes if one.pid == fault.sender)
    assert shell.command is not None and shell.command[:2] == ("sh", "-c")
    assert (fault.sender_command, fault.sent_by_itself) == (shell.command, False)


def test_the_command_of_a_sender_is_read(tmp_path: Path) -> None:
    command = ["timeout", "-s", "ABRT", "0.2", "sleep", "60"]
    _, record = run_and_record(command, tmp_path)
    fault = fault_of(record.crashes)
    assert (fault.sender, fault.sender_command) == (record.processes[0].pid, tuple(command))


def test_who_kills_itself_is_seen_in_the_call(tmp_path: Path) -> None:
    """The kernel names no sender of SIGKILL, to nobody."""
    _, record = run_and_record(python("import os; os.kill(os.getpid(), 9)"), tmp_path)
    fault = fault_of(record.crashes)
    assert (fault.signal, fault.sent_by_itself) == ("SIGKILL", True)
    killer = "import subprocess; p = subprocess.Popen(['sleep', '60']); p.kill(); p.wait()"
    _, record = run_and_record(python(killer), tmp_path)
    fault = fault_of(record.crashes)
    assert (fault.signal, fault.sender, fault.sent_by_itself) == ("SIGKILL", None, None)


def test_a_signal_that_the_front_passed_on_has_its_first_sender(tmp_path: Path) -> None:
    path = tmp_path / "record"
    code = "import sys, time; print('ready', flush=True); time.sleep(60)"
    with started(python(code), record=path, popen={"stdout": subprocess.PIPE}) as front:
        assert front.stdout is not None and front.stdout.readline() == b"ready\n"
        front.send_signal(signal.SIGTERM)
        assert front.wait(30) == -signal.SIGTERM
        passed_on_by = front.pid
    fault = fault_of(record_of(path).crashes)
    assert fault.sender == os.getpid() != passed_on_by
    assert (
        fault.sender_command is not None
        and fault.sender_command[0] == Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode()
    )


def test_of_signals_that_are_passed_on_the_last_of_each_is_kept() -> None:
    facts = Facts()
    assert facts.forwarded(signal.SIGTERM) is None
    facts.forward(signal.SIGTERM, Origin(0, 4711, ("kill", "17")))
    assert facts.forwarded(signal.SIGTERM) == Origin(0, 4711, ("kill", "17"))
    facts.forward(signal.SIGHUP, Origin(0x80, 0, None))
    assert facts.forwarded(signal.SIGHUP) == Origin(0x80, 0, None)
    assert facts.forwarded(signal.SIGTERM) == Origin(0, 4711, None), "there is room for one command"
    facts.forward(64, Origin(0, 1, ("x" * 5000,)))
    assert facts.forwarded(64) == Origin(0, 1, ("x" * 376,))
    facts.forward(65, Origin(0, 1, None))
    assert facts.forwarded(65) is None


@needs_namespaces
def test_the_first_process_of_a_namespace_dies_of_its_fault(tmp_path: Path) -> None:
    """The kernel lets it die of none as long as it is traced: it would fault for ever."""
    done, record = run_and_record([*NAMESPACE, *python("import os; os.abort()")], tmp_path)
    # abort(3) raises SIGABRT, which the first process ignores, and then executes a forbidden instruction.
    assert done.returncode == -signal.SIGSEGV
    crash = next(one for one in record.crashes if one.pid != record.processes[0].pid)
    assert crash.fault is not None and crash.fault.signal == "SIGABRT" and crash.threads
    assert crash.exit is not None and crash.exit.signal == "SIGSEGV"
