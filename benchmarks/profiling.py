"""What `necropsy profile` costs: a TensorFlow training with 40 threads, by turns without it and with it.

    python benchmarks/profiling.py [--runs 20] [--epochs 40] [--out benchmarks/RESULTS.md]          (make bench)

CPU is that of all processes, necropsy's own among them; the program says at its end what it took itself, and the rest is
that of necropsy, which does not vary as much. The start-up is measured with /bin/true in the same ways and taken off, as
in cost.py. Medians are compared; beside each stands how far the runs of one kind differ among themselves (half of the
range between the quartiles), because a difference below that says nothing.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import results
from cost import environment
from meter import Measured, adopt, measure

THREADS = 40
TRAINING = """
import resource, sys
import tensorflow as tf
tf.config.threading.set_inter_op_parallelism_threads({half})
tf.config.threading.set_intra_op_parallelism_threads({half})
model = tf.keras.Sequential([tf.keras.layers.Dense(256, activation="relu"), tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
x = tf.random.normal((50_000, 64))
model.fit(x, x[:, :1], batch_size=500, epochs=int(sys.argv[1]), verbose=0)
with open("own", "w") as file:
    file.write(str(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])))
"""
VARIANTS = {"plain": (), "necropsy profile": ("profile", "--quiet", "--")}
TITLE = "What profiling costs"


@dataclass(frozen=True)
class Runs:
    """The runs of one kind, less its start-up."""

    cpu_s: Sequence[float]
    beside_s: Sequence[float]
    """The CPU time of all processes but the program."""
    wall_s: Sequence[float]


@dataclass(frozen=True)
class Run:
    """One run, and the CPU seconds that the program took itself until its last statement."""

    measured: Measured
    own_s: float


def by_turns(command: Sequence[str], runs: int, folder: Path, necropsy: Sequence[str]) -> dict[str, list[Run]]:
    """Each of both in turn, ``runs`` times; SystemExit where one fails."""
    found: dict[str, list[Run]] = {name: [] for name in VARIANTS}
    said = folder / "own"
    for number in range(runs):
        for name, words in VARIANTS.items():
            before = (*necropsy, *words) if words else ()
            said.unlink(missing_ok=True)
            one = measure((*before, *command), folder, environment(folder), stderr="file", limit_s=900)
            if one.code or one.late:
                raise SystemExit(f"{name} failed: {(folder / 'stderr').read_text(errors='replace')[-2000:]}")
            print(f"{name}, run {number + 1}: {one.cpu_s:.2f} s CPU, {one.wall_s:.2f} s", file=sys.stderr)
            found[name].append(Run(one, float(said.read_text()) if said.exists() else 0.0))
    return found


def less(runs: Sequence[Run], starts: Sequence[Run]) -> Runs:
    """Seconds without those of the start-up, which are the least of ``starts``."""
    cpu_s, wall_s = min(one.measured.cpu_s for one in starts), min(one.measured.wall_s for one in starts)
    return Runs(
        [one.measured.cpu_s - cpu_s for one in runs],
        [one.measured.cpu_s - cpu_s - one.own_s for one in runs],
        [one.measured.wall_s - wall_s for one in runs],
    )


def spread(values: Sequence[float]) -> float:
    """Half of the range between the quartiles."""
    if len(values) < 2:
        return 0.0
    first, _, third = statistics.quantiles(values, n=4, method="inclusive")
    return (third - first) / 2


def page(found: dict[str, Runs]) -> str:
    """The table."""
    plain = found["plain"]
    lines = [
        f"# {TITLE}",
        "",
        f"A training with {THREADS} threads in TensorFlow's pools, {len(plain.cpu_s)} runs each way, by turns; medians, and half of the",
        "range between the quartiles. CPU is that of all processes. Start-up (/bin/true in the same ways) is taken off.",
        "",
        "| | CPU | | of it beside the program | wall time | |",
        "|---|---|---|---|---|---|",
    ]
    for name, one in found.items():
        share = statistics.median(one.beside_s) / statistics.median(plain.cpu_s)
        beside = f"{statistics.median(one.beside_s):.2f} ± {spread(one.beside_s):.2f} s ({share:.1%})"
        cells = [name, *_compared(one.cpu_s, plain.cpu_s), beside, *_compared(one.wall_s, plain.wall_s)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _compared(own: Sequence[float], base: Sequence[float]) -> tuple[str, str]:
    change = statistics.median(own) / statistics.median(base) - 1
    return f"{statistics.median(own):.2f} ± {spread(own):.2f} s", "" if own is base else f"{change:+.1%}"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="runs of each kind")
    parser.add_argument("--epochs", type=int, default=40, help="how long the training is")
    parser.add_argument("--necropsy", default=shlex.join([sys.executable, "-m", "necropsy"]), metavar="COMMAND")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the table into this page")
    arguments = parser.parse_args(words)
    adopt()
    with tempfile.TemporaryDirectory(prefix="necropsy-profiling-") as name:
        folder = Path(name)
        program = folder / "training.py"
        program.write_text(TRAINING.format(half=THREADS // 2))
        necropsy = shlex.split(arguments.necropsy)
        by_turns(["/bin/true"], 1, folder, necropsy)  # what is imported is compiled
        starts = by_turns(["/bin/true"], min(arguments.runs, 5), folder, necropsy)
        runs = by_turns([sys.executable, str(program), str(arguments.epochs)], arguments.runs, folder, necropsy)
    text = page({one: less(runs[one], starts[one]) for one in VARIANTS})
    if arguments.out:
        results.put(arguments.out, text)
    print(text)


if __name__ == "__main__":
    main()
