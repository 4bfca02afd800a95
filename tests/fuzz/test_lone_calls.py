"""Whether one lethal call, made shorter, dies as another one does: calls of a function whose deaths depend on a length."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from necropsy.fuzz.causes import Cause
from necropsy.fuzz.configurations import PLAIN
from necropsy.fuzz.engine import Engine
from necropsy.fuzz.lone_calls import LoneCalls
from necropsy.fuzz.recipes import Recipe
from necropsy.fuzz.remains import Remains
from necropsy.model import Crash, Report

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")

FUNCTION = """
import os, signal


def labelled(name: str, row: int) -> int:
    if row == 7 or row < 0:
        os.kill(os.getpid(), signal.SIGFPE)
    if len(name) > 10_000:
        os.kill(os.getpid(), signal.SIGBUS)
    if len(name) > 40:
        os.abort()
    return len(name)
"""


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    file = tmp_path_factory.mktemp("labels") / "labels.py"
    file.write_text(FUNCTION)
    one = Engine(sys.executable, {"module": str(file), "function": "labelled", "folder": str(file.parent)})
    yield one
    one.close()


def cause(engine: Engine, name: str, row: int = 0) -> Cause:
    recipe = Recipe("target", {}, {"name": name, "row": row})
    alone = LoneCalls(engine).dying([(recipe, 1)], PLAIN)
    assert alone is not None
    return Cause(alone, [], Report(crash=Crash(pid=1)), Remains("invalid-read", frozenset()), None)


def test_a_call_dies_as_the_other_when_it_is_as_short(engine: Engine) -> None:
    lone, whole, shorter = LoneCalls(engine), cause(engine, "a" * 50_000), cause(engine, "b" * 60)
    assert whole.alone.death.signature != shorter.alone.death.signature
    assert lone.dies_shortened(whole, shorter)
    assert not lone.dies_shortened(shorter, whole), "only shorter calls are made"


@pytest.mark.parametrize(("name", "row"), [("b" * 60, 7), ("b", -1)])
def test_a_call_that_lives_or_dies_in_another_way_when_it_is_as_short(engine: Engine, name: str, row: int) -> None:
    assert not LoneCalls(engine).dies_shortened(cause(engine, "a" * 50_000), cause(engine, name, row))
