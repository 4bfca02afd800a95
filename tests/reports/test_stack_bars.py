"""The bars of a profile are to scale, and their blocks add up to the peak."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from profile_examples import EVAL, KIB, MAIN, MIB, PARSE, POOL, process

from necropsy.model import StackFunction, StackUse
from necropsy.reports import stack_bars


def test_blocks_are_to_scale_and_what_is_not_explained_is_one_of_them() -> None:
    (bar,) = stack_bars.draw(process(MAIN))
    assert [block.kind for block in bar.blocks] == ["function", "unknown"], "eval is too small for a block"
    assert bar.blocks[0].width == pytest.approx(100 * 40_000 * 128 / (8 * MIB))
    assert bar.blocks[1].x == bar.blocks[0].width
    assert sum(block.octets for block in bar.blocks) == 6 * MIB
    assert (bar.share, bar.left, bar.magnified) == (0.75, 2 * MIB, None)


def test_a_thread_whose_functions_are_not_known_says_so() -> None:
    (bar,) = stack_bars.draw(process(msgspec.structs.replace(MAIN, functions=None)))
    assert [block.name for block in bar.blocks] == ["used, by which functions is not known"]


def test_a_small_part_is_magnified() -> None:
    used = msgspec.structs.replace(MAIN, peak=128 * KIB, functions=(EVAL,))
    (bar,) = stack_bars.draw(process(used))
    assert bar.magnified is not None
    assert sum(block.width for block in bar.magnified) == pytest.approx(100)
    assert sum(block.width for block in bar.blocks) == pytest.approx(100 * 128 / 8192)


def test_a_pool_is_one_bar_and_a_thread_without_a_peak_none() -> None:
    bars = stack_bars.draw(process(*POOL, StackUse(tid=99, name="gone", size=MIB)))
    assert [(bar.name, bar.count, bar.stack.tid) for bar in bars] == [("tf_Compute", 10, 2)]


def test_the_stacks_of_other_systems_are_lines_within_the_bar() -> None:
    main, other = stack_bars.draw(process(MAIN, msgspec.structs.replace(POOL[0], peak=600 * KIB)))
    assert [line.where for line in main.elsewhere] == ["Windows, python.exe"], "the others' hold for other threads"
    assert main.elsewhere[0].exceeded
    assert [(line.row, line.octets, line.exceeded) for line in other.elsewhere] == [
        (0, 2_000_000, False),
        (1, 524_288, True),
        (2, 131_072, True),
    ]
    (small,) = stack_bars.draw(process(msgspec.structs.replace(MAIN, size=MIB, peak=4 * KIB)))
    assert small.elsewhere == ()


def test_without_a_limit_the_peak_is_the_whole() -> None:
    (bar,) = stack_bars.draw(process(msgspec.structs.replace(MAIN, size=None)))
    assert (bar.share, bar.left) == (None, None)
    assert sum(block.width for block in bar.blocks) == pytest.approx(100)


@given(
    st.integers(1, 1 << 34),
    st.integers(0, 1 << 34) | st.none(),
    st.lists(st.integers(0, 1 << 34), max_size=20) | st.none(),
)
def test_nothing_is_drawn_outside_the_bar(peak: int, size: int | None, rows: list[int] | None) -> None:
    functions = (
        None
        if rows is None
        else tuple(msgspec.structs.replace(PARSE, function=f"f{place}", bytes=one) for place, one in enumerate(rows))
    )
    (bar,) = stack_bars.draw(process(StackUse(tid=5, size=size, peak=peak, functions=functions)))
    for block in (*bar.blocks, *(bar.magnified or ())):
        assert 0 <= block.x <= 100
        assert block.width >= 0
        assert block.x + block.width <= 100 + 1e-6
        assert block.colour < stack_bars.MOST_BLOCKS
    assert all(0 <= line.x <= 100 for line in bar.elsewhere)


def test_rows_that_are_partial_are_marked() -> None:
    row = StackFunction(function=None, frame_bytes=MIB, times=2, bytes=2 * MIB, partial=True)
    (bar,) = stack_bars.draw(process(msgspec.structs.replace(MAIN, functions=(row,))))
    assert bar.blocks[0].name == "a function without a name"
    assert bar.blocks[0].detail.endswith("partial")
