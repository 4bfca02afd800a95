"""A recipe is the same after JSON, and its Python text makes what it says; a campaign is the same for the same seed."""

from __future__ import annotations

import itertools
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.fuzz import boundaries, random_values
from necropsy.fuzz.definitions import OpDefinition, definition
from necropsy.fuzz.described_calls import described
from necropsy.fuzz.generator import Generator, Seen
from necropsy.fuzz.recipes import COMPLEX, FLOATS, INTEGERS, Recipe, Tensor, from_json, literal, to_json

NUMERIC = sorted({*INTEGERS, *FLOATS, *COMPLEX} - {"bfloat16"})
NAMES = {
    "np": np,
    "tf": SimpleNamespace(constant=lambda array, _dtype=None: array, float32=np.float32, string="string"),
}

GATHER = {
    "name": "Gather",
    "inputArg": [
        {"name": "params", "typeAttr": "T"},
        {"name": "indices", "type": "DT_INT32"},
        {"name": "more", "typeAttr": "T", "numberAttr": "N"},
        {"name": "text", "type": "DT_STRING"},
    ],
    "attr": [
        {"name": "T", "type": "type", "allowedValues": {"list": {"type": ["DT_FLOAT", "DT_HALF"]}}},
        {"name": "N", "type": "int", "hasMinimum": True, "minimum": "2"},
        {"name": "axis", "type": "int", "hasMinimum": True, "minimum": "1"},
        {"name": "taps", "type": "list(int)", "defaultValue": {"list": {"i": ["1", "2"]}}},
        {"name": "mode", "type": "string", "allowedValues": {"list": {"s": ["UkVQ", "WkVSTw=="]}}},
        {"name": "out", "type": "type", "defaultValue": {"type": "DT_FLOAT"}},
    ],
    "kernels": [{"op": "Gather", "deviceType": "CPU"}],
}


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    dtype = draw(st.sampled_from([*NUMERIC, "bool", "string"]))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    one = boundaries.plain(dtype, shape)
    numbers, words = [2, 3, -4], ["word"]
    if draw(st.booleans()):
        return one.filled(random_values.fill(Random(draw(st.integers(0, 1 << 32))), one, numbers, words))
    return one.filled(draw(st.sampled_from(boundaries.fills(one, numbers, words))))


@given(tensors())
def test_the_text_makes_the_tensor(one: Tensor) -> None:
    with np.errstate(all="ignore"):
        made = eval(one.python(), dict(NAMES))
    assert made.shape == one.shape
    assert made.dtype == {"bool": np.bool_, "string": object}.get(one.dtype, one.dtype)
    if one.size and one.kind == "same" and one.dtype in INTEGERS:
        assert made.reshape(-1)[-1] == one.items[0]


@given(st.lists(tensors(), max_size=3), st.sampled_from([1, "a", [1, 2], {"type": "float32"}, 0.5, True, None]))
def test_json_keeps_a_recipe(several: list[Tensor], attribute: Any) -> None:
    inputs: dict[str, Any] = {f"x{at}": one for at, one in enumerate(several)}
    recipe = Recipe("ops.Op", {**inputs, "list": tuple(several)}, {"a": attribute})
    assert from_json(to_json(recipe)).call == recipe.call
    assert recipe.python.startswith("ops.Op(")
    compile(recipe.python, "call", "eval")
    call = described("Op", recipe, 1)
    assert all(
        one.values is None or len(one.values) <= 64 for one in call.inputs.values() if not isinstance(one, tuple)
    )


def gather() -> OpDefinition:
    return definition(GATHER)


def test_what_tensorflow_has_registered() -> None:
    op = gather()
    assert op.why_not() is None
    assert [one.name for one in op.given] == ["axis", "taps", "mode", "out"]
    assert [dict(one) for one in op.combinations] == [{"T": "float32"}, {"T": "float16"}]
    assert op.attributes[3].default == [1, 2]
    assert op.attributes[4].allowed == ("REP", "ZERO")
    assert op.attributes[5].default == {"type": "float32"}
    switch = definition({**GATHER, "name": "Switch"})
    assert switch.why_not() == "it is a control-flow op, which has a meaning within a graph only"
    assert definition({**GATHER, "kernels": []}).why_not() == "it has no kernel for the CPU"
    resource = definition({**GATHER, "inputArg": [{"name": "table", "type": "DT_RESOURCE"}]})
    assert resource.why_not() == "no value can be made up for its input table of type resource"


def calls(seed: int, many: int) -> list[Recipe]:
    """As of an op that accepts some calls, so that each stage has something to begin with."""
    seen = Seen()
    found = []
    for number, one in enumerate(itertools.islice(Generator(gather(), seed, seen).proposals(), many)):
        found.append(one.recipe)
        if number % 7 == 0:
            seen.note(one.recipe, accepted=True, text=None)
        if number % 11 == 0:
            seen.note(one.recipe, accepted=False, text="mode must be 'deep' and 17 wide")
    return found


def test_the_same_seed_makes_the_same_calls() -> None:
    first = [one.call for one in calls(3, 1500)]
    assert first == [one.call for one in calls(3, 1500)]
    assert first != [one.call for one in calls(4, 1500)]


def test_each_proposal_is_legal() -> None:
    several = calls(0, 1500)
    for one in several:
        assert set(one.inputs) == {"params", "indices", "more", "text"}
        assert {"axis", "mode"} <= set(one.attributes)
        compile(one.python, "call", "eval")
        assert sum(each.size for each in one.tensors()) <= boundaries.MOST_ELEMENTS
    texts = " ".join(one.python for one in several)
    for border in ("2147483647", "-2147483648", "b'deep'", "np.nan", "np.float16", "axis=-1", "[1000000]"):
        assert border in texts, border


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"type": "int32"}, "tf.int32"),
        ([1, float("inf")], "[1, float('inf')]"),
        ("a'b", '"a\'b"'),
        (None, "None"),
    ],
)
def test_attributes(value: Any, text: str) -> None:
    assert literal(value) == text


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=300))
def test_constants_that_an_op_compares_with_are_tried_first(constants: list[int]) -> None:
    seen = Seen()
    seen.compare(constants)
    assert len(seen.compared) <= 96
    generator = Generator(definition(GATHER), 0, seen)
    base = next(generator.proposals()).recipe
    near = [one for one in seen.compared if -(1 << 31) <= one < 1 << 31]
    made = list(itertools.islice(generator.around(base), 2000))
    tried = {one.items[0] for each in made for one in [each.recipe.inputs["indices"]] if isinstance(one, Tensor)}
    assert set(near) <= tried
    sizes = {size for each in made for one in each.recipe.tensors() for size in one.shape}
    assert {one for one in seen.sizes if one <= 1000} <= sizes
