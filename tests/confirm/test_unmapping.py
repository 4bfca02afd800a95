"""Who unmapped memory that was used afterwards: what a watched run writes down, and which call is the one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from necropsy.confirm import unmapping
from necropsy.model import Address, Crash, Fault, Former

HOOK = Path(__file__).parents[2] / "src/necropsy/confirm/preload/unmapped-x86_64.so"
CODE = """\
import mmap
from multiprocessing import shared_memory
shared = shared_memory.SharedMemory(create=True, size=12288)
shared.unlink()
def done():
    shared.close()
done()
try:
    raise KeyError("kept")
except KeyError:
    mmap.mmap(-1, 20480).close()
import _ctypes
_ctypes.dlclose(_ctypes.dlopen("libm.so.6", 2))
"""

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="what is preloaded is for Linux")


def crash(former: Former) -> Crash:
    return Crash(fault=Fault(signal="SIGSEGV", code="SEGV_MAPERR", address=Address(0x7F0000001000), former=former))


def mapping(size: int) -> Former:
    low = 0x7F0000001000
    return Former(kind="mmap", low=Address(low), high=Address(low + size), seen="s", where="w")


def test_each_call_is_written_down_with_the_line_of_python(tmp_path: Path) -> None:
    program, log = tmp_path / "program.py", tmp_path / "log"
    program.write_text(CODE)
    watched = {**os.environ, "LD_PRELOAD": str(HOOK), "NECROPSY_UNMAPPED": str(log)}
    done = subprocess.run([sys.executable, program], env=watched, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "it does what it does without"
    found = unmapping.calls(log.read_text())
    shared = next(one for one in found if one.what == "12288")
    assert shared.name == "munmap" and shared.place == f"{program}:6 in done"
    assert shared.python[-1] == f"{program}:7 in <module>", "the innermost call comes first"
    assert next(one for one in found if one.what == "20480").place == f"{program}:11 in <module>"
    closed = next(one for one in found if one.name == "dlclose" and "libm.so" in one.what)
    assert closed.place == f"{program}:13 in <module>" and "_ctypes" in closed.library


def test_only_what_can_be_told_from_other_memory_is_looked_for() -> None:
    assert unmapping.study(crash(mapping(4096)), "use-after-free") is not None
    assert unmapping.study(crash(mapping(4096)), "invalid-read") is None
    unknown = Former(kind="mmap", low=Address(0x7F0000001000), seen="s", where="w")
    assert unmapping.study(crash(unknown), "use-after-free") is None, "its size is not known"
    block = Former(kind="heap-block", low=Address(0x7F0000001010), high=Address(0x7F0000002010), seen="s", where="w")
    assert unmapping.study(crash(block), "use-after-free") is None, "malloc does not call munmap by its name"
