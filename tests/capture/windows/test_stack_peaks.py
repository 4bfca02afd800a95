"""Stack peaks from a thread's own block and the committed range, as Windows lays a stack out, and as wine does."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st
from made import Pieces

from necropsy.capture.windows import stack_peaks
from necropsy.formats.minidump_records import COMMITTED, GUARD, RESERVED, MemoryInfo
from necropsy.model import StackUse

PAGE, LOW, HIGH, TEB = 4096, 0x1000000, 0x1100000, 0x7000
READ_WRITE = 4


class Layout:
    """Reserved memory, guard pages and committed memory from ``LOW`` to ``HIGH``."""

    def __init__(self, guard: int, committed: int) -> None:
        edges = (
            (LOW, guard, RESERVED, 0),
            (guard, committed, COMMITTED, READ_WRITE | GUARD),
            (committed, HIGH, COMMITTED, READ_WRITE),
        )
        self.pieces = [
            MemoryInfo(low, LOW, READ_WRITE, high - low, state, protect, 0x20000) for low, high, state, protect in edges
        ]

    def at(self, address: int) -> MemoryInfo | None:
        return next((one for one in self.pieces if one.base <= address < one.base + one.size), None)


def block(base: int, limit: int, low: int) -> dict[int, bytes]:
    """The thread's own block, where these words are."""
    return {TEB + 8: struct.pack("<QQ", base, limit), TEB + 0x1478: struct.pack("<Q", low)}


@given(st.integers(3, 255))
def test_the_committed_range_is_what_was_used(pages: int) -> None:
    committed = HIGH - pages * PAGE
    layout = Layout(committed - 2 * PAGE, committed)
    memory = Pieces(block(HIGH, committed, LOW))
    found = stack_peaks.range_of(TEB, memory, layout)
    assert found is not None
    use = stack_peaks.use_of(7, "main", found, found.committed)
    assert use == StackUse(tid=7, name="main", size=HIGH - LOW, peak=pages * PAGE, guard=2 * PAGE)


@given(st.integers(0, HIGH - LOW - 1), st.none() | st.integers(LOW + 1, HIGH))
def test_the_lowest_byte_that_was_written_is_on_the_lowest_page(at: int, until: int | None) -> None:
    data = bytearray(HIGH - LOW)
    data[at] = data[-1] = 1
    stack = stack_peaks.StackRange(LOW, LOW, HIGH, None)
    found = stack_peaks.lowest_written(stack, Pieces({LOW: bytes(data)}), until)
    assert found == (LOW + at // PAGE * PAGE if until is None or LOW + at < until else None)


def test_a_block_that_cannot_be_is_no_stack() -> None:
    for base, limit, low in ((0, 0, 0), (HIGH, LOW, HIGH), (LOW, HIGH, LOW), (1 << 60, LOW, LOW)):
        assert stack_peaks.range_of(TEB, Pieces(block(base, limit, low))) is None
    assert stack_peaks.range_of(TEB, Pieces()) is None
    assert stack_peaks.use_of(7, None, None, None) == StackUse(tid=7)
