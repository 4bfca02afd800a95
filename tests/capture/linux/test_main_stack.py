"""`necropsy run` of a program that ends well, and whose main thread nearly used up its stack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from harness import build
from supervised import LOOPS

SOURCE = r"""
#include <stdlib.h>
__attribute__((noinline)) static int recursion(int n) { volatile char room[1000]; room[0] = n; return n ? recursion(n - 1) + room[0] : 0; }
int main(int argc, char **argv) { recursion(atoi(argv[1])); return 0; }
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("main")
    return str(build(folder, SOURCE, "-O1", "-fno-optimize-sibling-calls", name="recursion"))


def run(loop: str, depth: int, program: str, *options: str) -> str:
    words = [sys.executable, "-m", "necropsy", "run", *options, "--", "sh", "-c", 'ulimit -S -s 2048; "$0" "$1"; true']
    done = subprocess.run(
        [*words, program, str(depth)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, "NECROPSY_LOOP": loop},
    )
    return done.stderr


@pytest.mark.parametrize("loop", LOOPS)
def test_one_line_warns_where_less_than_an_eighth_is_left(program: str, loop: str, tmp_path: Path) -> None:
    (line,) = run(loop, 1900, program).splitlines()
    assert line.startswith("necropsy: ")
    assert "recursion 1900 used all but " in line
    assert "of its main thread's stack of 2 MiB; `necropsy profile` shows" in line
    assert not run(loop, 1900, program, "--quiet")
    assert not run(loop, 1500, program)
