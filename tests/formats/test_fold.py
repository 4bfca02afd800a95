from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.formats.fold import FEWEST_TIMES, LONGEST_PERIOD, fold

UNIT = st.lists(st.sampled_from(string.ascii_lowercase), min_size=1, max_size=12, unique=True)
OTHER = st.lists(st.sampled_from(string.ascii_uppercase), max_size=30, unique=True)


def test_direct_recursion_has_period_one() -> None:
    (run,) = fold(["malloc", *["f"] * 1000, "main"])
    assert (run.start, run.period, run.times, run.frames) == (1, 1, 1000, 1000)


def test_a_b_a_b_is_one_recursion_of_period_two() -> None:
    (run,) = fold(["a", "b"] * 500)
    assert (run.period, run.times) == (2, 500)


def test_what_differs_does_not_fold() -> None:
    assert fold([f"f{number}" for number in range(5000)]) == ()
    assert fold([]) == ()
    assert fold(["f"] * (FEWEST_TIMES - 1)) == ()


@given(UNIT, st.integers(FEWEST_TIMES, 400), OTHER, OTHER)
def test_every_period_is_found_wherever_it_stands(
    unit: list[str], times: int, top: list[str], bottom: list[str]
) -> None:
    (run,) = fold([*top, *unit * times, *bottom])
    assert (run.start, run.period, run.times, run.frames) == (len(top), len(unit), times, len(unit) * times)


@given(st.lists(st.sampled_from("ab"), max_size=300))
def test_runs_lie_inside_the_stack_and_do_repeat(names: list[str]) -> None:
    for run in fold(names, list(range(len(names)))):
        assert run.start >= 0
        assert run.start + run.frames <= len(names)
        assert run.frames >= run.period * run.times - run.period
        assert 1 <= run.period <= LONGEST_PERIOD


@given(UNIT, st.lists(st.integers(8, 4096).map(lambda n: n * 8), min_size=12, max_size=12), st.integers(5, 100))
def test_bytes_per_period_are_exact_for_equal_frames(unit: list[str], sizes: list[int], times: int) -> None:
    keys = [*unit * times, "main", "_start"]
    pointers = [0]
    for index in range(len(keys) - 1):
        pointers.append(pointers[-1] + sizes[index % len(unit)])
    (run,) = fold(keys, pointers)
    assert run.bytes_per_period == pytest.approx(sum(sizes[: len(unit)]), abs=1e-9)


def test_the_innermost_partial_period_does_not_blur_the_bytes() -> None:
    # b | a b | a b | ... : the stack died in the middle of a period
    keys = ["b", *["a", "b"] * 100, "main"]
    pointers = [0, 100]
    for _ in range(100):
        pointers += [pointers[-1] + 48, pointers[-1] + 48 + 112]
    (run,) = fold(keys, pointers)
    assert run.bytes_per_period == 160.0


def test_a_short_interruption_does_not_end_a_recursion() -> None:
    keys = [*["f", "g"] * 400, "gc_collect", "visit", *["f", "g"] * 300, "main"]
    (run,) = fold(keys)
    assert (run.period, run.times, run.frames) == (2, 700, 1402)


def test_two_recursions_come_with_the_larger_first() -> None:
    first, second = fold([*["f"] * 50, "x", *["g", "h"] * 500])
    assert (first.period, first.times) == (2, 500)
    assert (second.period, second.times) == (1, 50)


def test_half_a_million_frames_without_any_period_are_no_trouble() -> None:
    # The n-th bit count modulo 2 (Thue and Morse) never repeats a piece three times in a row.
    names = [number.bit_count() % 2 for number in range(1 << 17)]
    assert fold(names) == ()
