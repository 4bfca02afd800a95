"""How fast a dataset is checked: NaN, infinities and ranges, from memory and through tf.data.

    python benchmarks/dataset.py [--runs 5] [--out benchmarks/RESULTS.md]          (make bench)

Each row is walked over several times, the rows in turn; the best run of each counts, because other programs on the
machine can only slow a run down.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import results

from necropsy.dataset.answering import walked
from necropsy.dataset.journal import NoJournal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
TITLE = "# How fast a dataset is checked"


@dataclass
class Row:
    """A dataset to walk over; ``goal``: GB/s at least, or microseconds an element at most."""

    name: str
    make: Callable[[], Any]
    goal: float | None = None
    small: bool = False
    ranges: dict[str, Any] = field(default_factory=dict)
    best: float = 0.0
    """GB/s; of small elements, elements in a second."""
    best_cpu: float = 0.0
    """The same by the CPU time of all threads, which other programs do not change."""

    def run(self) -> None:
        cpu = time.process_time()
        answer = walked(self.make(), {"ranges": self.ranges}, NoJournal())["dataset"]
        assert answer["ended"] == "end", answer
        assert not any(one["faults"] for one in answer["columns"]), answer
        done = answer["elements"] if self.small else answer["bytes"] / 1e9
        self.best = max(self.best, done / answer["seconds"])
        self.best_cpu = max(self.best_cpu, done / (time.process_time() - cpu))

    def met(self) -> bool:
        return self.goal is None or (1e6 / self.best <= self.goal if self.small else self.best >= self.goal)

    def cells(self) -> str:
        speeds = [
            f"{1e6 / one:.1f} us an element" if self.small else f"{one:.1f} GB/s" for one in (self.best, self.best_cpu)
        ]
        goal = (
            "" if self.goal is None else f"at most {self.goal:g} us" if self.small else f"at least {self.goal:g} GB/s"
        )
        return f"| {self.name} | {speeds[0]} | {speeds[1]} | {goal} |"


def in_memory() -> list[Row]:
    chance = np.random.default_rng(0)
    one = chance.random((16, 1 << 18), np.float32)
    large = chance.random((4, 1 << 24), np.float32)
    half = large.astype(np.float16)
    images = chance.random((60000, 28, 28), np.float32)
    labels = np.arange(60000) % 10
    unit = {"": (0, 1)}

    def small() -> Any:
        for place in range(30000):
            yield {"image": images[place], "label": place % 10}

    return [
        Row("float32, arrays of 1 MiB", lambda: list(one) * 32, 3, ranges=unit),
        Row("float32, arrays of 64 MiB", lambda: list(large) * 4, 3, ranges=unit),
        Row("float16, arrays of 32 MiB", lambda: list(half) * 4, 3, ranges=unit),
        Row(
            "float32 and int64, two arrays cut along their first axis", lambda: (images, labels), ranges={"[1]": (0, 9)}
        ),
        Row("a generator of dicts, an image of 3 KiB and a label", small, small=True, ranges={"['label']": (0, 9)}),
    ]


def through_tensorflow() -> list[Row]:
    import tensorflow as tf

    chance = np.random.default_rng(0)
    slices = tf.data.Dataset.from_tensor_slices
    medium = slices(chance.random((64, 256, 256), np.float32)).repeat(16)
    small = slices((chance.random((20000, 16), np.float32), np.zeros(20000, np.int32))).repeat(10)
    unit = {"": (0, 1)}
    return [
        Row("tf.data, float32, 256 KiB an element", lambda: medium, 1, ranges=unit),
        Row("tf.data, 16 float32 and a label an element", lambda: small, 5, small=True, ranges={"[1]": (0, 9)}),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path)
    wanted = parser.parse_args()
    rows = in_memory()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(wanted.runs):
        for row in rows:
            row.run()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    try:
        rows += through_tensorflow()
    except ImportError as error:
        print(f"without TensorFlow: {error}", file=sys.stderr)
    for _ in range(wanted.runs):
        for row in rows[5:]:
            row.run()
    when = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    how = (
        f"`python benchmarks/dataset.py --runs {wanted.runs}`, {when}, {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}: the best of {wanted.runs} runs."
    )
    lines = [
        TITLE,
        "",
        how,
        "",
        "| Dataset | By the clock | By CPU time | Goal |",
        "|---|---|---|---|",
        *(row.cells() for row in rows),
        "",
        f"The walks over arrays in memory (the first five rows) took {grown:.0f} MiB of memory beyond the arrays.",
    ]
    print("\n".join(lines))
    if wanted.out is not None:
        results.put(wanted.out, "\n".join(lines) + "\n")
    return int(not all(row.met() for row in rows))


if __name__ == "__main__":
    sys.exit(main())
