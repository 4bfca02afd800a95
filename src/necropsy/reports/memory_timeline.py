"""The memory of a process over time, as areas and lines in a picture of ``WIDTH`` by ``HEIGHT``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from necropsy.model import Process, ProfileMark, ResourceUse
from necropsy.reports import heap
from necropsy.reports.terminal import size

WIDTH, HEIGHT = 1000.0, 1000.0
_KINDS = (("anonymous", "anonymous: heap, stacks"), ("file", "mapped files"), ("shared", "shared memory"))
_LIMITS: tuple[tuple[str, str, Callable[[ResourceUse], int | None]], ...] = (
    ("memory.max", "control group", lambda one: one.group),
    ("RLIMIT_AS", "address space", lambda one: one.address_space),
    ("RLIMIT_DATA", "data", lambda one: one.data),
)
"""The limits on memory: their names, what counts towards them, and how much that was at one time."""
_REACH = 4
"""A limit is drawn if it is at most so many times the peak: above, the memory would be a line on the ground."""
_FLAGS, _STEP = 6, 0.05
"""Marks of each kind that are shown, and the share of the peak from which on a rise is one."""


@dataclass(frozen=True)
class Area:
    """One kind of memory, on top of those before it; ``points`` as SVG has them."""

    kind: str
    name: str
    peak: int
    points: str


@dataclass(frozen=True)
class LimitLine:
    """A limit on memory. ``y``: None where it lies far above the picture; ``points``: what counts towards it."""

    name: str
    what: str
    octets: int
    y: float | None
    points: str


@dataclass(frozen=True)
class Tick:
    """A mark on an axis, at per cent of it."""

    at: float
    text: str


@dataclass(frozen=True)
class Flag:
    """Something that happened, by its number in the picture; numbers close to each other are in different ``row``."""

    number: int
    at: float
    row: int
    text: str
    place: str
    arrays: str


@dataclass(frozen=True)
class Timeline:
    """``peak``: of resident memory in the picture, ``peak_at`` in seconds.

    ``python``: for each look at which it was read, how much of the memory was for small Python objects, as a line.
    """

    areas: tuple[Area, ...]
    limits: tuple[LimitLine, ...]
    levels: tuple[Tick, ...]
    times: tuple[Tick, ...]
    peak: int
    peak_at: float
    flags: tuple[Flag, ...]
    children: str
    python: str
    python_peak: int


def draw(process: Process) -> Timeline | None:
    """The picture; None where memory was not read at two different times."""
    looks = [one for one in process.memory or () if one.rss is not None]
    if len(looks) < 2 or looks[-1].at <= looks[0].at:
        return None
    start, seconds = looks[0].at, looks[-1].at - looks[0].at
    high = max(looks, key=lambda one: one.rss or 0)
    peak = max(high.rss or 0, 1)
    set_limits = {one.name: one.limit for one in process.limits or ()}
    drawn = [set_limits[name] for name, _, _ in _LIMITS if name in set_limits and set_limits[name] <= _REACH * peak]
    top = _rounded_up(1.05 * max(peak, *drawn) if drawn else 1.05 * peak)

    def x(one: ResourceUse) -> float:
        return (one.at - start) / seconds * WIDTH

    def y(octets: float) -> float:
        return HEIGHT * (1 - min(octets, top) / top)

    return Timeline(
        areas=tuple(_areas(looks, x, y)),
        limits=tuple(
            LimitLine(
                name,
                what,
                set_limits[name],
                y(set_limits[name]) if set_limits[name] <= top else None,
                _line([(x(one), y(used)) for one in looks if (used := use(one)) is not None]),
            )
            for name, what, use in _LIMITS
            if name in set_limits
        ),
        levels=tuple(Tick(100 * (1 - octets / top), size(octets)) for octets in _levels(top)),
        times=tuple(Tick(100 * (at - start) / seconds, f"{at:g} s") for at in _times(start, seconds)),
        peak=peak,
        peak_at=high.at,
        flags=tuple(_flags(process, peak, lambda at: 100 * (at - start) / seconds)),
        children=_children(process),
        python=_line([(x(one), y(one.python_heap)) for one in looks if one.python_heap is not None]),
        python_peak=max((one.python_heap or 0 for one in looks), default=0),
    )


def _flags(process: Process, peak: int, place: Callable[[float], float]) -> list[Flag]:
    """The largest rises and jumps in the number of threads, by time."""
    marks = process.marks or ()
    steps = [one for one in marks if one.kind == "step" and (one.bytes or 0) >= _STEP * peak]
    shown = sorted(steps, key=lambda one: one.bytes or 0, reverse=True)[:_FLAGS]
    shown += [one for one in marks if one.kind == "threads"][:_FLAGS]
    shown.sort(key=lambda one: one.at)
    return [
        Flag(
            number,
            min(max(place(one.at), 0.0), 100.0),
            number % 2,
            f"{one.at:.1f} s: {f'+{size(one.bytes or 0)}' if one.kind == 'step' else f'{one.count} threads'}",
            _line_of(one),
            heap.held_in_words(one.arrays),
        )
        for number, one in enumerate(shown, start=1)
    ]


def _line_of(mark: ProfileMark) -> str:
    line = mark.python
    if line is None or line.file is None:
        return ""
    return f"{line.file}:{line.line}{f' in {line.function}' if line.function else ''}"


def _children(process: Process) -> str:
    times = [one.at for one in process.marks or () if one.kind == "child"]
    if not times:
        return ""
    if len(times) == 1:
        return f"It started a child process at {times[0]:.1f} s."
    return f"It started {len(times)} child processes between {min(times):.1f} and {max(times):.1f} s."


def _areas(looks: Sequence[ResourceUse], x: Callable[[ResourceUse], float], y: Callable[[float], float]) -> list[Area]:
    """Stacked; where the kinds were not told apart, resident memory as one area."""
    told_apart = all(one.anonymous is not None for one in looks)
    kinds = _KINDS if told_apart else (("rss", "resident memory"),)
    areas: list[Area] = []
    below = [0.0] * len(looks)
    for kind, name in kinds:
        values = [getattr(one, kind) or 0 for one in looks]
        if not any(values):
            continue
        above = [low + value for low, value in zip(below, values, strict=True)]
        upper = [(x(one), y(value)) for one, value in zip(looks, above, strict=True)]
        lower = [(x(one), y(value)) for one, value in zip(looks, below, strict=True)]
        areas.append(Area(kind, name, max(values), _line([*upper, *reversed(lower)])))
        below = above
    return areas


def _line(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _rounded_up(octets: float) -> float:
    """To a quarter of a power of two, so that the levels are round numbers."""
    unit = 2.0 ** (math.floor(math.log2(octets)) - 2)
    return math.ceil(octets / unit) * unit


def _levels(top: float) -> list[float]:
    step = 2.0 ** math.floor(math.log2(top / 3))
    return [step * number for number in range(1, int(top / step) + 1) if step * number < top]


def _times(start: float, seconds: float) -> list[float]:
    raw = seconds / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= raw * 0.8)
    first, last = math.ceil(start / step), math.floor((start + seconds) / step)
    return [round(step * number, 6) for number in range(first, last + 1)]
