"""Necropsy against gdb on the same crash, in one run, side by side.

The crash is ``examples/scripts/nest_flatten.py deeper``: ``tf.nest.flatten`` of a structure 1,000,000 levels deep,
which dies with more than 100,000 native frames on an 8 MiB stack. Two clocks for necropsy: its own (from the fatal
signal to the finished report, ``took_s`` in the JSON), and one that does not trust it: the wall time of the whole
command less that of the same command without necropsy. gdb gets the kernel's core of the same crash and prints its
stack to /dev/null, which is the least that a person would have to do to see a first frame; writing the core is not
counted.

    python benchmarks/death_to_report.py [--runs 5] [--out benchmarks/RESULTS.md]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
CRASH = (str(ROOT / "examples" / "scripts" / "nest_flatten.py"), "deeper")
STACK = 8 << 20
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}


def limits(*, core: bool) -> None:
    """In the child: the usual stack, and a core only where one is wanted."""
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    resource.setrlimit(resource.RLIMIT_STACK, (STACK, hard))
    size = resource.RLIM_INFINITY if core else 0
    resource.setrlimit(resource.RLIMIT_CORE, (size, resource.RLIM_INFINITY if core else 0))


def timed(command: list[str], *, folder: Path, core: bool = False) -> tuple[float, int]:
    """Wall seconds and return code of one run."""
    start = time.perf_counter()
    done = subprocess.run(command, cwd=folder, check=False, preexec_fn=lambda: limits(core=core), **QUIET)  # type: ignore[call-overload]  # mypy cannot see through **QUIET
    return time.perf_counter() - start, done.returncode


def plain(folder: Path, *, core: bool) -> float:
    """The crash without necropsy; with ``core`` it leaves ``core*`` in ``folder``."""
    wall, code = timed([sys.executable, *CRASH], folder=folder, core=core)
    if code != -11:
        raise SystemExit(f"the example ended with {code}, not with SIGSEGV: nothing to measure")
    return wall


def with_necropsy(folder: Path) -> tuple[float, float, int]:
    """Wall seconds of the whole, seconds from the fatal signal to the report, frames unwound."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "necropsy", "run", "--json", str(report), "--", sys.executable, *CRASH]
    wall, _ = timed(command, folder=folder)
    crash = json.loads(report.read_text())["reports"][0]
    crashed = next(thread for thread in crash["crash"]["threads"] if thread["crashed"])
    return wall, crash["took_s"], crashed["frames_total"]


def gdb(core: Path) -> float:
    """Seconds that ``gdb -batch -ex bt`` takes on the core."""
    start = time.perf_counter()
    subprocess.run(["gdb", "-nx", "-batch", "-ex", "bt", sys.executable, str(core)], check=False, **QUIET)  # type: ignore[call-overload]  # mypy cannot see through **QUIET
    return time.perf_counter() - start


def spread(values: list[float]) -> str:
    """Median and range."""
    return f"{statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f})"


def measure(runs: int) -> str:
    """Everything in one run, as a Markdown page."""
    with tempfile.TemporaryDirectory(prefix="necropsy-bench-") as name:
        folder = Path(name)
        walls_plain, walls, tooks, frames = [], [], [], 0
        plain(folder, core=False)  # warms the page cache for both sides
        for number in range(runs):
            print(f"run {number + 1} of {runs}", file=sys.stderr)
            walls_plain.append(plain(folder, core=False))
            wall, took, frames = with_necropsy(folder)
            walls.append(wall)
            tooks.append(took)
        plain(folder, core=True)
        cores = sorted(folder.glob("core*"), key=lambda path: path.stat().st_mtime)
        debugger, size = "not measured: no gdb here", 0
        if not cores:
            debugger = "not measured: the kernel left no core (see /proc/sys/kernel/core_pattern)"
        elif shutil.which("gdb"):
            print("gdb reads the core", file=sys.stderr)
            seconds = gdb(cores[-1])
            # st_blocks: the core is sparse, its size on disk is what was written.
            size = cores[-1].stat().st_blocks * 512
            debugger = f"{seconds:.1f} s, {seconds / statistics.median(tooks):.0f} times necropsy's"
    rows = [
        ("necropsy, from the fatal signal to the report", spread(tooks)),
        (
            "necropsy, whole command less the plain command (medians)",
            f"{statistics.median(walls) - statistics.median(walls_plain):.2f} s",
        ),
        ("`gdb -nx -batch -ex bt python core`", debugger),
        ("the kernel's core on disk", f"{size / 1e6:.0f} MB" if size else "-"),
    ]
    table = "\n".join(f"| {what} | {figure} |" for what, figure in rows)
    return (
        "# Death to report\n\n"
        f"`python benchmarks/death_to_report.py --runs {runs}`, {time.strftime('%Y-%m-%d', time.gmtime())}, "
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}. "
        f"The crash: `examples/scripts/nest_flatten.py deeper`, {frames:,} native frames in a TensorFlow process.\n\n"
        f"| what | median (range) |\n|---|---|\n{table}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    page = measure(arguments.runs)
    if arguments.out:
        arguments.out.write_text(page)
    print(page)


if __name__ == "__main__":
    main()
