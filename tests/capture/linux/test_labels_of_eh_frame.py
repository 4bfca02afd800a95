"""A library whose ``.eh_frame`` is labelled as lld and gold label it is unwound as any other."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = """
__attribute__((noinline)) int innermost(int *p) { volatile int room[8]; room[0] = *p; return room[0] + 1; }
__attribute__((noinline)) int middle(int *p) { volatile int room[40]; room[1] = innermost(p); return room[1] + 2; }
int outermost(void) { volatile int room[20]; room[2] = middle((int *)8); return room[2] + 3; }
"""
UNWIND = 0x70000001

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("gcc"), reason="needs Linux and gcc, to build a library"
)


def relabel(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at, size, count, names = struct.unpack_from("<Q10xHHH", data, 40)
    names_at = struct.unpack_from("<Q", data, at + names * size + 24)[0]
    for row in range(at, at + count * size, size):
        name = names_at + struct.unpack_from("<I", data, row)[0]
        if data[name : name + 10] == b".eh_frame\0":
            struct.pack_into("<I", data, row + 4, UNWIND)
    path.write_bytes(data)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    (folder / "deep.c").write_text(SOURCE)
    built = folder / "libdeep.so"
    flags = ["-shared", "-fPIC", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls"]
    subprocess.run(["gcc", *flags, str(folder / "deep.c"), "-o", str(built)], check=True)
    return built


def test_a_library_with_the_other_label_is_unwound(library: Path, tmp_path: Path) -> None:
    other = tmp_path / "libother.so"
    shutil.copy(library, other)
    relabel(other)
    report = tmp_path / "report.json"
    program = f"import ctypes; ctypes.CDLL({str(other)!r}).outermost()"
    necropsy = [sys.executable, "-m", "necropsy", "run", "--quiet", "--json", str(report), "--"]
    subprocess.run([*necropsy, sys.executable, "-c", program], check=False, timeout=60)
    threads = json.loads(report.read_text())["reports"][0]["crash"]["threads"]
    frames = threads[0]["frames"]
    assert [frame["function"] for frame in frames[:3]] == ["innermost", "middle", "outermost"]
    assert {frame["found_by"] for frame in frames[1:]} == {"cfi"}
    assert threads[0]["complete"]
