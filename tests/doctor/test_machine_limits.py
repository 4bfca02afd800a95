"""Limits that are too small: set for a real process, a file system that is really full, control groups from folders."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import control_group
import needs
from doctor_building import Venv
from environment_sketch import environment
from forbidding import FORBID
from necropsy.capture.linux.supervise import self_check
from necropsy.doctor import machine, system
from necropsy.examination import Asked, examined
from necropsy.model import Environment
from necropsy.rule import Finding
from necropsy.rules.env import (
    env_disk_full,
    env_memory_limit,
    env_no_swap,
    env_open_files_limit,
    env_process_limit,
    env_ptrace_restricted,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits as Linux has them")
DOCTOR = f"'{sys.executable}' -m necropsy doctor --format json"
MIB = 1 << 20


def shell(script: str, *before: str, **variables: str) -> dict[str, dict[str, Any]]:
    """The findings of a doctor that a script starts, by their rules."""
    words = [*before, "bash", "-c", script]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **variables})
    assert done.returncode in {0, 1}, done.stderr
    return {one["rule"]: one for one in json.loads(done.stdout)["findings"]}


def test_limits_of_a_shell_and_the_commands_that_raise_them(tmp_path: Path) -> None:
    venv = Venv.make(tmp_path / "env")
    broken = "ulimit -S -s 512; ulimit -S -n 64; ulimit -S -v 3000000; "
    doctor = f"{DOCTOR} --python '{venv.python}'"
    found = shell(broken + doctor)
    names = ("env-stack-too-small", "env-open-files-limit", "env-address-space-limit")
    assert [found[name]["severity"] for name in names] == ["warning", "warning", "note"]
    assert "512 KiB" in found["env-stack-too-small"]["summary"]
    commands = "; ".join(found[name]["fixes"][0]["command"] for name in names)
    assert not shell(f"{broken}{commands}; {doctor}").keys() & {*names}


NOT_ROOT = ("--user", "--map-user=1000")


@needs.namespace(*NOT_ROOT, then="ulimit -S -u 60; ulimit -S -c 0")
def test_limits_that_do_not_hold_root(tmp_path: Path) -> None:
    doctor = f"{DOCTOR} --python '{Venv.make(tmp_path / 'env').python}'"
    broken = "ulimit -S -c 0; ulimit -S -u 60; "
    found = shell(broken + doctor, "unshare", *NOT_ROOT)
    finding = found["env-process-limit"]
    assert finding["severity"] == "warning"
    assert "This user may have 60 threads" in finding["summary"]
    rules = [one for one in ("env-process-limit", "env-core-dumps-off") if one in found]
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    assert ("env-core-dumps-off" in rules) == (not pattern.startswith("|"))
    commands = "; ".join(found[one]["fixes"][0]["command"] for one in rules)
    assert not shell(f"{broken}{commands}; {doctor}", "unshare", *NOT_ROOT).keys() & {*rules}


@control_group.needed()
def test_a_control_group_with_little_memory(tmp_path: Path) -> None:
    venv = Venv.make(tmp_path / "env")
    venv.install("torch", "2.9.0")
    doctor = f"{DOCTOR} --no-probe --python '{venv.python}'"
    with control_group.limited(400 << 20) as group:
        finding = shell(doctor, *control_group.inside(group))["env-memory-limit"]
    assert finding["severity"] == "warning"
    assert "may use 400 MiB of memory" in finding["summary"]
    with control_group.limited(1 << 40) as group:
        assert "env-memory-limit" not in shell(doctor, *control_group.inside(group))


def test_a_limit_that_only_an_administrator_can_raise() -> None:
    limits = {"RLIMIT_NOFILE": 64}
    held = Environment(limits=limits, user=1000, machine=machine.machine(None, {}, hard_limits=limits))
    finding = env_open_files_limit.RULE.match(held)
    assert finding is not None
    assert finding.fixes[0].command is None
    assert "/etc/security/limits.conf" in finding.fixes[0].text


def test_the_stack_that_the_launcher_has_raised_is_not_the_programs(tmp_path: Path) -> None:
    venv = Venv.make(tmp_path / "env")
    document = examined(Asked(python=venv.python, stack=(128 << 10, -1)), os.environ)
    (finding,) = [one for one in document.findings if one.rule == "env-stack-too-small"]
    assert finding.severity == "warning"
    assert finding.fixes[0].command == "ulimit -S -s 8192"


ALONE = ("--user", "--map-root-user", "--mount")


@needs.namespace(*ALONE, then="mount -t tmpfs none /mnt")
def test_file_systems_that_are_full_or_small(tmp_path: Path) -> None:
    alone = ("unshare", *ALONE)
    there, mounted = tmp_path / "small", f"mount -t tmpfs -o size=1m tmpfs '{tmp_path}/small'"
    there.mkdir()
    venv = Venv.make(tmp_path / "env")
    doctor = f"{DOCTOR} --python '{venv.python}'"
    shared = "mount -t tmpfs -o size=8m tmpfs /dev/shm"
    fill = f"{mounted}; {shared}; head -c 1010000 /dev/zero > '{there}/x'; "
    found = shell(fill + doctor, *alone, TMPDIR=str(there))
    assert str(there) in found["env-disk-full"]["summary"]
    assert "8 MiB" in found["env-shared-memory-small"]["summary"]
    assert found["env-shared-memory-small"]["severity"] == "warning"
    larger = f"{shared}; mount -o remount,size=8g /dev/shm"
    empty = shell(f"{mounted}; {larger}; {doctor}", *alone, TMPDIR=str(there))
    assert not empty.keys() & {"env-disk-full", "env-shared-memory-small"}, "small, but not full"


def test_a_file_system_that_cannot_be_written_to_is_not_full() -> None:
    mounts = system.mounts({"HOME": "/"}, "/nonexistent/necropsy/reports")
    (reports,) = [one for one in mounts if one.role == "reports"]
    assert reports.path == "/"
    full = environment(env_disk_full.RULE.hit)
    assert env_disk_full.RULE.match(full) is not None
    held = msgspec.structs.replace(
        full, mounts=tuple(msgspec.structs.replace(one, is_read_only=True) for one in full.mounts or ())
    )
    assert env_disk_full.RULE.match(held) is None


@pytest.mark.parametrize("version", [1, 2])
def test_control_groups_of_both_versions(tmp_path: Path, version: int) -> None:
    memory, pids = (
        (tmp_path / "fs", tmp_path / "fs") if version == 2 else (tmp_path / "fs/memory", tmp_path / "fs/pids")
    )
    names = (
        ("memory.max", "memory.current", "memory.events", "inactive_file")
        if version == 2
        else ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.oom_control", "total_inactive_file")
    )
    for folder in (memory, pids):
        (folder / "job").mkdir(parents=True, exist_ok=True)
        (folder / "job" / "cgroup.procs").touch()
    (memory / "job" / names[0]).write_text(f"{1024 * MIB}\n")
    (memory / "job" / names[1]).write_text(f"{900 * MIB}\n")
    (memory / "job" / names[2]).touch()
    (memory / "job" / "memory.stat").write_text(f"anon 1\n{names[3]} {100 * MIB}\n")
    (pids / "job" / "pids.max").write_text("100\n")
    (pids / "job" / "pids.current").write_text("90\n")
    own = tmp_path / "proc/self"
    own.mkdir(parents=True)
    if version == 2:
        (own / "cgroup").write_text("0::/job\n")
        (own / "mountinfo").write_text(f"30 20 0:26 / {memory} rw - cgroup2 cgroup2 rw\n")
    else:
        (own / "cgroup").write_text("4:memory:/job\n3:pids:/job\n")
        rows = (f"30 20 0:26 / {place} rw - cgroup cgroup rw,{place.name}\n" for place in (memory, pids))
        (own / "mountinfo").write_text("".join(rows))
    groups = machine.groups(tmp_path)
    assert [(one.name, one.limit, one.used) for one in groups] == [
        ("memory.max", 1024 * MIB, 800 * MIB),
        ("pids.max", 100, 90),
    ]
    of_container = Environment(limits={}, groups=groups, distributions=(), machine=machine.machine(0, {}))
    told = env_memory_limit.RULE.match(of_container)
    assert told is not None
    assert told.severity == "note", "an ordinary container"
    finding = env_process_limit.RULE.match(of_container)
    assert finding is not None
    assert "10 more can be started" in finding.summary


def test_what_the_machine_says(tmp_path: Path) -> None:
    (tmp_path / "proc/sys/kernel/yama").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal:       1048576 kB\nSwapTotal:             0 kB\n")
    (tmp_path / "proc/sys/kernel/yama/ptrace_scope").write_text("2\n")
    (tmp_path / "proc/sys/kernel/core_pattern").write_text("|/usr/share/apport/apport %p\n")
    (tmp_path / "proc/7").mkdir()
    (tmp_path / "proc/7/status").write_text("Name:\tx\nUid:\t1000\t1000\t1000\t1000\nThreads:\t12\n")
    (tmp_path / ".dockerenv").touch()
    found = machine.machine(1000, {}, root=tmp_path)
    assert (found.memory, found.swap, found.ptrace_scope, found.user_threads) == (1 << 30, 0, 2, 12)
    assert found.is_container
    assert found.core_pattern == "|/usr/share/apport/apport %p"


def test_a_machine_without_swap(tmp_path: Path) -> None:
    def told(swap: int) -> Finding | None:
        (tmp_path / "proc/meminfo").write_text(f"MemTotal:       1048576 kB\nSwapTotal:   {swap:>9} kB\n")
        return env_no_swap.RULE.match(Environment(machine=machine.machine(None, {}, root=tmp_path)))

    (tmp_path / "proc").mkdir()
    finding = told(0)
    assert finding is not None
    assert finding.fixes == (), "a note: nothing has to be fixed"
    assert "1 GiB of memory" in finding.summary
    assert told(8388604) is None, "after swapon"


@pytest.mark.parametrize("scope", [1, 2])
def test_yama_forbids_tracing(tmp_path: Path, scope: int) -> None:
    """The command writes the value to the file of that name, as sysctl(8) would: this machine may have no Yama."""
    file = tmp_path / "proc/sys/kernel/yama/ptrace_scope"

    def told(value: str) -> Finding | None:
        file.write_text(f"{value}\n")
        held = Environment(user=1000, machine=machine.machine(None, {}, root=tmp_path))
        return env_ptrace_restricted.RULE.match(held)

    file.parent.mkdir(parents=True)
    finding = told(str(scope))
    assert finding is not None
    name, _, value = (finding.fixes[0].command or "").removeprefix("sudo sysctl ").partition("=")
    assert tmp_path / "proc/sys" / name.replace(".", "/") == file
    assert told(value) is None
    forever = told("3")
    assert forever is not None
    assert "/etc/sysctl.d" in forever.fixes[0].text


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls")
@pytest.mark.skipif(self_check.why_untraceable() is not None, reason="processes cannot be traced here")
def test_a_sandbox_forbids_tracing(tmp_path: Path) -> None:
    doctor = f"{DOCTOR} --no-probe --python '{Venv.make(tmp_path / 'env').python}'"
    finding = shell(doctor, sys.executable, "-c", FORBID, "101", str(errno.EPERM))["env-ptrace-restricted"]
    assert finding["severity"] == "note"
    assert "ptrace(2)" in {one["where"] for one in finding["evidence"]}
    assert any(word in finding["fixes"][0]["text"] for word in ("--cap-add=SYS_PTRACE", "outside the sandbox"))
    outside = shell(doctor).get("env-ptrace-restricted", {"evidence": ()})  # Yama may still be there
    assert "ptrace(2)" not in {one["where"] for one in outside["evidence"]}


def test_a_child_of_a_traced_process_belongs_to_that_tracer() -> None:
    code = "from necropsy.capture.linux.supervise import self_check; print(self_check.why_untraceable())"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert plain.strip() == str(self_check.why_untraceable())
    words = [sys.executable, "-m", "necropsy", "run", sys.executable, "-c", code]
    traced = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert traced.strip() == "None"
