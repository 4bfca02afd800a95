"""Call paths in small graphs are held against an exhaustive search."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from necropsy.audit.depth import CallDepths
from necropsy.formats.call_graph import FunctionCalls

SIZE = 6
edges = st.frozensets(st.tuples(st.integers(0, SIZE - 1), st.integers(0, SIZE - 1)), max_size=14)
frames = st.lists(st.integers(1, 100), min_size=SIZE, max_size=SIZE)


def depths(called: frozenset[tuple[int, int]], jumped: frozenset[tuple[int, int]], sizes: list[int]) -> CallDepths:
    graph = [
        FunctionCalls(
            called=tuple(sorted(to for one, to in called if one == at)),
            jumped=tuple(sorted(to for one, to in jumped if one == at)),
        )
        for at in range(SIZE)
    ]
    found = CallDepths(lambda one: sizes[one], lambda one: graph[one], most=100)
    found.reach(range(SIZE))
    return found


@given(edges, frames)
def test_the_deepest_path_of_a_graph_without_circles(pairs: frozenset[tuple[int, int]], sizes: list[int]) -> None:
    downwards = frozenset((one, to) for one, to in pairs if one < to)
    found = depths(downwards, frozenset(), sizes)

    def deepest(one: int) -> int:
        return sizes[one] + max((deepest(to) for start, to in downwards if start == one), default=0)

    bytes_, path = found.deepest(0)
    assert bytes_ == deepest(0) == sum(sizes[one] for one in path)
    assert all(pair in downwards for pair in pairwise(path))
    assert found.circles() == []


@given(edges, edges, frames)
def test_circles_are_circles_of_calls(
    called: frozenset[tuple[int, int]], jumped: frozenset[tuple[int, int]], sizes: list[int]
) -> None:
    found = depths(called, jumped, sizes)
    circles = found.circles()
    for one in circles:
        steps = list(zip(one, (*one[1:], one[0]), strict=True))
        assert all(step in called or step in jumped for step in steps)
        assert found.turn(one) == sum(sizes[start] for start, to in steps if (start, to) in called) > 0
        assert len(set(one)) == len(one)
    inside = {each for one in circles for each in one}
    for start, to in called:
        if start in found.below(to):
            assert any(each in inside for each in found.below(to)), "a function that can call itself"


@given(edges, edges, frames)
def test_the_path_ends_and_adds_up_in_any_graph(
    called: frozenset[tuple[int, int]], jumped: frozenset[tuple[int, int]], sizes: list[int]
) -> None:
    bytes_, path = depths(called, jumped, sizes).deepest(0)
    assert len(set(path)) == len(path)
    assert max(sizes[one] for one in path) <= bytes_ <= sum(sizes[one] for one in path)


def test_a_tail_call_gives_its_frame_back() -> None:
    found = depths(frozenset({(1, 2)}), frozenset({(0, 1)}), [100, 10, 20, 1, 1, 1])
    assert found.deepest(0)[0] == 100
    assert found.deepest(1) == (30, (1, 2))


def test_what_is_beyond_the_limit_is_not_looked_at() -> None:
    found = CallDepths(lambda _: 8, lambda one: FunctionCalls(called=(one + 1,)), most=5)
    found.reach([0])
    assert found.is_cut
    assert len(found.known) == 5
    assert found.deepest(0)[0] == 48
