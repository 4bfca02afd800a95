"""A lethal call becomes as simple as its death allows, and the shrinker always ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.fuzz import boundaries
from necropsy.fuzz.attributes import Attribute
from necropsy.fuzz.definitions import Argument, OpDefinition
from necropsy.fuzz.recipes import Recipe, Tensor
from necropsy.fuzz.shrinker import MOST_RUNS, Shrinker, with_margin

OP = OpDefinition(
    "Op",
    (Argument("x", "float32"), Argument("text", "string")),
    (Attribute("depth", "int", default=3, has_default=True),),
    ({},),
)


def tensor(recipe: Recipe, name: str) -> Tensor:
    one = recipe.inputs[name]
    assert isinstance(one, Tensor)
    return one


def call(x: Tensor, text: str = "a", times: int = 1, depth: int = 3) -> Recipe:
    return Recipe("ops.Op", {"x": x, "text": Tensor("string", (2,), "same", ((text, times),))}, {"depth": depth})


def shrunk(recipe: Recipe, dies: Callable[[Recipe], bool]) -> tuple[Recipe, int]:
    runs = 0

    def counted(one: Recipe) -> bool:
        nonlocal runs
        runs += 1
        return dies(one)

    return Shrinker(OP, counted).shrink(recipe), runs


def test_a_size() -> None:
    before = call(Tensor("float32", (1_000_000,), "ramp", (0, 1)), "word", 7, depth=9)
    after, runs = shrunk(before, lambda one: tensor(one, "x").size >= 31_547)
    assert 31_547 <= tensor(after, "x").size <= 32_100
    assert after.attributes == {"depth": 3}
    assert tensor(after, "text").shape == ()
    assert runs <= MOST_RUNS


def test_a_rank() -> None:
    after, _ = shrunk(call(Tensor("float32", (4, 4, 3), "same", (7.0,))), lambda one: len(tensor(one, "x").shape) == 3)
    assert tensor(after, "x") == Tensor("float32", (1, 1, 1), "same", (0.0,))


def test_a_length() -> None:
    after, _ = shrunk(call(Tensor("float32", ()), "(", 100_000), lambda one: tensor(one, "text").items[0][1] > 58)
    assert tensor(after, "text").items[0] == ("(", 59)
    assert tensor(with_margin(after), "text").items[0] == ("(", 118)


@pytest.mark.parametrize(
    ("value", "doubled"),
    [(52_196, 104_392), (12, 12), ("(" * 100, "(" * 200), ("word", "word")],
    ids=["depth", "small", "text", "short"],
)
def test_what_fills_a_stack_has_a_margin(value: object, doubled: object) -> None:
    """Whether a recursion fits depends on the machine: an attribute that may be its depth is doubled as well."""
    recipe = Recipe("target", {}, {"depth": value})
    assert with_margin(recipe).attributes == {"depth": doubled}
    long = Recipe("target", {}, {"text": {"bytes": "(", "times": 1000}})
    assert with_margin(long).attributes == {"text": {"bytes": "(", "times": 2000}}
    wide = call(Tensor("float32", (5000,)), depth=3)
    assert tensor(with_margin(wide), "x").shape == (10_000,)


def test_a_value() -> None:
    after, _ = shrunk(
        call(Tensor("float32", (3,), "cycle", (1.0, 2.0, -7.0))), lambda one: min(tensor(one, "x").items) < 0
    )
    assert tensor(after, "x").size == 1
    assert tensor(after, "x").items == (-1.0,)


@given(
    st.sampled_from([(3,), (0, 4), (2, 3), (), (1_000_000,), (0, 1 << 31)]),
    st.sampled_from(["float32", "int32", "bool"]),
    st.integers(0, 7),
)
def test_it_ends(shape: tuple[int, ...], dtype: str, mask: int) -> None:
    """Whatever dies: the answers may contradict each other."""
    recipe = call(boundaries.plain(dtype, shape))
    after, runs = shrunk(recipe, lambda one: hash(one.call) & mask == 0)
    assert runs <= MOST_RUNS
    assert after.call


@pytest.mark.parametrize("runs", [0, 1, 5])
def test_few_runs(runs: int) -> None:
    assert Shrinker(OP, lambda _one: True, runs).shrink(call(Tensor("float32", (8,)))).call
