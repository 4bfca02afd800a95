"""What of each limit is in use: of a process that is alive, and of control groups as files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from necropsy.capture.linux.inspect import resource_limits
from necropsy.formats import control_groups
from necropsy.model import Limit

BUSY = """
import resource, sys
for name, value in (("AS", 1 << 30), ("FSIZE", 1 << 20), ("NOFILE", 100), ("CPU", 77)):
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (value, value + 1))
kept = open(sys.argv[1], "wb")
kept.write(bytes(5000)); kept.flush()
print(flush=True)
input()
"""


def by_name(found: tuple[Limit, ...]) -> Mapping[str, Limit]:
    return {one.name: one for one in found}


def test_of_a_process(tmp_path: Path) -> None:
    path = tmp_path / "written"
    command = [sys.executable, "-c", BUSY, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        found = by_name(resource_limits.in_use(process.pid))
        process.communicate(b"\n")
    space, size, files, cpu = (found["RLIMIT_" + name] for name in ("AS", "FSIZE", "NOFILE", "CPU"))
    assert (space.limit, space.hard) == (1 << 30, (1 << 30) + 1)
    assert space.used is not None and space.peak is not None and 1 << 20 < space.used <= space.peak < 1 << 30
    assert (size.limit, size.used, size.where) == (1 << 20, 5000, str(path))
    assert (files.limit, files.used) == (100, 4)
    assert (cpu.limit, cpu.hard) == (77, 78)
    assert cpu.used is not None and cpu.used < 77


def test_of_the_group_with_the_least_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit may be set above the group that the process is in."""
    for folder, most, used in ((tmp_path / "job", "100", "97"), (tmp_path / "job/step", "max", "12")):
        folder.mkdir()
        (folder / "cgroup.procs").touch()
        (folder / "pids.max").write_text(most + "\n")
        (folder / "pids.current").write_text(used + "\n")

    def folder_of(_: object, controller: str = "memory") -> Path | None:
        return tmp_path / "job/step" if controller == "pids" else None

    monkeypatch.setattr(control_groups, "folder_of", folder_of)
    found = by_name(resource_limits.in_use(0))
    assert found == {"pids.max": Limit(name="pids.max", limit=100, used=97, where=str(tmp_path / "job/pids.max"))}


@pytest.mark.skipif(os.geteuid() != 0, reason="a user of its own for the program takes root")
def test_threads_of_a_user_are_counted_with_and_without_one_process() -> None:
    user = 200_000 + os.getpid()
    script = "import threading; threading.Thread(target=input, daemon=True).start(); print(flush=True); input()"
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
    with subprocess.Popen(
        [python, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, group=user, extra_groups=[]
    ) as process:
        assert process.stdout is not None and process.stdout.readline()
        counted = resource_limits.threads_of_user([str(user)])
        assert (counted, resource_limits.threads_of_user([str(user)], without=process.pid)) == (2, 0)
        process.communicate(b"\n\n")
