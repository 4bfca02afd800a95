"""What a profile keeps of a process over time, on any system: a series of bounded length, and marks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from necropsy.capture.process.held_arrays import Running
from necropsy.model import ProfileMark, PythonPlace, ResourceUse, TreeUse

MOST_POINTS = 200
_LARGEST = 10
"""Steps that are kept, and as many jumps in the number of threads."""
_RISE, _RISE_SHARE = 1 << 20, 0.01
"""What counts as a rise from one look to the next: bytes, and the share of what is resident."""
_STEP, _STEP_SHARE = 8 << 20, 0.02
"""What counts as a step in the end, as a share of the peak."""
_LARGE = 32 << 20
"""A rise from one look to the next at which arrays are looked for at once; those of smaller ones when they are over."""
_NEARLY = 0.99
"""The share of the peak from which on a line is the peak's."""
_JUMP, _JUMP_SHARE = 4, 0.5
"""What counts as a jump in the number of threads."""
_Point = TypeVar("_Point", bound="ResourceUse | TreeUse")


@dataclass
class ThinnedSeries(Generic[_Point]):
    """The points of a series, at most ``MOST_POINTS``: of several in a row the one with the most resident memory."""

    points: list[_Point] = field(default_factory=list)
    _stride: int = 1
    _pending: list[_Point] = field(default_factory=list)

    def add(self, one: _Point) -> None:
        """One more, later than the last."""
        self._pending.append(one)
        if len(self._pending) == self._stride:
            self._flush()
        if len(self.points) == MOST_POINTS:
            self.points = [_higher(pair) for pair in zip(self.points[::2], self.points[1::2], strict=True)]
            self._stride *= 2

    def whole(self) -> tuple[_Point, ...]:
        """All that were kept, with what has come since the last of them."""
        return (*self.points, *([_higher(self._pending)] if self._pending else []))

    def _flush(self) -> None:
        self.points.append(_higher(self._pending))
        self._pending.clear()


def _higher(points: Iterable[_Point]) -> _Point:
    return max(points, key=lambda one: one.rss or 0)


@dataclass
class ThreadJumps:
    """The largest changes of the number of threads, each from its first look to its last one."""

    _largest: list[tuple[int, ProfileMark]] = field(default_factory=list)
    _last: int | None = None
    _origin: int = 0
    _direction: int = 0
    _mark: ProfileMark | None = None

    def look(self, at: float, count: int) -> None:
        """How many there are now."""
        last, self._last = self._last if self._last is not None else count, count
        direction = (count > last) - (count < last)
        if direction != self._direction:
            self._over()
            self._origin, self._direction = last, direction
        if direction:
            self._mark = ProfileMark(at=at, kind="threads", count=count)

    def _over(self) -> None:
        mark, self._mark = self._mark, None
        change = abs((mark.count or 0) - self._origin) if mark is not None else 0
        if mark is not None and change >= max(_JUMP, _JUMP_SHARE * self._origin):
            self._largest = sorted([*self._largest, (change, mark)], key=lambda one: one[0])[-_LARGEST:]

    def whole(self) -> Iterator[ProfileMark]:
        """Those that were kept."""
        self._over()
        return (mark for _, mark in self._largest)


@dataclass
class MarkRecorder:
    """The marks of one process; ``running`` tells where it is, and at a large rise (True) what the function holds."""

    running: Callable[[bool], Running | None]
    _steps: list[ProfileMark] = field(default_factory=list)
    _step: ProfileMark | None = None
    """The rise that goes on."""
    _tail: ProfileMark | None = None
    """Its last look, if another line was running then: the next line, if memory rises no more."""
    _peak: ProfileMark | None = None
    _highest: tuple[int, ProfileMark | None] = (0, None)
    """The most that was resident after a step whose line is known, and the step."""
    _level: int = 0
    """What was resident after the last rise."""
    _rss: int | None = None
    _threads: ThreadJumps = field(default_factory=ThreadJumps)

    def look(self, use: ResourceUse, *, last: bool = False) -> None:
        """What was in use at one time, later than the last. At its end (``last``) no line is running any more."""
        self._look_at_memory(use.at, use.rss or 0, self.running if not last else _nowhere)
        if use.threads is not None:
            self._threads.look(use.at, use.threads)

    def _look_at_memory(self, at: float, rss: int, running: Callable[[bool], Running | None]) -> None:
        rise, self._rss = rss - (self._rss if self._rss is not None else rss), rss
        if rise >= max(_RISE, _RISE_SHARE * rss):
            so_far = (self._step.bytes or 0) if self._step is not None else 0
            python, arrays = running(so_far + rise >= _LARGE) or (None, ())
            self._rose(ProfileMark(at=at, kind="step", bytes=rise, python=python, arrays=arrays))
            self._level = rss
        else:
            self._over(running)
        if self._peak is None or rss > (self._peak.bytes or 0):
            self._peak = ProfileMark(at=at, kind="peak", bytes=rss)

    def _rose(self, new: ProfileMark) -> None:
        if self._tail is not None:
            self._keep(self._step)
            self._step, self._tail = self._tail, None
        if self._step is None:
            self._step = new
        elif None in {new.python, self._step.python} or new.python == self._step.python:
            self._step = _together(self._step, new)
        else:
            self._tail = new

    def _over(self, running: Callable[[bool], Running | None] = lambda _: None) -> None:
        if self._step is not None and self._tail is not None:
            self._step = _together(self._step, self._tail)
        if self._step is not None and self._step.python is not None and self._wants_arrays(self._step):
            # What the line was making has its variable only now.
            now = running(True)
            if now is not None and now.arrays and _are_of_one_function(now.place, self._step.python):
                self._step = msgspec.structs.replace(self._step, arrays=now.arrays)
        self._keep(self._step)
        self._step = self._tail = None

    def _wants_arrays(self, step: ProfileMark) -> bool:
        """Whether to look for arrays: the step is large, or continues a large one of the same function."""
        if (step.bytes or 0) >= _STEP:
            return True
        _, former = self._highest
        if former is None or former.python is None or not former.arrays:
            return False
        return _are_of_one_function(former.python, step.python)

    def _keep(self, step: ProfileMark | None) -> None:
        if step is not None:
            if step.python is not None and self._level >= self._highest[0]:
                self._highest = self._level, step
            self._steps = sorted([*self._steps, step], key=lambda one: one.bytes or 0)[-_LARGEST:]

    def whole(self) -> Iterator[ProfileMark]:
        """All that were kept, in no order."""
        self._over()
        most = self._peak.bytes or 0 if self._peak is not None else 0
        yield from (one for one in self._steps if (one.bytes or 0) >= max(_STEP, _STEP_SHARE * most))
        yield from self._threads.whole()
        if self._peak is not None:
            rss, step = self._highest
            if step is None or rss < _NEARLY * most:
                yield self._peak
            else:
                yield msgspec.structs.replace(self._peak, python=step.python, arrays=step.arrays)


def _nowhere(_with_arrays: bool) -> None:
    return None


def _together(first: ProfileMark, second: ProfileMark) -> ProfileMark:
    whole = (first.bytes or 0) + (second.bytes or 0)
    python = first.python or second.python
    is_later = second.arrays and second.python is not None and _are_of_one_function(second.python, python)
    arrays = second.arrays if is_later else first.arrays
    return msgspec.structs.replace(second, bytes=whole, python=python, arrays=arrays)


def _are_of_one_function(one: PythonPlace, other: PythonPlace | None) -> bool:
    return other is not None and (one.function, one.file) == (other.function, other.file)
