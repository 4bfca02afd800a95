"""The condition between calls that die and calls that are accepted, learned from campaigns on functions that abort."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from necropsy.fuzz.campaign import Campaign
from necropsy.fuzz.definitions import python_function
from necropsy.fuzz.engine import Engine
from necropsy.fuzz.preconditions import Preconditions, plainest
from necropsy.model import FuzzPrecondition

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")


@pytest.mark.parametrize(
    ("alive", "dead", "limit"),
    [
        (-2_147_483_522, -2_147_483_648, -2_147_483_647),
        (2_147_483_522, 2_147_483_648, 2_147_483_647),
        (7, 9, 8),
        (40, 41, 40),
        (-3, -1, -2),
        (3, -2, -1),
        (261_414, 261_417, 261_414),
        (900, 1_500, 1_024),
        (1, 0, 1),
    ],
)
def test_the_limit_that_means_the_most(alive: int, dead: int, limit: int) -> None:
    assert plainest(alive, dead) == limit


FUNCTIONS = """
import os

import numpy as np


def divisor(number: int, divisor: int) -> int:
    if divisor == 0:
        os.abort()
    return number // divisor


def rows(params: np.ndarray, rows: np.ndarray) -> int:
    if params.ndim == 0 or rows.dtype.kind not in "iu":
        raise ValueError("not rows of a matrix")
    if rows.size and (rows.min() < 0 or rows.max() >= len(params)):
        os.abort()
    return rows.size


def depth(text: bytes) -> int:
    if len(text) > 40:
        os.abort()
    return len(text)


def axis(number: int) -> int:
    if number < -(1 << 31):
        os.abort()
    if number < -100:
        raise ValueError("no such axis")
    return number


def chance(number: int) -> int:
    if number in {0, 3, 100}:
        os.abort()
    return number
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("functions") / "functions.py"
    path.write_text(FUNCTIONS)
    return path


def learned(file: Path, function: str, calls: int, *, limits: bool = True) -> FuzzPrecondition | None:
    engine = Engine(sys.executable, {"module": str(file), "function": function, "folder": str(file.parent)})
    try:
        op = python_function(engine.offered["function"])
        campaign = Campaign(engine, op, seed=0, deadline=time.monotonic() + 300, most_calls=calls)
        campaign.run()
        suspects = list(campaign.suspects.values())
        died = [one for suspect in suspects for one in (suspect.recipe, *suspect.lethal)]
        signatures = frozenset(campaign.suspects)
        one = Preconditions(engine, op, suspects[0].recipe, signatures, frozenset(), limits=limits)
        return one.learned(campaign.survivors, died, again=False)
    finally:
        engine.close()


ROWS = """
if (rows < 0).any(): raise ValueError("min(rows) must be at least 0")
if params.ndim <= 0 or (rows >= params.shape[0]).any(): raise ValueError("max(rows) must be less than dim(params, 0)")
""".strip()


@pytest.mark.parametrize(
    ("function", "condition", "line"),
    [
        ("divisor", "divisor != 0", 'if divisor == 0: raise ValueError("divisor must not be 0")'),
        (
            "rows",
            "min(rows) >= 0 and max(rows) < dim(params, 0)",
            ROWS,
        ),
        (
            "axis",
            "number >= -2,147,483,648",
            'if number < -2147483648: raise ValueError("number must be at least -2147483648")',
        ),
        ("depth", "len(text) <= 40", 'if len(text) > 40: raise ValueError("len(text) must be at most 40")'),
    ],
)
def test_what_separates_the_calls(file: Path, function: str, condition: str, line: str) -> None:
    one = learned(file, function, 80 if function == "depth" else 320)
    assert one is not None
    assert one.condition == condition
    assert one.check == line
    assert one.survived >= 5
    assert one.died >= 3


def test_nothing_is_said_where_no_condition_fits(file: Path) -> None:
    assert learned(file, "chance", 40) is None


def test_a_limit_says_nothing_where_chance_decides(file: Path) -> None:
    assert learned(file, "depth", 80, limits=False) is None
