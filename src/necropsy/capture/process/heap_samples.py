"""Which line of Python was running while the memory of a process grew: seen from outside, from one look to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from necropsy.model import HeapFrame, HeapStack, HeapUse, PythonPlace, ResourceUse

_LEAST = 64 << 10
"""Bytes of growth from which on the line is asked for."""
_MOST = 100
"""Lines that are kept."""


@dataclass
class HeapSamples:
    """The growth of one process beyond the most that it had had resident; ``line`` says where it is now."""

    line: Callable[[], PythonPlace | None]
    _first: int | None = None
    _highest: int = 0
    _at: float = 0.0
    _grown: dict[PythonPlace | None, list[int]] = field(default_factory=dict)
    """Bytes, and the number of looks."""

    def look(self, use: ResourceUse, *, last: bool = False) -> None:
        """What was resident at one time, later than the last. At its end (``last``) no line is running any more."""
        rss = use.rss or 0
        if self._first is None:
            self._first = self._highest = rss
            return
        rise = rss - self._highest
        if rise < _LEAST:
            return
        sums = self._grown.setdefault(self.line() if not last else None, [0, 0])
        sums[0] += rise
        sums[1] += 1
        self._highest, self._at = rss, use.at

    def whole(self) -> HeapUse | None:
        """What was running, the line with the most growth first; None of a process that was never looked at."""
        if self._first is None:
            return None
        stacks = sorted((_stack(place, *sums) for place, sums in self._grown.items()), key=lambda one: -one.bytes)
        return HeapUse(
            how="sample",
            peak=sum(one.bytes for one in stacks),
            peak_at=self._at if stacks else None,
            stacks=tuple(stacks[:_MOST]),
            left_out=sum(one.bytes for one in stacks[_MOST:]) or None,
        )


def _stack(place: PythonPlace | None, octets: int, looks: int) -> HeapStack:
    frames: tuple[HeapFrame, ...] = ()
    if place is not None:
        frames = (HeapFrame(function=place.function or "?", file=place.file, line=place.line),)
    return HeapStack(bytes=octets, count=looks, frames=frames)
