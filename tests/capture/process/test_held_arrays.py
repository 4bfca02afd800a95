"""How many bytes an array takes, and which arrays of a function are found, also in lists, dicts and objects."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from necropsy.capture.process.held_arrays import of_argument
from necropsy.model import Argument


def array(dtype: str, *shape: int) -> Argument:
    return Argument(name="a", type="numpy.ndarray", dtype=dtype, shape=shape)


@pytest.mark.parametrize(
    ("dtype", "octets"),
    [
        ("float32", 24),
        ("complex64", 48),
        ("quint8", 6),
        ("bool", 6),
        ("bfloat16", 12),
        ("longdouble", 96),
        ("object", 48),
        ("datetime64", 48),
        ("str", None),
        ("int4", None),
        ("variant", None),
    ],
)
def test_bytes_are_those_of_the_elements_where_their_size_is_known(dtype: str, octets: int | None) -> None:
    one = of_argument(array(dtype, 2, 3))
    assert one is not None
    assert (one.dtype, one.shape, one.bytes) == (dtype, (2, 3), octets)


def test_what_cannot_be_an_array_is_none() -> None:
    assert of_argument(array("float64", 1 << 45)) is None
    assert of_argument(Argument(name="n", type="int", value="3")) is None


# Only what load() does takes memory: at long intervals between looks, a rise in __init__() would be one with it.
PROGRAM = """
import numpy, time

class Loader:
    def __init__(self):
        self.cache = {"train": numpy.empty((3, 1 << 20)), "my_token": numpy.zeros(77), 7: numpy.zeros(5, "int16")}
        self.batches, self.api_key, self.deeper = [], numpy.zeros(99), [[[numpy.zeros(88)]]]
        self.again = self

    def load(self, pairs):
        self.batches += list(numpy.empty((COUNT, *BATCH)))
        one = self.batches[0]
        for at in range(COUNT): self.batches[at].fill(1)  # takes the memory: all arrays are there at each look
        time.sleep(0.7)
        return pairs, one

time.sleep(0.3)
Loader().load([(numpy.zeros((2, 4)), numpy.zeros(2, "int32")), (numpy.zeros((2, 4)), numpy.zeros(2, "int32"))])
"""
BATCHES = [(12, "(4, 1 << 18)", "self.batches", 11), (300, "(1 << 15,)", "self.batches[-128:]", 128)]


@pytest.mark.skipif(not (3, 8) <= sys.version_info[:2] <= (3, 13), reason="its objects cannot be read by us")
@pytest.mark.parametrize(("count", "batch", "name", "told"), BATCHES)
def test_arrays_in_lists_dicts_and_objects_are_found(
    tmp_path: Path, count: int, batch: str, name: str, told: int
) -> None:
    pytest.importorskip("numpy")
    program, file = tmp_path / "loads.py", tmp_path / "profile.json"
    program.write_text(PROGRAM.replace("COUNT", str(count)).replace("BATCH", batch))
    words = [sys.executable, "-m", "necropsy", "profile", "--interval", "0.05", "--json", str(file), "--"]
    done = subprocess.run(
        [*words, sys.executable, str(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    (own,) = json.loads(file.read_bytes())["processes"]
    steps = ({one["name"]: one for one in mark["arrays"]} for mark in own["marks"] if mark["kind"] == "step")
    arrays = next(held for held in steps if name in held)
    several = arrays[name]
    assert several["count"] == told
    assert several["bytes"] == told * 8 * (1 << 20 if count == 12 else 1 << 15)
    assert f"{name}: {told} x float64" in done.stderr
    assert arrays["self.cache['train']"]["shape"] == [3, 1 << 20]
    assert not {77, 88, 99} & {one["shape"][0] for one in arrays.values()}, "secrets, and what is too deep"
    if count == 12:
        assert arrays["one"]["shape"] == [4, 1 << 18], "it is told once, as the variable"
    assert (arrays["pairs[:][0]"]["shape"], arrays["pairs[:][0]"]["count"]) == ([2, 4], 2)
