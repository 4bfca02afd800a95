"""A copy of parts of a memory reads as the memory did."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from necropsy.capture.process.memory import PAGE, Memory, MemoryCopy

BASE = 16 * PAGE
PAGES = 6


class Holed(Memory):
    """Some pages from ``BASE`` on, each full of its own number."""

    def __init__(self, mapped: frozenset[int]) -> None:
        self.mapped = mapped

    def some(self, address: int, size: int) -> bytes:
        found = bytearray()
        while len(found) < size and (page := (address + len(found) - BASE) // PAGE) in self.mapped:
            end = BASE + (page + 1) * PAGE
            found += bytes([page + 1]) * min(end - address - len(found), size - len(found))
        return bytes(found)


@given(
    st.frozensets(st.integers(0, PAGES - 1)),
    st.integers(BASE, BASE + 2 * PAGE),
    st.integers(0, 3 * PAGE),
    st.integers(BASE - 1, BASE + PAGES * PAGE),
    st.integers(-1, PAGE + 1),
)
def test_what_was_copied_reads_the_same(mapped: frozenset[int], low: int, length: int, address: int, size: int) -> None:
    inner = Holed(mapped)
    copy = MemoryCopy(inner, [(low, low + length)])
    read = copy.some(address, size)
    inside = max(0, min(low + length, address + size) - address) if address >= low else 0
    assert read == inner.some(address, inside)


def test_ranges_apart_are_both_there() -> None:
    copy = MemoryCopy(Holed(frozenset(range(PAGES))), [(BASE + 8, BASE + 16), (BASE + PAGE, BASE + PAGE + 4)])
    assert copy.some(BASE + 8, 100) == b"\1" * 8
    assert copy.some(BASE + PAGE, 100) == b"\2" * 4
    assert copy.some(BASE + 16, 1) == copy.some(BASE, 1) == b""
