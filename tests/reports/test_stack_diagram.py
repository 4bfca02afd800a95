"""The drawing of a stack is to scale."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from html_page import Page
from hypothesis import given, settings
from hypothesis import strategies as st
from report_examples import thread_of, with_thread

from necropsy.model import Crash, Fold, Report, Stack, Thread
from necropsy.reports import html, stack_diagram


def test_heights_are_to_scale_and_the_newest_call_is_at_the_bottom() -> None:
    drawing = stack_diagram.draw(thread_of(1000, 3000, 6000, used=10_000))
    assert drawing is not None
    assert [block.name for block in drawing.blocks] == ["f2", "f1", "f0"]
    assert [round(block.height / drawing.height, 3) for block in drawing.blocks] == [0.6, 0.3, 0.1]
    assert [round(block.y / drawing.height, 3) for block in drawing.blocks] == [0, 0.6, 0.9]
    assert drawing.used_height == pytest.approx(drawing.height * 10_000 / (1 << 20), abs=1)
    assert drawing.magnified == pytest.approx((1 << 20) / 10_000)


def test_a_recursion_is_one_block() -> None:
    fold = Fold(period=2, times=1000, functions=("a", "b"), bytes_per_period=80.0, start=1)
    drawing = stack_diagram.draw(thread_of(20_000, used=100_000, folds=(fold,), guard=True))
    assert drawing is not None
    block = drawing.blocks[0]
    assert (block.kind, block.name, block.octets, block.count) == ("fold", "a > b", 80_000, 2000)
    assert block.detail == "\N{MULTIPLICATION SIGN} 1,000, 80 B each"
    assert drawing.full
    assert drawing.used_height == drawing.height


def test_many_small_calls_are_one_block() -> None:
    drawing = stack_diagram.draw(thread_of(*[100] * 200, 50_000, used=70_000))
    assert drawing is not None
    assert [(block.kind, block.count, block.octets) for block in drawing.blocks] == [
        ("frame", 1, 50_000),
        ("group", 200, 20_000),
    ]


def test_what_is_not_known_is_said() -> None:
    drawing = stack_diagram.draw(thread_of(1000, used=10_000))
    assert drawing is not None
    assert [(block.kind, block.octets) for block in drawing.blocks] == [("unknown", 9000), ("frame", 1000)]
    assert stack_diagram.draw(Thread(tid=1)) is None
    assert stack_diagram.draw(Thread(tid=1, stack=Stack(size=1 << 20))) is None


def test_a_stack_that_was_not_read_to_its_end_says_about_how_many_frames_it_has() -> None:
    """In the drawing, below its calls, and where it is one of the other threads."""
    estimate = "about 12,000,000 frames (estimated)"
    thread = msgspec.structs.replace(
        thread_of(1000, 700_000, used=900_000), complete=False, frames_total=1_500_000, frames_estimate=12_000_000
    )
    page = Page(html.render(with_thread(thread))).text
    assert page.count(estimate) == 3, "in the drawing, in its words for narrow screens, and below the calls"
    assert "frames that could not be read" in page
    assert f"the stack has {estimate}; 1,500,000 of them were read" in page
    other = msgspec.structs.replace(thread, tid=2, crashed=False, stack=None)
    crash = Crash(pid=1, threads=(Thread(tid=1, crashed=True, frames=thread.frames), other))
    assert f"in f0, {estimate}" in Page(html.render(Report(pid=1, crash=crash))).text
    unknown = msgspec.structs.replace(thread, frames_estimate=None)
    assert "the rest of the stack could not be read" in html.render(with_thread(unknown))
    assert "(estimated)" not in html.render(with_thread(unknown))


@given(
    st.lists(st.integers(0, 1 << 20), max_size=60),
    st.integers(2000, 1 << 24),
    st.lists(st.tuples(st.integers(0, 80), st.integers(1, 4), st.integers(1, 1000), st.floats(0, 1e6)), max_size=3),
)
@settings(max_examples=200)
def test_blocks_fill_the_bar_and_labels_keep_clear(
    octets: list[int], used: int, folds: list[tuple[int, int, int, float]]
) -> None:
    made = tuple(
        Fold(period=period, times=times, functions=("x",) * period, bytes_per_period=each, start=start)
        for start, period, times, each in folds
    )
    drawing = stack_diagram.draw(thread_of(*octets, used=used, folds=made))
    assert drawing is not None
    total = sum(block.height for block in drawing.blocks)
    assert total <= drawing.height * 1.0001
    assert total >= drawing.height * 0.98
    labels = [block.label_y for block in drawing.blocks]
    assert all(b - a >= 37.9 for a, b in itertools.pairwise(labels))
    assert all(0 <= y <= drawing.labels_height for y in labels)
