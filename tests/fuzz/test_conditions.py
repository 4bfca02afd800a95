"""Conditions say the same of a recipe as NumPy does of the arrays, and so do the lines that enforce them."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from necropsy.fuzz import boundaries
from necropsy.fuzz.attributes import Attribute
from necropsy.fuzz.condition_checks import check
from necropsy.fuzz.conditions import Condition, Term, candidates, values_of
from necropsy.fuzz.definitions import Argument, OpDefinition, definition
from necropsy.fuzz.recipes import Recipe, Tensor

OP = OpDefinition(
    "work",
    (Argument("x", type_attribute="x"), Argument("y", type_attribute="y")),
    (Attribute("n", "int"), Attribute("text", "bytes"), Attribute("taps", "list(int)")),
    ({"x": "int32", "y": "int64"},),
    is_python=True,
)
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    one = boundaries.plain(draw(st.sampled_from(["int32", "int64", "float32"])), draw(SHAPES))
    found = one.filled(draw(st.sampled_from(boundaries.fills(one, [2, 3]))))
    assume(found.kind != "random" and all(abs(item) < 1 << 20 for item in found.items))
    return found


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    attributes = {
        "n": draw(st.integers(-3, 4)),
        "text": {"bytes": "a", "times": draw(st.integers(0, 4))},
        "taps": draw(st.lists(st.integers(-2, 3), max_size=3)),
    }
    return Recipe("target", {"x": draw(tensors()), "y": draw(tensors())}, attributes, arrays=True)


def made(recipe: Recipe) -> dict[str, Any]:
    found: dict[str, Any] = eval(f"dict({recipe.call[1]})", {"np": np})
    return found


@given(recipes())
def test_terms(recipe: Recipe) -> None:
    values, arguments = values_of(recipe), made(recipe)
    for term, value in values.items():
        one = arguments[term.name]
        match term.part:
            case "rank":
                assert value == one.ndim
            case "size":
                assert value == (one.size if term.name in "xy" else len(one))
            case "dim":
                assert value == one.shape[term.axis]
            case "length":
                assert value == len(one)
            case "value":
                assert value == one
            case "min" | "max" | "zeros" if np.size(one):
                array = np.asarray(one)
                assert value == {"min": array.min(), "max": array.max(), "zeros": (array == 0).any()}[term.part]
            case _:
                assert value is not None
                assert np.isnan(value)


@settings(max_examples=50)
@given(st.lists(recipes(), min_size=2, max_size=4), st.data())
def test_the_line_of_python_refuses_what_the_condition_refuses(several: list[Recipe], data: st.DataObject) -> None:
    values = [values_of(one) for one in several]
    one = data.draw(st.sampled_from(list(candidates(OP, values[1:], values[:1], limits=True))))
    line = check([one], OP)
    assert line is not None
    for recipe, each in zip(several, values, strict=True):
        refuses = pytest.raises(ValueError, match="must") if one.holds(each) is False else contextlib.nullcontext()
        with refuses:
            exec(line, made(recipe))


GATHER = definition(
    {
        "name": "Gather",
        "inputArg": [
            {"name": "params", "typeAttr": "T"},
            {"name": "rows", "type": "DT_INT32"},
            {"name": "words", "type": "DT_STRING"},
            {"name": "more", "typeAttr": "T", "numberAttr": "N"},
            {"name": "last", "type": "DT_FLOAT"},
        ],
        "attr": [{"name": "T", "type": "type"}, {"name": "N", "type": "int"}, {"name": "axis", "type": "int"}],
        "kernels": [{"op": "Gather", "deviceType": "CPU"}],
    }
)
RANK = 'OP_REQUIRES(ctx, ctx->input(0).dims() == 2, errors::InvalidArgument("rank(params) must be 2"));'
ROWS = "ctx->input(1).flat<int32_t>().data()"
BELOW = (
    f"OP_REQUIRES(ctx, ctx->input(0).dims() > 0 && std::all_of({ROWS}, {ROWS} + ctx->input(1).NumElements(), "
    "[&](int32_t v) { return v < ctx->input(0).dim_size(0); }), "
    'errors::InvalidArgument("max(rows) must be less than dim(params, 0)"));'
)
WORDS = "ctx->input(2).flat<tstring>().data()"
SHORT = (
    f"OP_REQUIRES(ctx, std::all_of({WORDS}, {WORDS} + ctx->input(2).NumElements(), "
    "[&](const tstring& v) { return v.size() <= 1000; }), "
    'errors::InvalidArgument("len(words) must be at most 1000"));'
)
TAPS = (
    "OP_REQUIRES(ctx, std::all_of(taps.begin(), taps.end(), [&](auto v) { return v > 0; }), "
    'errors::InvalidArgument("min(taps) must be greater than 0"));'
)
MODE = 'OP_REQUIRES(ctx, mode.size() > 0, errors::InvalidArgument("len(mode) must be greater than 0"));'
AXIS = 'OP_REQUIRES(ctx, axis > 0, errors::InvalidArgument("axis must be greater than 0"));'


@pytest.mark.parametrize(
    ("condition", "text", "line"),
    [
        (Condition(Term("rank", "params"), "==", 2), "rank(params) == 2", RANK),
        (Condition(Term("max", "rows"), "<", Term("dim", "params", 0)), "max(rows) < dim(params, 0)", BELOW),
        (Condition(Term("length", "words"), "<=", 1000), "len(words) <= 1,000", SHORT),
        (Condition(Term("value", "axis"), ">", 0), "axis > 0", AXIS),
        (Condition(Term("min", "taps"), ">", 0), "min(taps) > 0", TAPS),
        (Condition(Term("length", "mode"), ">", 0), "len(mode) > 0", MODE),
        (Condition(Term("rank", "last"), "==", 0), "rank(last) == 0", None),
    ],
    ids=["rank", "elements", "text", "attribute", "list", "word", "behind a list"],
)
def test_the_line_of_a_kernel(condition: Condition, text: str, line: str | None) -> None:
    assert str(condition) == text
    assert check([condition], GATHER) == line


def test_what_is_not_known_is_neither_true_nor_false() -> None:
    drawn = Recipe("target", {"x": Tensor("int32", (3,), "random", (1, 0, 9))})
    assert Condition(Term("min", "x"), ">=", 0).holds(values_of(drawn)) is None
    assert Condition(Term("dim", "x", 1), ">", 0).holds(values_of(drawn)) is False
    empty = Recipe("target", {"x": Tensor("int32", (0,), "same", (-1,))})
    assert Condition(Term("min", "x"), ">=", 0).holds(values_of(empty)) is True
