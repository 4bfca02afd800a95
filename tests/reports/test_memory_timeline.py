"""The picture of memory over time: areas on top of each other, limits where they can be drawn, round numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from profile_examples import LOOKS, MARKS, MIB, process

from necropsy.model import Limit, ResourceUse
from necropsy.reports import memory_timeline
from necropsy.reports.memory_timeline import HEIGHT, WIDTH


def points(text: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in (pair.split(",") for pair in text.split())]


def test_areas_lie_on_top_of_each_other_and_reach_the_resident_memory() -> None:
    drawn = memory_timeline.draw(process(memory=LOOKS))
    assert drawn is not None
    assert [area.kind for area in drawn.areas] == ["anonymous", "file"], "there was no shared memory"
    low, high = (points(area.points) for area in drawn.areas)
    assert low[: len(LOOKS)] == high[len(LOOKS) :][::-1], "the second begins where the first ends"
    assert (drawn.peak, drawn.peak_at) == (300 * MIB, 2.0)
    assert min(y for _, y in high) > 0
    assert [tick.text for tick in drawn.levels] == ["64 MiB", "128 MiB", "192 MiB", "256 MiB"]
    assert [tick.text for tick in drawn.times] == ["0.5 s", "1 s", "1.5 s", "2 s"]


def test_a_limit_is_drawn_with_what_counts_towards_it_unless_it_is_far_above() -> None:
    limits = (Limit(name="memory.max", limit=512 * MIB), Limit(name="RLIMIT_AS", limit=1 << 40))
    drawn = memory_timeline.draw(process(memory=LOOKS, limits=(*limits, Limit(name="RLIMIT_NOFILE", limit=9))))
    assert drawn is not None
    near, far = drawn.limits
    assert near.y is not None
    assert 0 <= near.y < min(y for _, y in points(near.points))
    assert (far.name, far.y, far.points) == ("RLIMIT_AS", None, "")


def test_where_kinds_were_not_told_apart_there_is_one_area() -> None:
    looks = (ResourceUse(at=0.0, rss=MIB), ResourceUse(at=1.0, rss=2 * MIB, anonymous=MIB))
    drawn = memory_timeline.draw(process(memory=looks))
    assert drawn is not None
    assert [area.name for area in drawn.areas] == ["resident memory"]


def test_what_happened_has_numbers_in_the_order_of_time() -> None:
    drawn = memory_timeline.draw(process(memory=LOOKS, marks=MARKS))
    assert drawn is not None
    assert [(flag.number, flag.text, flag.place) for flag in drawn.flags] == [
        (1, "0.5 s: 9 threads", ""),
        (2, "1.2 s: +90 MiB", "/srv/train.py:17 in load"),
    ], "a small rise has none"
    assert round(drawn.flags[1].at) == 58
    assert drawn.children == "It started a child process at 0.6 s."


def test_small_python_objects_are_a_line_through_the_looks_at_which_they_were_read() -> None:
    looks = [
        ResourceUse(at=at, rss=8 * MIB, python_heap=heap) for at, heap in enumerate([None, 2 * MIB, None, 4 * MIB])
    ]
    drawn = memory_timeline.draw(process(memory=looks))
    assert drawn is not None
    assert drawn.python_peak == 4 * MIB
    (x, y), (last, lower) = (map(float, one.split(",")) for one in drawn.python.split())
    assert (round(x), round(last)) == (333, 1000)
    assert lower < y < 1000
    unknown = memory_timeline.draw(process(memory=LOOKS))
    assert unknown is not None
    assert not unknown.python


def test_one_look_is_no_picture() -> None:
    assert memory_timeline.draw(process(memory=LOOKS[:1])) is None
    assert memory_timeline.draw(process(memory=(LOOKS[0], LOOKS[0]))) is None
    assert memory_timeline.draw(process()) is None


@given(
    st.lists(
        st.tuples(st.floats(0.001, 1e6), st.integers(0, 1 << 44), st.integers(0, 1 << 44)), min_size=2, max_size=30
    ),
    st.integers(1, 1 << 50),
)
def test_everything_is_within_the_picture(rows: list[tuple[float, int, int]], limit: int) -> None:
    looks, at = [], 0.0
    for step, anonymous, file in rows:
        at += step
        looks.append(ResourceUse(at=at, rss=anonymous + file, anonymous=anonymous, file=file, group=anonymous))
    one = Limit(name="memory.max", limit=limit)
    drawn = memory_timeline.draw(process(memory=tuple(looks), limits=(one,)))
    assert drawn is not None
    for text in (*(area.points for area in drawn.areas), *(line.points for line in drawn.limits)):
        assert all(-0.1 <= x <= WIDTH + 0.1 and -0.1 <= y <= HEIGHT + 0.1 for x, y in points(text))
    assert all(0 <= tick.at <= 100.001 for tick in (*drawn.levels, *drawn.times))
    assert len(drawn.levels) <= 8
    assert len(drawn.times) <= 12
