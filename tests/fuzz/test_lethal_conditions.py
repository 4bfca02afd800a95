"""What a campaign learns of the calls that die, so that fewer do, and that other deaths are still found."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from necropsy.fuzz.campaign import Campaign
from necropsy.fuzz.definitions import Argument, OpDefinition, python_function
from necropsy.fuzz.engine import Engine
from necropsy.fuzz.lethal_conditions import LethalConditions
from necropsy.fuzz.recipes import Recipe, Tensor

OP = OpDefinition(
    "gather",
    (Argument("params", type_attribute="x"), Argument("rows", type_attribute="y")),
    (),
    ({"x": "float32", "y": "int32"},),
    is_python=True,
)


def call(random: Random) -> Recipe:
    params = Tensor("float32", tuple(random.randint(1, 9) for _ in range(random.randint(1, 3))))
    rows = Tensor("int32", (random.randint(1, 9),), "same", (random.randint(-3, 20),))
    return Recipe("target", {"params": params, "rows": rows}, arrays=True)


def row(recipe: Recipe) -> tuple[int, int]:
    """The row that is read, and how many there are."""
    params, rows = recipe.tensors()
    return rows.items[0], params.shape[0]


def taught(dies: Callable[[Recipe, Random], bool], many: int = 2000) -> LethalConditions:
    lethal, random = LethalConditions(OP, 0), Random(1)
    for _ in range(many):
        recipe = call(random)
        lethal.note(recipe, died=dies(recipe, random))
    return lethal


def test_it_learns_what_kills() -> None:
    def dies(recipe: Recipe, _random: Random) -> bool:
        one, many = row(recipe)
        return one < 0 or one >= many

    lethal = taught(dies)
    assert {str(one) for one in lethal.found} == {"max(rows) < dim(params, 0)", "min(rows) >= 0"}
    random = Random(2)
    calls = [call(random) for _ in range(200)]
    assert [lethal.is_broken(one) for one in calls] == [dies(one, random) for one in calls]


def test_it_learns_what_kills_by_chance_only() -> None:
    lethal = taught(lambda recipe, random: row(recipe)[0] >= row(recipe)[1] and random.random() < 0.3)
    assert [str(one) for one in lethal.found] == ["max(rows) < dim(params, 0)"]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5])
def test_deaths_that_have_nothing_in_common_teach_nothing(share: float) -> None:
    lethal = taught(lambda _recipe, random: random.random() < share)
    assert lethal.found == []
    assert not lethal.is_broken(call(Random(3)))


def test_few_deaths_teach_nothing() -> None:
    assert taught(lambda recipe, _random: row(recipe)[0] >= row(recipe)[1], many=20).found == []


def test_it_learns_the_same_from_the_same_calls() -> None:
    def dies(recipe: Recipe, random: Random) -> bool:
        return row(recipe)[0] < 0 and random.random() < 0.8

    assert taught(dies).found == taught(dies).found


FUNCTIONS = """
import os

import numpy as np


def rows(params: np.ndarray, rows: np.ndarray) -> int:
    if params.ndim == 0 or rows.dtype.kind not in "iu" or not rows.size:
        raise ValueError("not rows of a matrix")
    if rows.max() >= len(params):
        os.kill(os.getpid(), 11)
    if rows.min() < -1000:
        os.kill(os.getpid(), 8)
    return int(rows.max())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")
def test_a_campaign_dies_less_often_of_what_it_knows_and_finds_what_it_does_not(tmp_path: Path) -> None:
    (tmp_path / "bindings.py").write_text(FUNCTIONS)
    wanted = {"module": str(tmp_path / "bindings.py"), "function": "rows", "folder": str(tmp_path)}
    engine = Engine(sys.executable, wanted)
    try:
        op = python_function(engine.offered["function"])
        campaign = Campaign(engine, op, seed=0, deadline=time.monotonic() + 300, most_calls=3000)
        campaign.run()
    finally:
        engine.close()
    times = Counter({one.death.signal: one.times for one in campaign.suspects.values()})
    assert times["SIGFPE"] >= 1
    assert 20 <= times["SIGSEGV"] < 250
    assert times["SIGSEGV"] + times["SIGFPE"] == campaign.tally.deaths
