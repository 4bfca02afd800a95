"""The icicle of allocations: widths are bytes, and what all have in common is not drawn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from profile_examples import HEAP, MIB

from necropsy.model import HeapFrame, HeapStack
from necropsy.reports import icicle


def test_widths_are_bytes_and_the_common_calls_are_named_only() -> None:
    drawn = icicle.draw(HEAP.stacks)
    assert drawn is not None
    assert drawn.above == ("<module>, train.py:40",)
    assert drawn.octets == 291 * MIB
    first, *below = drawn.cells
    assert (first.name, first.x, first.width, first.row) == ("load, train.py:17", 0.0, 100.0, 0)
    assert [(cell.name, cell.row, cell.python) for cell in below] == [
        ("ones, numeric.py:191", 1, True),
        ("PyArray_NewFromDescr", 2, False),
        ("PyArray_NewFromDescr", 1, False),
    ]
    assert round(below[0].width, 3) == round(100 * 200 / 291, 3)
    assert below[2].x == below[0].width
    assert first.title == "load, train.py:17: 291 MiB, 81 allocations"
    assert drawn.rows == 3


def test_without_stacks_there_is_no_picture() -> None:
    assert icicle.draw(()) is None
    assert icicle.draw((HeapStack(bytes=0, count=0, frames=(HeapFrame(function="f"),)),)) is None
    assert icicle.draw((HeapStack(bytes=5, count=1, frames=()),)) is None


FRAMES = st.lists(st.integers(0, 4).map(lambda n: HeapFrame(function=f"f{n}")), max_size=40)


@given(st.lists(st.tuples(st.integers(0, 1 << 40), FRAMES), max_size=12))
def test_cells_lie_within_the_picture_and_do_not_overlap(rows: list[tuple[int, list[HeapFrame]]]) -> None:
    drawn = icicle.draw([HeapStack(bytes=size, count=1, frames=tuple(frames)) for size, frames in rows])
    if drawn is None:
        return
    for row in range(drawn.rows):
        cells = sorted((cell for cell in drawn.cells if cell.row == row), key=lambda cell: cell.x)
        assert cells
        end = 0.0
        for cell in cells:
            assert cell.x >= end - 1e-6
            end = cell.x + cell.width
        assert end <= 100 + 1e-6
