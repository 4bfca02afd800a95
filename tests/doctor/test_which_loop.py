"""``necropsy doctor`` says which loop supervises programs on Linux."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the loop is for Linux")


def doctor(**environment: str) -> str:
    words = [sys.executable, "-m", "necropsy", "doctor", "--python", sys.executable]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    return done.stdout


@pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="without a compiler there is no C loop to be in use"
)
def test_the_c_loop_is_in_use_where_a_compiler_was_there() -> None:
    assert doctor(NECROPSY_LOOP="c").endswith("\nSupervisor: the C loop is in use.\n")


def test_the_python_loop_is_named_with_the_reason() -> None:
    assert "the Python loop is in use, because the Python loop was asked for" in doctor(NECROPSY_LOOP="python")
