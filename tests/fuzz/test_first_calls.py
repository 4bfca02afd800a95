"""Calls that an op is likely to accept: parts of sparse and ragged tensors fit, messages and shape functions are heard."""

from __future__ import annotations

import inspect
import itertools
import sys
from random import Random
from typing import Any

import numpy as np
import pytest

import needs
from necropsy.fuzz import boundaries, messages, structures
from necropsy.fuzz.definitions import definition
from necropsy.fuzz.engine import Engine
from necropsy.fuzz.generator import Generator, Seen
from necropsy.fuzz.inferred_ranks import inferred_ranks
from necropsy.fuzz.opened_target import OpenTarget
from necropsy.fuzz.recipes import Recipe, Tensor
from necropsy.fuzz.target.ops import rename


def array(one: Any) -> Any:
    assert isinstance(one, Tensor)
    return eval(one.array(), {"np": np})


def made(**dtypes: str) -> Recipe:
    return Recipe("ops.Op", {name: boundaries.plain(dtype, (2,)) for name, dtype in dtypes.items()})


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_of_a_sparse_tensor_fit(seed: int) -> None:
    plain = made(a_indices="int64", a_values="float32", a_shape="int64", b="float32")
    fitted = structures.fitted(plain, Random(seed))
    indices, values, shape = (array(fitted.inputs[f"a_{name}"]) for name in ("indices", "values", "shape"))
    assert indices.shape == (values.shape[0], shape.shape[0])
    assert (indices < shape).all()
    assert len(np.unique(indices, axis=0)) == len(indices)
    assert fitted.inputs["b"] == plain.inputs["b"]


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_of_a_ragged_tensor_fit(seed: int) -> None:
    fitted = structures.fitted(made(row_splits="int64", values="float32"), Random(seed))
    splits, values = (array(fitted.inputs[name]) for name in ("row_splits", "values"))
    assert splits[0] == 0
    assert splits[-1] == values.shape[0]
    assert (splits[1:] >= splits[:-1]).all()
    inner = boundaries.plain("int64", (2,))
    nested = Recipe(
        "ops.Op", {"rt_nested_splits": (inner, inner), "rt_dense_values": boundaries.plain("float32", (2, 5))}
    )
    fitted = structures.fitted(nested, Random(seed))
    levels = fitted.inputs["rt_nested_splits"]
    assert isinstance(levels, tuple)
    outer, last = map(array, levels)
    assert outer[-1] == len(last) - 1
    assert last[-1] == array(fitted.inputs["rt_dense_values"]).shape[0]


@pytest.mark.parametrize("seed", range(20))
def test_segments_and_ranges_fit(seed: int) -> None:
    plain = made(data="float32", segment_ids="int32", num_segments="int32", min_x="float32", max_x="float32")
    fitted = structures.fitted(plain, Random(seed))
    data, ids, many = (array(fitted.inputs[name]) for name in ("data", "segment_ids", "num_segments"))
    assert len(ids) == len(data) == many
    assert (ids < many).all()
    assert (array(fitted.inputs["min_x"]) < array(fitted.inputs["max_x"])).all()


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("boxes must be 2-D, got: []", {"boxes": 2}),
        ("`cs_prev` must be rank 0 but is rank 1", {"cs_prev": 0}),
        ("The rank of the boxes tensor should be 3", {"boxes": 3}),
        ("Expected input_shape to be a vector; got shape: [2,3]", {"input_shape": 1}),
        ("`seq_len_max_tensor` must be a scalar", {"seq_len_max": 0}),
        ("x must be a matrix", {"x": 2}),
        ("n must be 5 elements", {}),
        ("depth must be 2 at least", {}),
        ("key must have shape [1], not [5]", {}),
    ],
)
def test_ranks_that_a_message_demands(text: str, ranks: dict[str, int]) -> None:
    assert dict(messages.ranks(f"InvalidArgumentError: {text}")) == ranks


@pytest.mark.parametrize(
    ("text", "shapes"),
    [
        ("boxes must be [n, 4]", {"boxes": (None, 4)}),
        ("`boxes` must have shape [num_boxes, 4], got [3]", {"boxes": (None, 4)}),
        ("size input must be of shape (2)", {"size": (2,)}),
        ("image should be a [batch, height, width, 3]", {"image": (None, None, None, 3)}),
        ("rate must be in [0, 1)", {}),
        ("boxes must be a matrix", {}),
    ],
)
def test_shapes_that_a_message_demands(text: str, shapes: dict[str, tuple[int | None, ...]]) -> None:
    assert dict(messages.shapes(f"InvalidArgumentError: {text}")) == shapes


def test_words_that_a_message_allows() -> None:
    said = "padding Attr must be one of [EXPLICIT | SAME | VALID], but given: 'a'"
    assert list(messages.words(said)) == ["a", "EXPLICIT", "SAME", "VALID"]


def test_names_are_those_of_the_function() -> None:
    described = {
        "inputArg": [{"name": "input", "typeAttr": "T"}, {"name": "reduction_indices", "typeAttr": "Tidx"}],
        "attr": [{"name": "keep_dims"}, {"name": "T"}, {"name": "Tidx"}],
    }

    # TensorFlow's own name of the parameter, which is what is tested.
    def mean(input: object, axis: object, keep_dims: bool = False, name: str | None = None) -> None:  # noqa: A002 - TensorFlow's own
        pass

    assert "axis" in inspect.signature(mean).parameters
    rename(described, mean)
    assert [one["name"] for one in described["inputArg"]] == ["input", "axis"]
    assert [one["name"] for one in described["attr"]] == ["keep_dims", "T", "Tidx"]


def test_a_list_has_its_least_length() -> None:
    values = boundaries.attribute_values("list(int)", 4, (), [])
    assert all(len(one) >= 4 for one in values if one)
    assert [] in values
    assert {len(one) for one in boundaries.attribute_values("list(int)", None, (), [])} >= {0, 1, 2, 4}


def test_sizes_that_a_message_demands_stay_where_others_change() -> None:
    op = definition(
        {
            "name": "Boxed",
            "inputArg": [{"name": "boxes", "type": "DT_INT32"}, {"name": "scales", "type": "DT_FLOAT"}],
            "kernels": [{"op": "Boxed", "deviceType": "CPU"}],
        }
    )
    seen = Seen()
    seen.note(next(Generator(op, 0, seen).proposals()).recipe, accepted=False, text="boxes must be [n, 4]")
    several = [one.recipe for one in itertools.islice(Generator(op, 0, seen).proposals(), 150)]
    fitting = [shape for one in several if len(shape := next(iter(one.tensors())).shape) == 2 and shape[1] == 4]
    assert len(fitting) > 90
    base = next(one for one in several if [each.shape for each in one.tensors()] == [(4, 4), (4,)])
    changed = [[each.shape for each in one.recipe.tensors()] for one in Generator(op, 0, seen).around(base)]
    assert [(0, 4), (0,)] in changed


def test_what_is_known_of_ranks_is_used_most_of_the_time() -> None:
    op = definition(
        {
            "name": "Boxed",
            "inputArg": [{"name": "images", "type": "DT_FLOAT"}, {"name": "boxes", "type": "DT_FLOAT"}],
            "kernels": [{"op": "Boxed", "deviceType": "CPU"}],
        }
    )
    seen = Seen(ranks={"images": (4,)})
    seen.note(next(Generator(op, 0, seen).proposals()).recipe, accepted=False, text="boxes must be 2-D")
    several = [one.recipe for one in itertools.islice(Generator(op, 0, seen).proposals(), 190)]
    shapes = [tuple(len(each.shape) for each in one.tensors()) for one in several]
    assert shapes.count((4, 2)) > 100
    assert len(set(shapes)) > 5
    assert definition({"name": "Old", "kernels": [{}], "removed": True}).why_not() is not None


@pytest.mark.tensorflow
@needs.package("tensorflow")
@pytest.mark.skipif(sys.platform != "linux", reason="workers are forked")
def test_ranks_that_a_shape_function_allows() -> None:
    with OpenTarget("tf.raw_ops.[MA]*", sys.executable, guard=False) as opened:
        ops = {one.name: one for one in opened.ops}
        engine: Engine = opened.engine
        found = {
            name: inferred_ranks(engine, name, Generator(ops[name], 0, Seen()).plain()) for name in ("MatMul", "AddV2")
        }
        assert found == {"MatMul": {"a": (2,), "b": (2,)}, "AddV2": {}}
        mean = Generator(ops["Mean"], 0, Seen()).plain()
        assert set(mean.inputs) == {"input", "axis"}
        assert engine.run([mean.call])[-1].kind in {"accepted", "refused"}
