"""The smallest call like the one that died: what is written down of its arguments, and when nothing is."""

from __future__ import annotations

import pytest

from necropsy import reproducer
from necropsy.model import Argument, Call

IDS = Argument(name="ids", type="Tensor", dtype="int64", shape=(1, 2), unusual=("negative",))


def call(*arguments: Argument, module: str | None = reproducer.RAW_OPS, function: str = "Unbatch") -> Call:
    return Call(function=function, library="any", module=module, arguments=arguments)


def test_an_operation_with_its_inputs_and_attributes() -> None:
    made = reproducer.code(
        call(
            Argument(name="x", type="Tensor", dtype="float32", shape=(70000, 0), unusual=("empty",)),
            Argument(name="index", type="Tensor", dtype="int64", shape=(), value="5"),
            IDS,
            Argument(name="T", type="DType", value="float32"),
            Argument(name="out_type", type="DType", value="int32"),
            Argument(name="timeout_micros", type="int", value="1"),
            Argument(name="padding", type="str", value="SAME"),
        )
    )
    assert made == (
        "import tensorflow as tf",
        (
            "tf.raw_ops.Unbatch(x=tf.zeros([70000, 0], tf.float32), index=tf.fill([], tf.constant(5, tf.int64)), "
            'ids=tf.fill([1, 2], tf.constant(-1, tf.int64)), out_type=tf.int32, timeout_micros=1, padding="SAME")'
        ),
    )


def test_the_items_of_a_list_are_put_together() -> None:
    items = [Argument(name=f"values[{at}]", type="Tensor", dtype="bool", shape=(at,)) for at in (0, 1)]
    made = reproducer.code(call(*items, Argument(name="N", type="int", value="2"), function="Pack"))
    assert made is not None
    assert made[-1] == "tf.raw_ops.Pack(values=[tf.zeros([0], tf.bool), tf.zeros([1], tf.bool)])"


@pytest.mark.parametrize(
    ("argument", "written"),
    [
        (Argument(name="a", type="numpy.ndarray", dtype="float64", shape=(0, 3)), "a=np.zeros((0, 3), np.float64)"),
        (
            Argument(name="a", type="numpy.ndarray", dtype="bool", shape=(2,), unusual=("not-contiguous",)),
            "a=np.zeros((2, 2), np.bool_)[..., 0]",
        ),
        (
            Argument(name="a", type="numpy.ndarray", dtype="int8", shape=(1 << 20, 4096), unusual=("huge",)),
            "a=np.broadcast_to(np.zeros((), np.int8), (1048576, 4096))",
        ),
        (Argument(name="argument 1", type="float", value="nan"), 'float("nan")'),
        (Argument(name="n", type="numpy.int32", value="-4"), "n=np.int32(-4)"),
        (Argument(name="text", type="str"), 'text=""'),
        (Argument(name="axes", type="tuple", dtype="int", shape=(2,), value="[0, 1]"), "axes=tuple([0, 1])"),
    ],
)
def test_one_argument(argument: Argument, written: str) -> None:
    made = reproducer.code(call(argument, module="pkg.inner", function="work"))
    assert made is not None
    assert made[-1] == f"pkg.inner.work({written})"
    assert "import pkg.inner" in made
    assert ("import numpy as np" in made) == ("np." in written)


def test_a_method_of_an_array_needs_no_module() -> None:
    own = Argument(name="self", type="numpy.ndarray", dtype="float32", shape=(2,))
    made = reproducer.code(
        call(own, Argument(name="argument 1", type="None", value="None"), module=None, function="dot")
    )
    assert made == ("import numpy as np", "np.zeros((2,), np.float32).dot(None)")


@pytest.mark.parametrize(
    "made",
    [
        call(IDS, module=None),
        call(IDS, module="os; import shutil"),
        call(IDS, function="f()"),
        call(),
        call(IDS, Argument(name="other", type="Thing")),
        call(Argument(name="handle", type="Tensor", dtype="resource", shape=())),
        call(Argument(name="self", type="Thing"), function="close"),
        call(Argument(name="items", type="list", dtype="str", shape=(3,))),
        call(Argument(name="n", type="int")),
    ],
)
def test_what_cannot_be_written_down_is_left(made: Call) -> None:
    assert reproducer.code(made) is None
