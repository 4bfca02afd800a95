"""Minidumps of Windows programs, written under wine by Windows' own function: necropsy, and lldb where it is installed.

Both get the same dump and the same images; lldb prints all stacks to /dev/null.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
WINES_OWN = Path("/usr/lib/x86_64-linux-gnu/wine/x86_64-windows")
READ_NULL = "import faulthandler; faulthandler._read_null()"


def rows(runs: int = 5) -> list[tuple[str, str]]:
    """What it takes from the command to the report; nothing where there is no wine to make dumps with."""
    sys.path.insert(0, str(ROOT / "tests"))
    import wine
    from crashers.windows import build

    if wine.reason or not build.available():
        return []
    programs, python = build.programs(), wine.python()
    cases = (
        (
            "a minidump, a recursion",
            wine.dump(programs / "crash.exe", "recursion", kind=wine.FULL_DUMP, first=(0xC00000FD,)),
            programs,
        ),
        ("a minidump, Windows' Python", wine.dump(python, "-c", READ_NULL, kind=wine.FULL_DUMP), python.parent),
    )
    return [
        (f"{name}, {path.stat().st_size / 1e6:.0f} MB: `necropsy open`", measured(path, images, runs))
        for name, path, images in cases
    ]


def measured(path: Path, images: Path, runs: int) -> str:
    """Seconds from the command to the report, and its memory; beside them lldb's seconds."""
    ours = [sys.executable, "-m", "necropsy", "open", str(path), "--images", str(images), "--images", str(WINES_OWN)]
    seconds, octets = median(ours, runs)
    told = f"{seconds:.2f} s, {octets / 1e6:.0f} MB"
    lldb = shutil.which("lldb")
    if lldb is None:
        return f"{told}; lldb is not installed"
    theirs, _ = median([lldb, "-b", "-c", str(path), "-o", "thread backtrace all"], min(runs, 3))
    return f"{told}; `lldb -c ... -o 'thread backtrace all'`: {theirs:.2f} s"


def median(command: Sequence[str], runs: int) -> tuple[float, int]:
    """The median time of the command in seconds, and the most memory that it had, in bytes."""
    took, most = [], 0
    for _ in range(runs):
        began = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        took.append(time.perf_counter() - began)
        most = max(most, usage.ru_maxrss * 1024)
        assert status == 0, command
    return statistics.median(took), most
