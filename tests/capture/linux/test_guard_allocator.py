"""The guard allocator under programs that use and misuse the heap: who is stopped, and who is not disturbed."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import build

from necropsy.capture.linux.supervise import guard_preload
from necropsy.errors import NecropsyError

SOURCE = Path(__file__).parents[2] / "crashers" / "guarded.c"
GUARD = pytest.mark.skipif(
    not guard_preload.LIBRARY.exists(), reason="there is no guard: no compiler was there at installation"
)
pytestmark = GUARD


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("guarded"), SOURCE.read_text(), "-g", "-O1", name="guarded")


def run(program: Path, *words: str, options: str = "") -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "LD_PRELOAD": str(guard_preload.LIBRARY), guard_preload.OPTIONS: options}
    command = [str(program), *words]
    return subprocess.run(command, check=False, env=variables, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("verb", ["after", "read-after", "before", "freed", "thread"])
def test_the_first_access_beyond_a_block_is_fatal(program: Path, verb: str) -> None:
    assert run(program, verb).returncode == -signal.SIGSEGV


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("filler", "2 bytes after the end of the block of 100 bytes at 0x.* were overwritten before it was freed"),
        ("filler-before", "2 bytes before the start of the block of 100 bytes at 0x.* were overwritten before .*"),
        ("freed-twice", "the block of 128 bytes at 0x.* was freed twice"),
        ("inside", "free of 0x.*, which is not the start of a block"),
    ],
)
def test_what_free_finds_is_told_in_one_line(program: Path, verb: str, words: str) -> None:
    done = run(program, verb)
    assert done.returncode == -signal.SIGABRT
    assert re.fullmatch(f"necropsy guard: {words}\n", done.stderr), done.stderr


def test_blocks_can_begin_behind_a_page(program: Path) -> None:
    assert run(program, "filler-before", options="begin").returncode == -signal.SIGSEGV
    assert run(program, "filler", options="begin").returncode == -signal.SIGABRT


@pytest.mark.parametrize("verb", ["alignments", "reallocations", "zeroed", "threads", "forks", "short-stack"])
def test_right_programs_are_not_disturbed(program: Path, verb: str) -> None:
    done = run(program, verb, options="small=1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended well 1\n", "")


def test_blocks_that_begin_behind_a_page_have_their_alignment(program: Path) -> None:
    assert run(program, "reallocations", options="begin,small=1").stdout == "ended well 1\n"


def test_a_child_is_guarded_as_well(program: Path) -> None:
    assert run(program, "in-child").returncode == 0


def test_disarmed_it_guards_nothing(program: Path) -> None:
    assert run(program, "after", options="disarmed").stdout == "ended well 1\n"


COUNTS = """
import ctypes, sys
guard = ctypes.CDLL(None)
libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = libc.aligned_alloc.restype = ctypes.c_void_p
state = (ctypes.c_uint64 * 128).in_dll(guard, "necropsy_guard")
counters = 40 // 8 + 5 * 9 + 5
def guarded(): return state[counters]
def unplaced(): return state[counters + 2]
"""


def test_a_process_arms_and_disarms_it() -> None:
    code = """
before = guarded()
ctypes.CDLL(None).malloc(3000)
assert guarded() == before, "disarmed"
guard.necropsy_guard_arm(0)
malloc = guard.aligned_alloc
malloc(64, 64)
after = guarded()
assert after > before, "armed"
guard.necropsy_guard_disarm()
malloc(64, 64)
assert guarded() == after, "disarmed again"
print("counted")
"""
    variables = {**os.environ, "LD_PRELOAD": str(guard_preload.LIBRARY), guard_preload.OPTIONS: "disarmed"}
    command = [sys.executable, "-c", COUNTS + code]
    assert subprocess.run(command, env=variables, check=True, capture_output=True).stdout == b"counted\n"


def test_of_a_hundred_thousand_blocks_it_guards_what_the_kernel_has_room_for(program: Path) -> None:
    assert run(program, "many", "100000", options="small=1").stdout == "ended well 1\n"


def test_without_address_space_blocks_come_from_the_c_library(program: Path) -> None:
    command = f"ulimit -v 2000000; exec {program} many 1000"
    variables = {**os.environ, "LD_PRELOAD": str(guard_preload.LIBRARY)}
    done = subprocess.run(["bash", "-c", command], check=False, env=variables, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ended well 1\n")


def test_it_needs_no_version_of_a_c_library() -> None:
    """No versioned symbols, no libraries: the dynamic loader of any glibc takes it."""
    listed = subprocess.run(["readelf", "-d", "-V", guard_preload.LIBRARY], check=True, capture_output=True, text=True)
    assert "NEEDED" not in listed.stdout
    assert "GLIBC" not in listed.stdout


def test_other_c_libraries_than_glibc_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_musl_does(_: str) -> str:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "confstr", as_musl_does)
    with pytest.raises(NecropsyError, match="needs glibc"):
        guard_preload.check()
