"""Necropsy beside the tools that people would use instead, on the same crashes, in one run.

    python benchmarks/bench.py [--runs 5] [--out benchmarks/RESULTS.md]          (make bench)

Three crashes; the first is ``tf.nest.flatten`` of a structure 1,000,000 levels deep, which dies with more than 100,000
native frames on an 8 MiB stack. Necropsy's own modules are compiled beforehand, as pip does it. Two clocks for necropsy: its own (from the fatal signal to the finished report,
``took_s`` in the JSON), and one that does not trust it: the wall time of the whole command less that of the same command
without necropsy. gdb and pystack get the kernel's core of the same crash and print to /dev/null, which is the least that
a person would have to do; writing the core, and finding it, is not counted. py-spy reads living processes only, so it
has no column: necropsy itself runs it.

pystack refuses the core of a process that has h5py's wheel loaded, as TensorFlow's has: elfutils, with which it reads,
does so too (``eu-stack``: *address out of range*), at libraries whose notes lie in a segment added behind the others.
What it said is told, and it is measured on a core of the same program that was kept from importing h5py.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import os
import platform
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import dumps
import results

ROOT = Path(__file__).parent.parent
STACK = 8 << 20
STARTED_S = 10
"""After so many seconds the training has begun."""
NECROPSY = [sys.executable, "-m", "necropsy"]
NULL_READ = "import ctypes; ctypes.string_at(0)"
HIDDEN = "raise ImportError('hidden for the benchmark')"
NOISE_S = 0.01
"""A difference of two processes' starts below it says nothing."""
TRAINING = """
import time
import tensorflow as tf
model = tf.keras.Sequential([tf.keras.layers.Dense(64, activation="relu"), tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
x = tf.random.normal((200_000, 32))
stop = time.time() + 60


class Stop(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.stop_training = time.time() > stop


model.fit(x, x[:, :1], epochs=1_000_000, verbose=0, callbacks=[Stop()])
"""


@dataclass
class Case:
    """One crash, and what was measured of it (seconds, bytes)."""

    name: str
    program: Sequence[str]
    took: list[float] = field(default_factory=list)
    with_us: list[float] = field(default_factory=list)
    without: list[float] = field(default_factory=list)
    frames: int = 0
    capsule: int = 0
    core: int = 0
    gdb: str = "not measured"
    pystack: str = "not measured"
    refused: str = ""
    """What pystack said of the core, where it was not to be had."""


def cases() -> tuple[Case, ...]:
    """The crashes of the table."""
    flatten = str(ROOT / "examples" / "scripts" / "nest_flatten.py")
    return (
        Case("recursion in TensorFlow", (sys.executable, flatten, "deeper")),
        Case(
            "null read, TensorFlow loaded",
            (sys.executable, "-c", f"import tensorflow as tf; tf.constant(1) + 1; {NULL_READ}"),
        ),
        Case("null read, plain Python", (sys.executable, "-c", NULL_READ)),
    )


def quietly(
    command: Sequence[str], folder: Path, *, core: bool = False, hidden: Path | None = None
) -> tuple[float, int]:
    """Wall seconds and return code of one run with the usual stack; a core only where it is wanted.

    ``hidden``: a folder of modules that hide others.
    """

    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_STACK, (STACK, resource.getrlimit(resource.RLIMIT_STACK)[1]))
        size = resource.RLIM_INFINITY if core else 0
        resource.setrlimit(resource.RLIMIT_CORE, (size, resource.getrlimit(resource.RLIMIT_CORE)[1]))

    start = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=folder,
        check=False,
        preexec_fn=limits,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment(folder) | ({"PYTHONPATH": str(hidden)} if hidden is not None else {}),
    )
    return time.perf_counter() - start, done.returncode


def environment(folder: Path) -> dict[str, str]:
    """The user's own, but compiled modules are used as in every installation."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**own, "PYTHONPYCACHEPREFIX": str(folder / "compiled"), "NECROPSY_OUTPUT": str(folder / "reports")}


def death(case: Case, folder: Path, runs: int) -> None:
    """Fill in the case: ``runs`` times with and without necropsy in turn, then the debuggers on one core."""
    report = folder / "report.json"
    quietly([*NECROPSY, "run", "--json", str(report), "--", *case.program], folder)  # warms the caches for both sides
    for number in range(runs):
        print(f"{case.name}: run {number + 1} of {runs}", file=sys.stderr)
        wall, code = quietly(case.program, folder)
        if code != -11:
            raise SystemExit(f"{case.name} ended with {code}, not with SIGSEGV: nothing to measure")
        case.without.append(wall)
        case.with_us.append(quietly([*NECROPSY, "run", "--json", str(report), "--", *case.program], folder)[0])
        found = json.loads(report.read_text())["reports"][0]
        case.took.append(found["took_s"])
        case.frames = next(one["frames_total"] for one in found["crash"]["threads"] if one["crashed"])
        kept = sorted((folder / "reports").iterdir(), key=lambda path: path.stat().st_mtime)
        case.capsule = kept[-1].stat().st_size
    core = core_of(case, folder)
    if core is None:
        print("no core: see /proc/sys/kernel/core_pattern; gdb and pystack are not measured", file=sys.stderr)
        return
    # st_blocks: the core is sparse, its size on disk is what was written.
    case.core = core.stat().st_blocks * 512
    if shutil.which("gdb"):
        print(f"{case.name}: gdb", file=sys.stderr)
        case.gdb = beside(["gdb", "-nx", "-batch", "-ex", "bt", sys.executable, str(core)], case, folder)
    if (Path(sys.executable).parent / "pystack").exists():
        print(f"{case.name}: pystack", file=sys.stderr)
        case.pystack = by_pystack(case, core, folder)
    core.unlink(missing_ok=True)


def core_of(case: Case, folder: Path, hidden: Path | None = None) -> Path | None:
    """The kernel's core of one more death."""
    quietly(case.program, folder, core=True, hidden=hidden)
    return max(folder.glob("core*"), key=lambda path: path.stat().st_mtime, default=None)


def by_pystack(case: Case, core: Path, folder: Path) -> str:
    """What pystack takes; where it refuses the core, on that of the same program without h5py."""

    def command(of: Path) -> list[str]:
        return [str(Path(sys.executable).parent / "pystack"), "core", str(of), sys.executable, "--native"]

    seconds, code = quietly(command(core), folder)
    if not code:
        return compared(seconds, case)
    said = subprocess.run(command(core), cwd=folder, check=False, capture_output=True, text=True).stderr
    case.refused = (said.strip().splitlines() or [f"exit {code}"])[-1].replace(str(core), core.name)
    core.unlink()
    hidden = folder / "hidden"
    hidden.mkdir(exist_ok=True)
    (hidden / "h5py.py").write_text(HIDDEN)
    other = core_of(case, folder, hidden)
    if other is None:
        return "refused"
    seconds, code = quietly(command(other), folder)
    other.unlink()
    return "refused" if code else f"refused; without h5py {compared(seconds, case)}"


def beside(command: Sequence[str], case: Case, folder: Path) -> str:
    """What another tool takes on the core; one that refuses it is not called fast."""
    seconds, code = quietly(command, folder)
    return f"fails (exit {code})" if code else compared(seconds, case)


def compared(seconds: float, case: Case) -> str:
    """Seconds, and how many times ours that is."""
    return f"{seconds:.2f} s ({seconds / statistics.median(case.took):.0f} x)"


def overhead(folder: Path) -> list[tuple[str, str]]:
    """What a healthy training run of a minute costs: CPU, wake-ups and memory of all of our processes."""
    print("a healthy training run", file=sys.stderr)
    command = [*NECROPSY, "run", "--log", "auto", "--", sys.executable, "-c", TRAINING]
    start = time.perf_counter()
    with (folder / "log").open("w") as log:
        run = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=environment(folder))
    ticks = os.sysconf("SC_CLK_TCK")
    cpu: dict[int, float] = {}
    memory: dict[int, int] = {}
    wakes: dict[int, int] = {}
    began = 0.0
    while run.poll() is None:
        for pid in (run.pid, *_descendants(run.pid)):
            try:
                name = Path(f"/proc/{pid}/comm").read_text()
                if pid != run.pid and not name.startswith("necropsy"):
                    continue
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                cpu[pid] = (int(fields[11]) + int(fields[12])) / ticks
                rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
                memory[pid] = (
                    int(next(line for line in rollup.splitlines() if line.startswith("Pss:")).split()[1]) * 1024
                )
                status = Path(f"/proc/{pid}/status").read_text()
                wakes[pid] = int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
            except (OSError, StopIteration, IndexError):
                continue
        if not began and time.perf_counter() - start > STARTED_S:
            began = sum(cpu.values())
        time.sleep(0.25)
    wall = time.perf_counter() - start
    used = sum(cpu.values())
    return [
        (
            "CPU time used by necropsy during a healthy training run",
            f"{used:.2f} s in a run of {wall:.0f} s ({used / wall:.2%})",
        ),
        (
            f"CPU time used by necropsy after the first {STARTED_S} s of that run",
            f"{(used - began) / (wall - STARTED_S):.2%}",
        ),
        ("wake-ups of necropsy during that run", f"{sum(wakes.values())}"),
        ("memory used by necropsy during that run (proportional set size)", f"{sum(memory.values()) / 1e6:.0f} MB"),
    ]


def _descendants(pid: int) -> list[int]:
    """All descendants: the process that reads deaths is a child of the tracer."""
    try:
        children = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *itertools.chain.from_iterable(map(_descendants, children))]


def starts(folder: Path, runs: int = 9) -> list[tuple[str, str]]:
    """Start-up costs, medians."""

    def median(command: Sequence[str]) -> float:
        return statistics.median(quietly(command, folder)[0] for _ in range(runs))

    bare = median(["true"])
    return [
        ("`necropsy run true` less `true`", f"{median([*NECROPSY, 'run', 'true']) - bare:.2f} s"),
        ("`necropsy explain 0xC0000409`", f"{median([*NECROPSY, 'explain', '0xC0000409']):.2f} s"),
        (
            "`import necropsy` less an empty Python",
            milliseconds(median([sys.executable, "-c", "import necropsy"]) - median([sys.executable, "-c", ""])),
        ),
    ]


def logs(folder: Path) -> list[tuple[str, str]]:
    """A log of 100 MB from a file and from a pipe, and one in which every line is a failed check."""
    rng = random.Random(1)
    words = ["step", "loss", "epoch", "accuracy", "tensorflow", "core", "framework", "op", "kernel", "error", "failed"]
    block = "".join(
        f"2026-11-20 21:17:{rng.randrange(60):02d}.{rng.randrange(10**6):06d}: I tensorflow/core/framework/x.cc:"
        f"{rng.randrange(900)}] {' '.join(rng.choices(words, k=8))}\n"
        for _ in range(20_000)
    ).encode()
    last = b"2026-11-20 21:17:51.617250: F a/b.cc:356] Check failed: d < dims() (3 vs. 2)\n"
    plain, hostile = folder / "big.log", folder / "hostile.log"
    # In pieces: the most memory that we ever had would be counted as that of the processes that we start.
    with plain.open("wb") as file:
        for _ in range(10**8 // len(block)):
            file.write(block)
        file.write(last)
    with hostile.open("wb") as file:
        for _ in range(100):
            file.write(b"Check failed: x\n" * (10**6 // 16))
    rows = []
    for name, path, piped in (
        ("`necropsy explain` of a log of 100 MB", plain, False),
        ("the same from a pipe", plain, True),
        ("100 MB in which every line is a failed check", hostile, False),
    ):
        with path.open("rb") as file:
            began = time.perf_counter()
            words_ = [*NECROPSY, "explain", "-" if piped else str(path)]
            pipe = subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) if piped else None
            process = subprocess.Popen(words_, stdin=pipe.stdout if pipe else file, stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            took = time.perf_counter() - began
        assert status == 0, name
        rows.append((name, f"{took:.1f} s, {usage.ru_maxrss / 1024:.0f} MB"))
    plain.unlink()
    hostile.unlink()
    return rows


def trials(folder: Path) -> list[tuple[str, str]]:
    """Runs of a script that imports TensorFlow: in fresh processes, and in forks of one that has imported it."""
    from necropsy.confirm.forking import ForkServer

    script = folder / "trial.py"
    script.write_text("import sys\nimport tensorflow as tf\nassert int(sys.argv[1]) >= 0\n")
    began = time.perf_counter()
    fresh = 3
    for number in range(fresh):
        quietly([sys.executable, str(script), str(number)], folder)
    per_fresh = (time.perf_counter() - began) / fresh
    forks = ForkServer([sys.executable, str(script), "0"], folder, os.environ)
    began = time.perf_counter()
    forked = 60
    for number in range(forked):
        assert forks.run([str(number)], 30) == (0, False)
    per_fork = (time.perf_counter() - began) / forked
    forks.close()
    figure = f"{1 / per_fork:.0f} a second; fresh processes: {1 / per_fresh:.2f}"
    return [("`--confirm`: trials of a script that imports TensorFlow, in forks", figure)]


def milliseconds(seconds: float) -> str:
    """In milliseconds, where that is more than noise."""
    return f"{seconds * 1000:.0f} ms" if seconds >= NOISE_S else f"< {NOISE_S * 1000:.0f} ms"


def version_of(package: str) -> str:
    """The version that is installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "?"


def page(measured: Sequence[Case], others: Sequence[tuple[str, str]], runs: int) -> str:
    """Everything as Markdown."""
    head = "| crash | frames | report after | total overhead | `gdb -batch -ex bt` on the core | `pystack core --native` | kept | kernel's core |"
    rows = [head, "|---|---|---|---|---|---|---|---|"]
    for case in measured:
        ours = statistics.median(case.took)
        cells = (
            case.name,
            f"{case.frames:,}",
            f"**{ours:.2f} s** ({min(case.took):.2f} to {max(case.took):.2f})",
            f"{statistics.median(case.with_us) - statistics.median(case.without):.2f} s",
            case.gdb,
            case.pystack,
            f"{case.capsule / 1e6:.2f} MB",
            f"{case.core / 1e6:.0f} MB" if case.core else "none",
        )
        rows.append("| " + " | ".join(cells) + " |")
    more = ["| what | figure |", "|---|---|", *(f"| {what} | {figure} |" for what, figure in others)]
    refusals = dict.fromkeys(case.refused for case in measured if case.refused)
    notes = [f"pystack {version_of('pystack')} of the cores that it refuses: *{said}*" for said in refusals]
    when = time.strftime("%Y-%m-%d", time.gmtime())
    return (
        "# Death to report\n\n"
        f"`python benchmarks/bench.py --runs {runs}`, {when}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, CPython {platform.python_version()}; medians.\n\n"
        + "\n".join(rows)
        + "\n\n"
        + "\n".join(more)
        + "\n"
        + "".join(f"\n{note}\n" for note in notes)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="necropsy-bench-") as name:
        folder = Path(name)
        measured = cases()
        for case in measured:
            death(case, folder, arguments.runs)
        others = [*overhead(folder), *starts(folder), *logs(folder), *trials(folder), *dumps.rows()]
    text = page(measured, others, arguments.runs)
    if arguments.out:
        results.put(arguments.out, text)
    print(text)


if __name__ == "__main__":
    main()
