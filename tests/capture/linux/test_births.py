"""Processes are born and end as without necropsy: clone(2) with its flags, vfork, posix_spawn, orphans, outliving."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from harness import build
from supervised import run, until

from crashers.build import HERE

WAYS = 13


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(build(tmp_path_factory.mktemp("births"), (HERE / "births.c").read_text(), "-O1"))


def test_every_way_is_seen_as_without(program: str) -> None:
    plain = subprocess.run([program], check=True, capture_output=True, timeout=60).stdout.decode().splitlines()
    ours = run([program], log="off")
    assert len(plain) == WAYS
    assert plain[2] == "clone, untraced: exited 4, signal 11"
    assert ours.returncode == 0
    assert ours.stdout.decode().splitlines() == plain


def test_a_child_that_outlives_the_command(program: str, tmp_path: Path) -> None:
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    assert subprocess.run([program, str(plain)], check=False, timeout=60).returncode == 13
    assert run([program, str(ours)], log="off", popen={"capture_output": False}).returncode == 13
    for file in (plain, ours):
        until(file.exists, "the child has opened its file")
        until(file.read_bytes, "and written to it")
