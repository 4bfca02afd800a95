"""The different stacks of a group's members, from their fingerprints: what the flame graph of a group shows."""

from __future__ import annotations

from collections.abc import Iterable

from necropsy.model import MergedFrame, MergedStack
from necropsy.triage.deaths import Fingerprint, FramePlace

MOST = 20
"""Stacks of one group; rarer ones are left out."""


def merged(members: Iterable[tuple[Fingerprint, int]]) -> tuple[MergedStack, ...]:
    """The stacks of the fingerprints with the number of deaths that each has, the most frequent first.

    Fingerprints that differ in something else, such as the offset of a frame, share a stack. Those without any frame
    are left out.
    """
    counts: dict[tuple[MergedFrame, ...], int] = {}
    for one, deaths in members:
        frames = _frames(one)
        if frames:
            counts[frames] = counts.get(frames, 0) + deaths
    by_count = sorted(counts.items(), key=lambda item: (-item[1], [frame.function for frame in item[0]]))
    return tuple(MergedStack(count=count, frames=frames) for frames, count in by_count[:MOST])


def _frames(one: Fingerprint) -> tuple[MergedFrame, ...]:
    native = tuple(frame for place in (one.period or one.frames) for frame in _calls(place))
    python = []
    for place, name in enumerate(one.python):
        file, _, function = name.rpartition(":")
        line = one.python_line if place == 0 and one.python_line is not None else file or None
        python.append(MergedFrame(function=function or name, line=line, python=True))
    return (*native, *python)


def _calls(place: FramePlace) -> list[MergedFrame]:
    """A physical frame as its inlined calls; its offset where nothing names it."""
    names = place.qualified or place.names
    if not names:
        return [MergedFrame(function=f"{place.module or '?'}+{place.offset or '?'}", module=place.module)]
    lines = (*place.lines, *(None for _ in names))
    return [
        MergedFrame(function=name, module=place.module, line=line) for name, line in zip(names, lines, strict=False)
    ]
