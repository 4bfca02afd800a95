"""The file that a Java virtual machine leaves when a signal ends it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from necropsy.capture.linux.inspect.jvm_error_file import fault_of

HEAD = """#
# A fatal error has been detected by the Java Runtime Environment:
#
#  SIGSEGV (0xb) at pc=0x00007f52810d2f94, pid={pid}, tid=4156
#
# JRE version: OpenJDK Runtime Environment (17.0.15+6) (build 17.0.15+6-Debian-1deb12u1)
"""


@pytest.fixture
def process(tmp_path: Path) -> Iterator[int]:
    """One that lives, with its working directory to itself."""
    running = subprocess.Popen(["sleep", "60"], cwd=tmp_path)
    yield running.pid
    running.kill()
    running.wait()


def test_the_file_of_the_process_says_where_the_fault_was(process: int, tmp_path: Path) -> None:
    assert fault_of(process) is None
    (tmp_path / f"hs_err_pid{process}.log").write_text(HEAD.format(pid=process))
    assert fault_of(process) == 0x7F52810D2F94


def test_a_file_of_another_process_or_time_or_user_says_nothing(process: int, tmp_path: Path) -> None:
    path = tmp_path / f"hs_err_pid{process}.log"
    path.write_text(HEAD.format(pid=process + 1))
    assert fault_of(process) is None
    path.write_text(HEAD.format(pid=process))
    os.utime(path, (0, 0))
    assert fault_of(process) is None
    path.unlink()
    other = tmp_path / "other"
    other.write_text(HEAD.format(pid=process))
    path.symlink_to(other)
    assert fault_of(process) is None
    path.unlink()
    if os.geteuid() == 0:
        path.write_text(HEAD.format(pid=process))
        assert fault_of(process) is not None
        os.chown(path, 65534, 65534)
        assert fault_of(process) is None
