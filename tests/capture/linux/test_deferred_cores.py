"""A process does not wait for its core: what the core is made of is copied, and written when the process has gone on."""

from __future__ import annotations

import dataclasses
import gzip
import io
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import build, compiler, dying
from supervised import python, run_and_record

from necropsy.capture import open_core
from necropsy.capture.linux.core import small_core
from necropsy.capture.linux.inspect import crash_builder
from necropsy.model import RunRecord

DIES = """
#include <string.h>
__attribute__((noinline)) int fall(int depth) {
  char room[256];
  memset(room, depth, sizeof room);
  return depth ? fall(depth - 1) + room[1] : *(volatile int *)8;
}
int main(void) { return fall(40); }
"""
SIX = """
import os, signal
children = []
for _ in range(6):
    pid = os.fork()
    if not pid:
        os.kill(os.getpid(), signal.SIGSEGV)
    children.append(pid)
print(*(os.waitpid(one, 0)[1] for one in children))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler()
    return build(tmp_path_factory.mktemp("core"), DIES, "-g", "-O0", "-fno-omit-frame-pointer")


def recorded(command: list[str], folder: Path, **options: Any) -> tuple[subprocess.CompletedProcess[bytes], RunRecord]:
    return run_and_record(command, folder, core="small", **options)


def functions(core: bytes, folder: Path) -> list[str | None]:
    path = folder / "core"
    path.write_bytes(core)
    thread = open_core.read(path).crashed_thread
    assert thread is not None
    return [frame.function for frame in thread.frames or ()]


def test_a_deferred_core_is_the_one_that_would_be_written_at_once(program: Path) -> None:
    at_once, later = io.BytesIO(), io.BytesIO()
    deferred: list[Callable[[], None]] = []
    with dying([os.fspath(program)]) as death:
        crash_builder.capture(dataclasses.replace(death, core=at_once))
        crash_builder.capture(dataclasses.replace(death, core=later, deferred=deferred))
    assert not later.getvalue()
    for one in deferred:
        one()
    assert gzip.decompress(later.getvalue()) == gzip.decompress(at_once.getvalue())


def test_a_large_core_is_not_copied(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_core, "MOST_COPIED", 4096)
    core = io.BytesIO()
    deferred: list[Callable[[], None]] = []
    with dying([os.fspath(program)]) as death:
        crash_builder.capture(dataclasses.replace(death, core=core, deferred=deferred))
    assert not deferred
    assert gzip.decompress(core.getvalue()).startswith(b"\x7fELF")


def test_the_process_ends_before_its_core_is_written(program: Path, tmp_path: Path) -> None:
    done, record = recorded([str(program)], tmp_path, fault="core_of_the_ended")
    assert done.returncode == -signal.SIGSEGV
    (core,) = record.cores.values()
    assert functions(core().read(), tmp_path)[:41] == ["fall"] * 41


def test_a_core_that_the_tracer_has_to_write_is_complete(program: Path, tmp_path: Path) -> None:
    done, record = recorded([str(program)], tmp_path, fault="no_descriptors_are_passed")
    assert done.returncode == -signal.SIGSEGV
    (core,) = record.cores.values()
    assert functions(core().read(), tmp_path)[:41] == ["fall"] * 41


def test_of_several_deaths_each_has_its_core(tmp_path: Path) -> None:
    """Each of the two processes that read has a core to write when the next process dies."""
    done, record = recorded(python(SIX), tmp_path, fault="core_of_the_ended")
    assert done.stdout.split() == [b"139"] * 6 or done.stdout.split() == [b"11"] * 6
    assert len(record.crashes) == len(record.cores) == 6
    for core in record.cores.values():
        assert gzip.decompress(core().read()).startswith(b"\x7fELF")


@pytest.mark.parametrize("fault", ["core_fails", "core_is_deadly"])
def test_a_core_that_cannot_be_written_costs_nothing_else(program: Path, fault: str, tmp_path: Path) -> None:
    done, record = recorded([str(program)], tmp_path, fault=fault)
    assert done.returncode == -signal.SIGSEGV
    assert not done.stderr
    (crash,) = record.crashes
    assert crash.crashed_thread is not None
    assert not record.cores


@pytest.mark.parametrize("fault", ["core_fails", "core_is_deadly"])
def test_the_next_death_is_read_after_a_core_failed(fault: str, tmp_path: Path) -> None:
    _, record = recorded(python(SIX), tmp_path, fault=fault)
    assert len(record.crashes) == 6
    assert all(crash.crashed_thread is not None and crash.crashed_thread.frames for crash in record.crashes)
