"""The programs that ``reduce.py`` cuts down: a folder of ``reducing`` each, and the data that they read.

What a person leaves of each is in ``reducing/by_hand``, in one file, so that the numbers beside it can be counted.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "reducing"


def no_data(folder: Path) -> None:
    pass


@dataclass(frozen=True)
class Subject:
    """``arguments``: of the interpreter. ``culprit``: text of the call that must still be there."""

    name: str
    about: str
    arguments: tuple[str, ...]
    culprit: str
    data: Callable[[Path], None] = no_data
    tensorflow: bool = False
    most_trials: int | None = None
    """The goal; None: there is none for a program of this kind."""

    @property
    def script(self) -> str:
        return self.arguments[0] if self.arguments[0] != "-m" else f"{self.arguments[1]}/__main__.py"

    @property
    def by_hand(self) -> Path:
        return FOLDER / "by_hand" / f"{self.name}.py"

    def build(self, folder: Path) -> None:
        """The program in a folder of its own, with its library and its data."""
        shutil.copytree(FOLDER / self.name, folder, ignore=shutil.ignore_patterns("__pycache__"))
        source = folder / "native.c"
        if source.exists():
            flags = ("-O1", "-g", "-shared", "-fPIC")
            subprocess.run(["cc", *flags, "-o", folder / "native.so", source], check=True)
            source.unlink()
        self.data(folder)


# ---------------------------------------------------------------- data, always the same


def _samples(folder: Path) -> None:
    chance = random.Random(1)
    lines = ["user,item,weight"]
    for number in range(3000):
        item = 900_000_000 if number == 2137 else chance.randrange(500)
        lines.append(f"{chance.randrange(90)},{item},{chance.random():.3f}")
    (folder / "samples.csv").write_text("\n".join(lines) + "\n")


def _jobs(folder: Path) -> None:
    chance = random.Random(2)
    lines = ["# nightly"]
    for number in range(300):
        job = {"id": number, "kernel": chance.choice(["blur", "sharpen", "edge"])}
        if number == 211:
            job["size"] = 0
        lines.append(json.dumps({**job, "values": [chance.randrange(100) for _ in range(8)]}))
    (folder / "jobs.jsonl").write_text("\n".join(lines) + "\n")


def _scene(folder: Path) -> None:
    chance = random.Random(3)
    nodes = [{"name": f"n{number}", "x": chance.random(), "y": chance.random()} for number in range(80)]
    for number in range(1, 80):
        nodes[number]["parent"] = f"n{number - 1 if number != 40 else 45}"  # 40 to 45 are a circle
    text = json.dumps({"version": 2, "limits": {"margin": 4}, "nodes": nodes}, indent=1)
    (folder / "scene.json").write_text(text)


def _archive(folder: Path) -> None:
    chance = random.Random(4)
    parts = [struct.pack("<4sHH", b"IMGS", 2, 60)]
    for number in range(60):
        width = 8 * chance.randrange(1, 5) + (3 if number == 43 else 0)
        payload = chance.randbytes(width * 6)
        parts.append(struct.pack("<HHBBI", width, 6, 1, int(number % 9 == 0), len(payload)) + payload)
    (folder / "images.bin").write_bytes(b"".join(parts))


def _logs(folder: Path) -> None:
    for number in range(6):
        path = folder / "logs" / f"server{number}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"{number} request {line}\n" for line in range(50)))
    (folder / "logs" / "old.tmp").write_text("rest\n")


def _stock(folder: Path) -> None:
    chance = random.Random(5)
    lines = ["code,count,price,tags"]
    for number in range(400):
        count = 1_000_000_000_000 if number == 250 else 1
        lines.append(f"A{number:04},{count},{chance.random() * 50:.2f},{chance.choice(['new', 'new|red', ''])}")
    (folder / "stock.csv").write_text("\n".join(lines) + "\n")
    (folder / "report.ini").write_text("[report]\nblock = 16\ncurrency = EUR\nrate = 1.19\n")


def _documents(folder: Path) -> None:
    lines = []
    for number in range(30):
        lines += [f"== document {number}", f"This is text {number if number != 20 else 7}, and it has words.", "Bye."]
    (folder / "texts.txt").write_text("\n".join(lines) + "\n")


def _rows(folder: Path) -> None:
    chance = random.Random(6)
    lines = ["name,number,key"]
    for number in range(500):
        key = 900_000_000_000 if number == 333 else chance.randrange(1000)
        lines.append(f"r{number},{chance.random() * 100:.2f},{key}")
    (folder / "rows.csv").write_text("\n".join(lines) + "\n")


def _reviews(folder: Path) -> None:
    chance = random.Random(7)
    words = [f"{first}{last}" for first in "bcdfglmnprst" for last in ("ood", "ice", "ast", "ine", "ot")]
    lines = ["stars,text"]
    for number in range(480):
        stars = 900_000_000_000 if number == 431 else chance.randrange(5)
        lines.append(f"{stars},{' '.join(chance.choices(words, k=chance.randrange(3, 14)))}")
    (folder / "reviews.csv").write_text("\n".join(lines) + "\n")


SUBJECTS = (
    Subject(
        "gather",
        "2 files, a table of 3,000 lines",
        ("train.py", "--data", "samples.csv"),
        "LIBRARY.gather(",
        _samples,
        most_trials=250,
    ),
    Subject("handles", "a handle that is used after it was closed", ("record.py",), "device_read(", most_trials=550),
    Subject("views", "NumPy arrays of the wrong type", ("analyse.py",), "LIBRARY.resample(", most_trials=550),
    Subject("workers", "a thread, JSON lines", ("serve.py", "jobs.jsonl"), "plan_apply(", _jobs, most_trials=550),
    Subject("recursion", "a circle in a JSON file", ("render.py",), ".position(", _scene, most_trials=550),
    Subject("assertion", "an assertion in C, a binary file", ("verify.py", "images.bin"), ".checksum(", _archive),
    Subject("flaky", "dies in 6 of 10 runs", ("simulate.py",), "cache_get(", most_trials=900),
    Subject("rare", "dies in 1 of 10 runs", ("stream.py",), "ring_push("),
    Subject("files", "writes, renames and deletes files, forks", ("rotate.py",), "index_sum(", _logs, most_trials=550),
    Subject("package", "a package of 7 files, CSV, INI", ("-m", "inventory", "labels"), "memmove(", _stock),
    Subject("double_free", "a buffer that is released twice", ("merge.py", "texts.txt"), "buffer_release(", _documents),
    Subject(
        "tf_pipeline", "TensorFlow, a chain of tf.data", ("score.py",), "model_score(", _rows, True, most_trials=650
    ),
    Subject(
        "tf_training",
        "TensorFlow, 4 files, a training loop",
        ("train.py", "--data", "reviews.csv"),
        "confusion_add(",
        _reviews,
        tensorflow=True,
        most_trials=650,
    ),
    Subject("tf_unbatch", "TensorFlow, an op", ("serving.py",), "raw_ops.Unbatch(", tensorflow=True, most_trials=650),
)
