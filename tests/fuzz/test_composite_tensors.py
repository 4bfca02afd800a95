"""Functions that take ragged and sparse tensors, of a `tensorflow` of a few lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from necropsy.fuzz.condition_checks import check
from necropsy.fuzz.conditions import Condition, Term
from necropsy.fuzz.definitions import OpDefinition, python_function
from necropsy.fuzz.engine import Engine
from necropsy.fuzz.generator import Generator, Seen
from necropsy.fuzz.recipes import Recipe, Tensor
from necropsy.fuzz.test_writer import Source, text_of

TENSORFLOW = """
import numpy as np


class Tensor:
    pass


class RaggedTensor:
    @classmethod
    def from_row_splits(cls, values, row_splits, validate=True):
        made = cls()
        made.values, made.row_splits, made.validated = values, row_splits, validate
        return made


class SparseTensor:
    def __init__(self, indices, values, dense_shape):
        self.indices, self.values, self.dense_shape = indices, values, dense_shape


def constant(array):
    return array
"""
FUNCTIONS = """
import tensorflow as tf


def row_sums(rows: tf.RaggedTensor, scale: float = 1.0) -> float:
    assert not rows.validated
    if rows.row_splits.ndim != 1 or rows.row_splits.dtype != "int64":
        raise ValueError("no splits")
    return float(len(rows.row_splits))


def cells(table: "tf.SparseTensor", other: tf.Tensor) -> int:
    return int(table.indices.size + table.dense_shape.size + table.values.size + other.size)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("composite")
    (path / "functions.py").write_text(FUNCTIONS)
    (path / "tensorflow.py").write_text(TENSORFLOW)
    return path


@pytest.fixture
def engine(folder: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    function = {"module": str(folder / "functions.py"), "function": request.param, "folder": str(folder)}
    one = Engine(sys.executable, function)
    yield one
    one.close()


def op_of(engine: Engine) -> OpDefinition:
    return python_function(engine.offered["function"])


def first_of(op: OpDefinition) -> Recipe:
    return next(Generator(op, 0, Seen()).proposals()).recipe


@pytest.mark.parametrize("engine", ["row_sums"], indirect=True)
def test_a_ragged_tensor_is_made_of_values_and_splits(engine: Engine) -> None:
    op = op_of(engine)
    assert [one.name for one in op.inputs] == ["rows_values", "rows_row_splits"]
    assert {one.name: one.dtype for one in op.inputs} == {"rows_values": None, "rows_row_splits": "int64"}
    first = first_of(op)
    assert first.call[1].startswith("rows=tf.RaggedTensor.from_row_splits(tf.constant(")
    recipes = [one.recipe for one, _ in zip(Generator(op, 0, Seen()).proposals(), range(60), strict=False)]
    ends = engine.run([one.call for one in recipes])
    assert {one.kind for one in ends} <= {"accepted", "refused"}
    assert any(one.kind == "accepted" for one in ends)
    assert len({one.inputs["rows_row_splits"] for one in recipes}) > 10


@pytest.mark.parametrize("engine", ["cells"], indirect=True)
def test_a_sparse_tensor_is_made_of_three_parts(engine: Engine) -> None:
    op = op_of(engine)
    names = ["table_indices", "table_values", "table_dense_shape", "other"]
    assert [one.name for one in op.inputs] == names
    first = first_of(op)
    assert list(first.arguments()) == ["other", "table"]
    assert first.arguments()["table"].startswith("tf.SparseTensor(tf.constant(")
    assert engine.run([first.call])[0].kind == "accepted"
    source = Source(module="functions", function="cells")
    text = text_of("cells", first, repeated=1, headline="", source=source, place=Path())
    assert '        "table": tf.SparseTensor(' in text
    assert "import tensorflow as tf\n" in text


@pytest.mark.parametrize("engine", ["row_sums"], indirect=True)
def test_another_number_keeps_the_tensor_whole(engine: Engine) -> None:
    op = op_of(engine)
    splits = Tensor("int64", (2,), "cycle", (0, 5))
    changed = first_of(op).with_input("rows_row_splits", splits).with_attribute("scale", 2.0)
    assert set(changed.arguments()) == {"rows", "scale"}
    assert "np.array([0, 5], np.int64)" in changed.arguments()["rows"]
    assert engine.run([changed.call])[0].kind == "accepted"


@pytest.mark.parametrize("engine", ["row_sums"], indirect=True)
def test_a_precondition_asks_the_parts(engine: Engine) -> None:
    condition = Condition(Term("max", "rows_row_splits"), "<=", Term("dim", "rows_values", 0))
    assert check([condition], op_of(engine)) == (
        "if np.asarray(rows.values).ndim <= 0 or (np.asarray(rows.row_splits) > np.asarray(rows.values).shape[0]).any():"
        ' raise ValueError("max(rows_row_splits) must be at most dim(rows_values, 0)")'
    )
