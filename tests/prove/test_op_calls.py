"""The text of a call is what runs: it compiles, fits the types, and reaches the borders that findings are about."""

from __future__ import annotations

import pytest

from necropsy.prove import predictions, valid_calls
from necropsy.prove.session import OpAttribute, OpDescription, OpInput
from necropsy.prove.values import Call, Literal, Tensor, Tensors

GATHER = OpDescription(
    inputs=(
        OpInput(name="params", type_attribute="T"),
        OpInput(name="indices", type="int32"),
    ),
    attributes=(
        OpAttribute(name="T", type="type", allowed=("float32", "int8")),
        OpAttribute(name="axis", type="int", minimum=1),
    ),
    kernels=({"T": ("int8",)},),
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Tensor("float32", ()), "tf.constant(1.0, tf.float32)"),
        (Tensor("int8", (2,), 1000), "tf.constant([127, 127], tf.int8)"),
        (Tensor("int64", (4, 4), 0), "tf.zeros([4, 4], tf.int64)"),
        (Tensor("int32", (5,), 1, steps=True), "tf.range(1, 6, dtype=tf.int32)"),
        (Tensor("int32", (2, 2), 0, steps=True), "tf.reshape(tf.range(0, 4, dtype=tf.int32), [2, 2])"),
        (Tensor("string", (), "'(' * 9"), "tf.constant('(' * 9, tf.string)"),
        (Tensor("float64", (1,), float("nan")), 'tf.constant([float("nan")], tf.float64)'),
        (Tensors((Tensor("bool", (), 0),)), "[tf.constant(False, tf.bool)]"),
        (Literal("[1, 0]"), "[1, 0]"),
    ],
)
def test_the_text_of_a_value(value: object, text: str) -> None:
    assert str(value) == text


def test_types_are_those_that_kernels_have() -> None:
    first = next(valid_calls.candidates("Gather", GATHER))
    assert str(first) == "ops.Gather(params=tf.constant(1, tf.int8), indices=tf.constant(1, tf.int32), axis=1)"


@pytest.mark.parametrize("kind", sorted({kind for one in predictions.PREDICTIONS.values() for kind in one.calls}))
def test_every_variation_can_be_called(kind: str) -> None:
    base = next(valid_calls.candidates("Gather", GATHER))
    several = list(predictions.calls(kind, base, GATHER))
    assert several
    for one in several:
        compile(str(one), "call", "eval")
        assert set(one.arguments) == {"params", "indices", "axis"}


def test_borders() -> None:
    base = Call("Gather", {"params": Tensor("int8", (4,)), "indices": Tensor("int32", (3,))})
    texts = {str(one) for kind in ("numbers", "shapes") for one in predictions.calls(kind, base, GATHER)}
    for indices in (
        "tf.constant([-1, -1, -1], tf.int32)",
        "tf.fill([0], tf.constant(1, tf.int32))",
        "tf.constant(1, tf.int32)",
    ):
        assert f"ops.Gather(params=tf.constant([1, 1, 1, 1], tf.int8), indices={indices})" in texts


def test_a_resource_cannot_be_made_up() -> None:
    op = OpDescription(inputs=(OpInput(name="table", type="resource"),))
    assert valid_calls.cannot_be_called(op) == "no value can be made up for its input table of type resource"
    assert valid_calls.cannot_be_called(GATHER) is None
