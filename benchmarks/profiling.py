"""What `necropsy profile` costs: a TensorFlow training with 40 threads, by turns without it and with it.

    python benchmarks/profiling.py [--runs 20] [--epochs 60] [--out benchmarks/RESULTS.md]          (make bench)

CPU is that of all processes, necropsy's own among them; the program says at its end what it took itself, and the rest is
that of necropsy, which does not vary as much. What comes once for each run (start, import of TensorFlow, report) is
measured by a training of a single epoch in the same ways, and taken off.

Two runs that follow each other, one of each kind, are a pair, because a machine's speed changes in the course of an
hour. What is compared is the median of the differences within the pairs, with its confidence interval: a change is
measurable where that interval does not contain zero.
"""

from __future__ import annotations

import argparse
import math
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
class Run:
    """One run, and the CPU seconds that the program took itself until its last statement."""

    measured: Measured
    own_s: float


@dataclass(frozen=True)
class Runs:
    """The runs of one kind, less what comes once for each of them, in the order in which they were made."""

    cpu_s: Sequence[float]
    beside_s: Sequence[float]
    """The CPU time of all processes but the program."""
    wall_s: Sequence[float]
    once: Run
    """What was taken off: the medians of the shortest training."""


def by_turns(command: Sequence[str], runs: int, folder: Path, necropsy: Sequence[str]) -> dict[str, list[Run]]:
    """Each of both in turn, ``runs`` times, each as often the first of the pair; SystemExit where one fails."""
    found: dict[str, list[Run]] = {name: [] for name in VARIANTS}
    said = folder / "own"
    for number in range(runs):
        pair = list(VARIANTS.items())
        for name, words in reversed(pair) if number % 2 else pair:
            before = (*necropsy, *words) if words else ()
            said.unlink(missing_ok=True)
            one = measure((*before, *command), folder, environment(folder), stderr="file", limit_s=900)
            if one.code or one.late:
                raise SystemExit(f"{name} failed: {(folder / 'stderr').read_text(errors='replace')[-2000:]}")
            print(f"{name}, run {number + 1}: {one.cpu_s:.2f} s CPU, {one.wall_s:.2f} s", file=sys.stderr)
            found[name].append(Run(one, float(said.read_text()) if said.exists() else 0.0))
    return found


def less(runs: Sequence[Run], shortest: Sequence[Run]) -> Runs:
    """Seconds without those that the median run of ``shortest`` took."""
    cpu_s = statistics.median(one.measured.cpu_s for one in shortest)
    own_s = statistics.median(one.own_s for one in shortest)
    wall_s = statistics.median(one.measured.wall_s for one in shortest)
    return Runs(
        [one.measured.cpu_s - cpu_s for one in runs],
        [one.measured.cpu_s - one.own_s - (cpu_s - own_s) for one in runs],
        [one.measured.wall_s - wall_s for one in runs],
        Run(Measured(cpu_s, wall_s, 0, late=False), own_s),
    )


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The two of the values between which their population's median is, with a confidence of at least 95 % (sign test).

    Of fewer than six values, the least and the greatest are all that can be said.
    """
    ordered, count = sorted(values), len(values)
    outside, below = 0, 0.0
    while (below := below + math.comb(count, outside) / 2**count) <= 0.025:
        outside += 1
    last = max(outside - 1, 0)
    return ordered[last], ordered[-1 - last]


def page(found: dict[str, Runs]) -> str:
    """The table."""
    plain = found["plain"]
    lines = [
        f"# {TITLE}",
        "",
        f"A training with {THREADS} threads in TensorFlow's pools, {len(plain.cpu_s)} runs each way, by turns; medians. CPU is that of all",
        "processes. What comes once for each run, a training of one epoch, is taken off. The differences are those of runs that",
        "followed each other: their median, and the interval that holds the true one with 95 % confidence.",
        "",
        "| | CPU | difference | of it beside the program | difference | wall time | difference |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, one in found.items():
        cells = [name]
        for own, base in ((one.cpu_s, plain.cpu_s), (one.beside_s, plain.beside_s), (one.wall_s, plain.wall_s)):
            whole = plain.wall_s if base is plain.wall_s else plain.cpu_s
            cells += [f"{statistics.median(own):.2f} s", "" if one is plain else _difference(own, base, whole)]
        lines.append(f"| {' | '.join(cells)} |")
    for name, one in found.items():
        once, beside_s = one.once.measured, one.once.measured.cpu_s - one.once.own_s
        cells = [
            f"once for each run, {name}",
            f"{once.cpu_s:.2f} s",
            "",
            f"{beside_s:.2f} s",
            "",
            f"{once.wall_s:.2f} s",
            "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _difference(own: Sequence[float], base: Sequence[float], whole: Sequence[float]) -> str:
    """Per cent of ``whole``'s median."""
    by_pair = [one - other for one, other in zip(own, base, strict=True)]
    unit = statistics.median(whole)
    low, high = interval(by_pair)
    return f"{statistics.median(by_pair) / unit:+.1%} ({low / unit:+.1%} to {high / unit:+.1%})"


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="runs of each kind")
    parser.add_argument("--epochs", type=int, default=60, help="how long the training is")
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
        training = [sys.executable, str(program)]
        shortest = by_turns([*training, "1"], min(arguments.runs, 7), folder, necropsy)
        runs = by_turns([*training, str(arguments.epochs)], arguments.runs, folder, necropsy)
    text = page({one: less(runs[one], shortest[one]) for one in VARIANTS})
    if arguments.out:
        results.put(arguments.out, text)
    print(text)


if __name__ == "__main__":
    main()
