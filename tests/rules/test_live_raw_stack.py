"""A full stack of code without unwind tables, frame pointers and names: its raw memory says that it is a recursion."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from live import compiled, report_of, verdict_of

SOURCE = """
    __attribute__((noinline)) int inner(int level);
    __attribute__((noinline)) int outer(int level) {
      volatile char room[40]; room[level % 40] = level; return inner(level + 1) + room[level % 3];
    }
    __attribute__((noinline)) int inner(int level) {
      volatile char room[90]; room[level % 90] = level; return outer(level + 1) + room[level % 3];
    }
    int main(void) { return outer(0); }
"""
BARE = [
    "-O2",
    "-g0",
    "-s",
    "-static",
    "-fomit-frame-pointer",
    "-fno-asynchronous-unwind-tables",
    "-fno-optimize-sibling-calls",
]


def has_static_library() -> bool:
    """The compiler prints the bare name of a file that it does not find. Some distributions ship no libc.a."""
    if shutil.which("gcc") is None:
        return False
    asked = subprocess.run(["gcc", "-print-file-name=libc.a"], check=False, capture_output=True, text=True)
    return Path(asked.stdout.strip()).is_absolute()


@pytest.mark.skipif(not has_static_library(), reason="there is no static C library")
def test_a_recursion_that_cannot_be_unwound(tmp_path: Path) -> None:
    program = compiled(SOURCE, tmp_path / "program", *BARE)
    report = report_of([str(program)], tmp_path)
    assert verdict_of(report) == ("stack-overflow-recursion", "certain")
    (fold,) = next(thread for thread in report["crash"]["threads"] if thread["crashed"])["folds"]
    assert fold["period"] == 2
    assert fold["times"] > 10_000
