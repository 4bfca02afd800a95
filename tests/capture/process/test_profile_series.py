"""What a profile keeps of a series of looks: bounded, with its peak, and with marks that add up."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from necropsy.capture.process.held_arrays import Running
from necropsy.capture.process.profile_series import MOST_POINTS, MarkRecorder, ThinnedSeries
from necropsy.model import HeldArray, ProfileMark, PythonPlace, ResourceUse

MIB = 1 << 20


@given(st.lists(st.integers(0, 1000), max_size=1500))
def test_a_series_is_bounded_and_keeps_its_peak_and_its_end(sizes: list[int]) -> None:
    series: ThinnedSeries[ResourceUse] = ThinnedSeries()
    for at, rss in enumerate(sizes):
        series.add(ResourceUse(at=at, rss=rss))
    whole = series.whole()
    assert len(whole) <= MOST_POINTS
    assert [one.at for one in whole] == sorted(one.at for one in whole)
    assert max((one.rss or 0 for one in whole), default=0) == max(sizes, default=0)
    if len(sizes) < MOST_POINTS:
        assert [one.rss for one in whole] == sizes


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(1, 40), st.sampled_from([None, 1, 2])), max_size=300))
def test_marks_are_few_and_no_more_than_what_rose(looks: list[tuple[int, int, int | None]]) -> None:
    line: list[int | None] = [None]
    recorder = MarkRecorder(lambda _: Running(PythonPlace(line=line[0])) if line[0] is not None else None)
    for at, (mib, threads, number) in enumerate(looks):
        line[0] = number
        recorder.look(ResourceUse(at=at, rss=mib * MIB, threads=threads))
    found = list(recorder.whole())
    rises = sum(max(after[0] - before[0], 0) for before, after in itertools.pairwise(looks))
    steps = [one for one in found if one.kind == "step"]
    assert len(found) <= 21
    assert sum(one.bytes or 0 for one in steps) <= rises * MIB
    peaks = [one for one in found if one.kind == "peak"]
    assert [one.bytes for one in peaks] == ([max(mib for mib, _, _ in looks) * MIB] if looks else [])


def test_the_line_after_a_rise_does_not_get_its_rest() -> None:
    lines = [1, 4, 5, 6, 8, 8, 9]
    place: list[PythonPlace] = []
    recorder = MarkRecorder(lambda _: Running(place[-1]))
    for at, mib in enumerate([10, 60, 110, 110, 160, 210, 210]):
        place.append(PythonPlace(line=lines[at]))
        recorder.look(ResourceUse(at=at, rss=mib * MIB))
    steps = [one for one in recorder.whole() if one.kind == "step"]
    assert sorted(steps, key=lambda one: one.at) == [
        ProfileMark(at=2, kind="step", bytes=100 * MIB, python=PythonPlace(line=4)),
        ProfileMark(at=5, kind="step", bytes=100 * MIB, python=PythonPlace(line=8)),
    ]


LOAD, OTHER = "load", "main"
BATCH = HeldArray(name="batch", type="numpy.ndarray", dtype="float32", shape=(4, 3), bytes=48)
MADE = HeldArray(name="made", type="numpy.ndarray", dtype="float64", shape=(1000,), bytes=8000)


def steps_of(*looks: tuple[int, str, tuple[HeldArray, ...]]) -> list[ProfileMark]:
    """Of looks at what was resident (MiB), in which function, and with which arrays."""
    now: list[Running] = []
    recorder = MarkRecorder(lambda _: now[-1])
    for at, (mib, function, arrays) in enumerate(looks):
        now.append(Running(PythonPlace(function=function, line=at), arrays))
        recorder.look(ResourceUse(at=at, rss=mib * MIB))
    return [one for one in recorder.whole() if one.kind == "step"]


def test_a_rise_has_the_arrays_of_its_function_also_the_one_that_the_line_made() -> None:
    (step,) = steps_of((10, LOAD, ()), (60, LOAD, (BATCH,)), (60, LOAD, (MADE, BATCH)), (60, LOAD, (BATCH,)))
    assert step.arrays == (MADE, BATCH)
    (step,) = steps_of((10, LOAD, ()), (60, LOAD, (BATCH,)), (110, LOAD, (MADE, BATCH)), (110, OTHER, ()))
    assert step.arrays == (MADE, BATCH)


def test_a_rise_has_no_arrays_of_another_function() -> None:
    (step,) = steps_of((10, LOAD, ()), (60, LOAD, (BATCH,)), (60, OTHER, (MADE,)))
    assert step.arrays == (BATCH,)
    (step,) = steps_of((10, LOAD, ()), (60, LOAD, (BATCH,)), (110, OTHER, (MADE,)), (110, OTHER, ()))
    assert step.arrays == (BATCH,)


@pytest.mark.parametrize("looks", [(10, 60, 60), (10, 60, 60, 63, 63)])
def test_the_peak_has_the_arrays_of_the_rise_that_reached_it(looks: tuple[int, ...]) -> None:
    """Also where a small rest of the rise is seen for itself, as on a busy machine."""
    recorder = MarkRecorder(lambda with_arrays: Running(PythonPlace(function=LOAD), (BATCH,) if with_arrays else ()))
    for at, mib in enumerate(looks):
        recorder.look(ResourceUse(at=at, rss=mib * MIB))
    (peak,) = (one for one in recorder.whole() if one.kind == "peak")
    assert peak.arrays == (BATCH,)
