from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.formats.fold import FEWEST_TIMES, LONGEST_BREAK, LONGEST_PERIOD, MOST_RUNS, Folder, RepeatedRun, fold

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


# ---------------------------------------------------------------- fed in pieces

REPEATED = re.compile(rf"(.{{1,{LONGEST_PERIOD}}}?)\1{{{FEWEST_TIMES - 1}}}", re.DOTALL)


def by_definition(text: str) -> list[tuple[int, int, int, int]]:
    """Start, period, times and frames of each run: the leftmost piece that repeats, the shortest one there, and so on."""
    runs: list[tuple[int, int, int, int]] = []
    at = 0
    while (match := REPEATED.search(text, at)) is not None:
        start, period = match.start(), len(match[1])
        at = match.end()
        while at < len(text) and text[at] == text[at - period]:
            at += 1
        run = (start, period, (at - start) // period, at - start)
        if runs:
            first, before, times, frames = runs[-1]
            near = start - first - frames <= LONGEST_BREAK and before == period
            if near and text[start : start + period] in text[first : first + period] * 2:
                run = (first, period, times + run[2], at - first)
                runs.pop()
        runs.append(run)
    return sorted(runs, key=lambda run: (-run[3], run[0]))[:MOST_RUNS]


def told(runs: tuple[RepeatedRun, ...]) -> list[tuple[int, int, int, int]]:
    return [(run.start, run.period, run.times, run.frames) for run in runs]


PIECES = st.lists(
    st.tuples(st.text("abcz", min_size=1, max_size=70), st.sampled_from((1, 2, 4, 5, 30))), min_size=1, max_size=6
)


@given(PIECES, st.integers(1, 400))
def test_folds_are_what_they_are_defined_to_be_however_they_are_fed(pieces: list[tuple[str, int]], size: int) -> None:
    text = "".join(piece * times for piece, times in pieces)
    pointers = [at * 16 for at in range(len(text))]
    folder = Folder()
    for at in range(0, len(text), size):
        folder.feed(text[at : at + size], pointers[at : at + size])
    assert told(folder.runs()) == by_definition(text)
    assert told(fold(text)) == by_definition(text)


@given(UNIT, st.integers(1, 1000), OTHER)
def test_what_is_told_to_repeat_counts_as_if_it_had_been_fed(unit: list[str], times: int, bottom: list[str]) -> None:
    text, end = "".join(unit), "".join(bottom)
    seen = text * (2048 // len(text) + 8)
    size = 24 * len(text)
    whole = seen + text * times + end
    pointers = [at * 24 for at in range(len(whole))]
    folder = Folder()
    folder.feed(seen, pointers[: len(seen)])
    assert folder.goes_on(len(text))
    folder.repeat(len(text), times, size)
    folder.feed(end, pointers[len(whole) - len(end) :])
    expected = Folder()
    expected.feed(whole, pointers)
    assert folder.runs() == expected.runs()
