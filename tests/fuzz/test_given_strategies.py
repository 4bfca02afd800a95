"""Functions whose calls Hypothesis draws, and functions that take tensors, of a `torch` of a few lines."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from necropsy import fuzzing
from necropsy.errors import InputError
from necropsy.fuzz.definitions import OpDefinition, python_function
from necropsy.fuzz.engine import Engine
from necropsy.fuzz.generator import Generator, Seen
from necropsy.fuzz.recipes import Recipe
from necropsy.fuzz.recorded_calls import drawn_calls, undrawn_calls
from necropsy.fuzz.test_writer import Source, text_of
from necropsy.reports.fuzz import render

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")

FUNCTIONS = """
import os

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays


def decode(mode, at: int) -> int:
    if mode != "grayscale-16":
        raise ValueError("no such mode")
    return at


@given(mode=st.just("grayscale-16"), at=st.integers(0, 9), unrelated=st.booleans())
def test_decode(mode, at, unrelated):
    raise AssertionError("nobody calls it")


@given(st.binary(min_size=2, max_size=3), arrays.arrays("int16", (2,)))
def packed(data, values):
    if len(data) >= 3:
        os.abort()
    return len(data)


@given(st.builds(object))
def strange(thing):
    pass


@given(st.integers().filter(lambda _: 1 / 0))
def broken(number: int) -> int:
    return number


def bare(thing: "np.ndarray") -> int:
    return thing.size
"""

TORCH = """
class Tensor:
    def __init__(self, array):
        self.array = array


tensor = Tensor
"""

TENSORS = """
import torch


def norm(x: torch.Tensor, y: "torch.Tensor") -> float:
    assert isinstance(x, torch.Tensor)
    return float(x.array.size)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("given")
    (path / "functions.py").write_text(FUNCTIONS)
    (path / "torch.py").write_text(TORCH)
    (path / "tensors.py").write_text(TENSORS)
    return path


@pytest.fixture
def engine(folder: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    file, _, function = request.param.partition(":")
    one = Engine(sys.executable, {"module": str(folder / file), "function": function, "folder": str(folder)})
    yield one
    one.close()


def first_of(engine: Engine) -> tuple[OpDefinition, list[Recipe]]:
    op = python_function(engine.offered["function"])
    return op, drawn_calls(engine.offered, op)


@pytest.mark.parametrize("engine", ["functions.py:decode"], indirect=True)
def test_strategies_of_the_test_of_a_function(engine: Engine) -> None:
    op, calls = first_of(engine)
    assert [(one.name, one.type) for one in op.attributes] == [("mode", "string"), ("at", "int")]
    assert {one.attributes["mode"] for one in calls} == {"grayscale-16"}
    assert {one.attributes["at"] for one in calls} == set(range(10))
    assert [one.kind for one in engine.run([one.call for one in calls])] == ["accepted"] * 10


@pytest.mark.parametrize("engine", ["functions.py:packed"], indirect=True)
def test_strategies_of_the_function(engine: Engine) -> None:
    op, calls = first_of(engine)
    assert [one.name for one in op.inputs] == ["values"]
    assert calls
    assert all(one.call[1].startswith("values=np.") and ", data=b" in one.call[1] for one in calls)


@pytest.mark.parametrize("engine", ["functions.py:strange"], indirect=True)
def test_a_value_that_cannot_be_made_again(engine: Engine) -> None:
    with pytest.raises(InputError, match="the parameter thing of strange has no type hint"):
        first_of(engine)


@pytest.mark.parametrize("engine", ["functions.py:broken"], indirect=True)
def test_a_strategy_that_fails(engine: Engine) -> None:
    op, calls = first_of(engine)
    assert [one.name for one in op.attributes] == ["number"]
    assert calls == []
    (gap,) = undrawn_calls(engine.offered)
    assert gap.why == "no call could be drawn: division by zero"


@pytest.mark.parametrize("engine", ["functions.py:bare"], indirect=True)
def test_a_function_without_strategies(engine: Engine) -> None:
    assert first_of(engine)[1] == []


@pytest.mark.parametrize("engine", ["tensors.py:norm"], indirect=True)
def test_tensors(engine: Engine) -> None:
    op, _ = first_of(engine)
    first = next(Generator(op, 0, Seen()).proposals()).recipe
    assert first.call[1].startswith("x=torch.tensor(np.")
    assert ", y=torch.tensor(np." in first.call[1]
    assert engine.run([first.call])[0].kind == "accepted"
    text = text_of(
        "norm", first, repeated=1, headline="", source=Source(module="tensors", function="norm"), place=Path()
    )
    assert "import numpy as np\nimport torch\n" in text


def test_the_written_test_calls_the_function_behind_given(folder: Path, tmp_path: Path) -> None:
    options = fuzzing.Options(budget_s=300, calls=30, tests=tmp_path, guard="off")
    document, _ = fuzzing.fuzzed(f"{folder / 'functions.py'}:packed", options)
    assert document.fuzz is not None
    (finding,) = document.fuzz.findings
    assert finding.test is not None
    assert finding.precondition is not None
    assert finding.precondition.condition == "len(data) <= 2"
    text = render(document)
    assert "   Precondition: len(data) <= 2. It held in " in text
    assert '     if len(data) > 2: raise ValueError("len(data) must be at most 2")\n' in text
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", finding.test]
    assert subprocess.run(words, capture_output=True, check=False).returncode == -signal.SIGABRT
