"""What ``necropsy explain -`` takes for 100 MB of texts that were made to hurt it: wall seconds and peak memory.

    python benchmarks/hostile_logs.py [--size 100] [NAME]...

``explain_100mb`` gives the same as rows of a table.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from hostile_logs import HOSTILE, Source  # noqa: E402 - it lies beside the tests

NECROPSY = [sys.executable, "-m", "necropsy"]


@dataclass(frozen=True)
class Measured:
    """One text: seconds on the wall and of the processor, bytes of memory at the most."""

    name: str
    wall_s: float
    cpu_s: float
    peak: int


def measure(name: str, size: int) -> Measured:
    """One text, from a pipe; it lies on disk, so that making it costs no time of ours."""
    with tempfile.TemporaryFile() as file:
        source = Source(HOSTILE[name](), size)
        while block := source.read(1 << 20):
            file.write(block)
        file.seek(0)
        feeder = subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE)
        began = time.perf_counter()
        reader = subprocess.Popen(
            [*NECROPSY, "explain", "-"], stdin=feeder.stdout, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(reader.pid, 0)
        took = time.perf_counter() - began
        feeder.wait()
    if status:
        raise SystemExit(f"{name}: exit status {status}")
    # Linux gives kilobytes.
    return Measured(name, took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


def explain_100mb(names: Sequence[str] = (), size: int = 100 << 20) -> Iterator[tuple[str, str]]:
    """Rows of a table: what the text is, and what it took."""
    for name in names or HOSTILE:
        found = measure(name, size)
        yield name, f"{found.wall_s:.1f} s ({found.cpu_s:.1f} s CPU), {found.peak / 1e6:.0f} MB"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100, help="MiB")
    parser.add_argument("names", nargs="*", metavar="NAME")
    given = parser.parse_args()
    for name, figure in explain_100mb(given.names, given.size << 20):
        print(f"{name:34} {figure}", flush=True)
