"""The pictures of a triage: what is drawn is what was counted, and nothing leaves its picture."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import triage_documents
from necropsy.model import BugGroup, DayCount, MergedFrame, MergedStack, Triage
from necropsy.reports import bug_pictures, fleet_pictures, treemap, trends


def bug(**fields: Any) -> BugGroup:
    return BugGroup(**{"id": "g1", "title": "t", "count": 1, **fields})


def on(*counts: int, **fields: Any) -> BugGroup:
    """A bug with these deaths a day, from the 1st of November on."""
    trend = tuple(DayCount(day=f"2026-11-{place + 1:02d}", count=count) for place, count in enumerate(counts) if count)
    return bug(trend=trend, count=sum(counts), first=trend[0].day if trend else None, **fields)


# ---------------------------------------------------------------- over time


def test_a_bug_rises_when_a_week_has_twice_the_deaths_of_the_week_before() -> None:
    assert trends.rises([1, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0])
    assert not trends.rises([1, 1, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0]), "three after two"
    assert not trends.rises([0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 9, 9, 9, 9]), "a new one does not rise"
    assert not trends.rises([1] + [0] * 10 + [1, 1, 0]), "two deaths are not a rise"
    assert not trends.rises([])


def test_a_rise_is_marked_on_the_day_on_which_it_begins() -> None:
    assert trends.rising_on([1] + [0] * 13 + [2, 2, 2, 2] + [0] * 9) == [15]
    assert trends.rising_on([1] * 30) == []


def test_the_timeline_says_when_bugs_were_new_rising_and_closed() -> None:
    first = on(*[1] * 14, *[4] * 6)
    second = on(0, 0, 5, closed_at="2026-11-10T10:00:00Z", status="closed", title="second")
    drawn = fleet_pictures.timeline(Triage(groups=(first, second)))
    assert drawn is not None
    assert (len(drawn.bars), drawn.top) == (20, 6)
    lanes = {name: [event.title for event in events] for name, events in drawn.lanes}
    assert lanes["new"] == ["2026-11-01: t", "2026-11-03: second"]
    assert lanes["closed"] == ["2026-11-10: second"]
    assert [one.partition(":")[0] for one in lanes["rising"]] == ["2026-11-17"]
    assert [(colour, round(top, 2), round(high, 2)) for colour, top, high in drawn.bars[2].parts] == [
        (0, 83.33, 16.67),
        (1, 0.0, 83.33),
    ]


def test_without_a_time_there_is_no_timeline() -> None:
    assert fleet_pictures.timeline(Triage(groups=(bug(),))) is None
    assert fleet_pictures.timeline(Triage(groups=(on(5),))) is None, "a single day"
    assert fleet_pictures.timeline(Triage(groups=(bug(trend=(DayCount(day="soon", count=1),)),))) is None


@pytest.mark.parametrize("days", ["0001-01-01", "1970-01-01", "2020-02-29"])
def test_a_wrong_clock_does_not_make_a_picture_of_centuries(days: str) -> None:
    group = bug(trend=(DayCount(day=days, count=1), DayCount(day="9999-12-31", count=2)), first=days)
    drawn = fleet_pictures.timeline(Triage(groups=(group,)))
    assert drawn is not None
    assert len(drawn.bars) <= 60


@given(st.lists(st.integers(0, 50), max_size=200), st.integers(1, 60))
def test_sums_of_days_lose_nothing(counts: list[int], most: int) -> None:
    sums = bug_pictures.binned(counts, most)
    assert sum(sums) == sum(counts)
    assert len(sums) <= most
    for x, y in (point.split(",") for point in bug_pictures.spark(counts).split()):
        assert 0 <= float(x) <= bug_pictures.SPARK_WIDTH
        assert 0 <= float(y) <= bug_pictures.SPARK_HEIGHT


# ---------------------------------------------------------------- hosts, versions, libraries


def test_a_bad_machine_is_a_dark_row_and_is_named() -> None:
    triage = triage_documents.document(60, 2000).triage
    assert triage is not None
    heat = fleet_pictures.heat_map(triage)
    assert heat is not None
    assert [row.name for row in heat.rows if row.outstanding] == [triage_documents.BAD_HOST]
    assert heat.said.startswith(f"{triage_documents.BAD_HOST} has ")
    bad, *others = heat.rows
    dark = [sum(shade >= 4 for _, shade, _ in row.cells) for row in (bad, *others)]
    assert dark[0] > 5
    assert max(dark[1:]) == 0


def test_one_host_is_no_heat_map_and_a_bug_with_few_deaths_is_pale() -> None:
    assert fleet_pictures.heat_map(Triage(groups=(bug(hosts={"a": 5}),))) is None
    heat = fleet_pictures.heat_map(Triage(groups=(bug(hosts={"a": 1}), bug(hosts={"b": 10}, count=10))))
    assert heat is not None
    assert [(row.name, row.cells[0][1]) for row in heat.rows] == [("b", 5), ("a", 2)]


def test_versions_are_in_the_order_of_versions() -> None:
    used = {"1.10": 3, "1.9": 2, "1.10rc1": 1, "git-abc": 1, "2.0": 4}
    (table,) = fleet_pictures.versions(Triage(groups=(bug(versions={"rows": used, "numpy": {"2.1": 1}}),)))
    assert (table.library, table.versions) == ("rows", ("git-abc", "1.9", "1.10rc1", "1.10", "2.0"))
    assert [count for count, _ in table.rows[0][1]] == [1, 2, 1, 3, 4]


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=60), st.floats(0.2, 5))
def test_a_treemap_fills_its_picture_without_overlaps(values: list[int], ratio: float) -> None:
    values.sort(reverse=True)
    places = treemap.squarified(values, ratio=ratio)
    assert len(places) == len(values)
    for value, place in zip(values, places, strict=True):
        assert place.width * place.height == pytest.approx(10_000 * value / sum(values), rel=1e-6)
        assert -1e-6 <= place.x <= place.x + place.width <= 100 + 1e-6
        assert -1e-6 <= place.y <= place.y + place.height <= 100 + 1e-6
    for one, other in itertools.combinations(places[:20], 2):
        across = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
        down = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
        assert min(across, down) < 1e-6


def test_libraries_and_bugs_without_one() -> None:
    triage = triage_documents.document(60, 2000).triage
    assert triage is not None
    areas = fleet_pictures.modules(triage)
    assert sum(area.deaths for area in areas) == 2000
    assert fleet_pictures.module_of(bug()) == "unknown"
    assert treemap.squarified([]) == []
    assert fleet_pictures.modules(Triage(groups=(bug(),))) == []


# ---------------------------------------------------------------- one bug


def test_the_flame_graph_marks_what_all_stacks_share() -> None:
    inner, middle = MergedFrame(function="dot", module="rows.so"), MergedFrame(function="score", module="rows.so")
    line = MergedFrame(function="main", line="train.py:7", python=True)
    stacks = (MergedStack(count=3, frames=(inner, middle, line)), MergedStack(count=1, frames=(inner, line)))
    drawn = bug_pictures.flame(bug(stacks=stacks))
    assert drawn is not None
    assert [(cell.name, cell.row, cell.width, cell.marked) for cell in drawn.cells] == [
        ("dot, rows.so", 0, 100.0, True),
        ("score, rows.so", 1, 75.0, False),
        ("main, train.py:7", 2, 75.0, True),
        ("main, train.py:7", 1, 25.0, True),
    ]
    assert drawn.cells[0].title == "dot, rows.so: 4 deaths"
    assert [cell.python for cell in drawn.cells] == [False, False, True, True]


def test_of_too_many_cells_the_widest_are_kept_with_what_is_above_them() -> None:
    stacks = tuple(
        MergedStack(count=count, frames=tuple(MergedFrame(function=f"{count}-{depth}") for depth in range(5)))
        for count in range(1, 9)
    )
    drawn = bug_pictures.flame(bug(stacks=stacks), 12)
    assert drawn is not None
    assert [cell.name for cell in drawn.cells] == [f"{count}-{depth}" for count in (8, 7) for depth in range(5)] + [
        "6-0",
        "6-1",
    ]
    assert drawn.rows == 5


def test_without_stacks_there_is_no_flame_graph() -> None:
    assert bug_pictures.flame(bug()) is None
    assert bug_pictures.flame(bug(stacks=(MergedStack(count=0, frames=(MergedFrame(function="f"),)),))) is None
    assert bug_pictures.flame(msgspec.structs.replace(bug(), stacks=(MergedStack(count=1, frames=()),))) is None
