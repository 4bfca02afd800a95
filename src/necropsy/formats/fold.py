"""Deep stacks, folded by period: A-B-A-B is one recursion of period 2.

Pure, and linear in the number of frames: names become letters of one string, a regular expression finds where a piece
of up to ``LONGEST_PERIOD`` letters repeats, and comparing slices says how far.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

LONGEST_PERIOD = 64
FEWEST_TIMES = 4
"""Repeated less often it is no recursion worth a line."""
LONGEST_BREAK = 64
"""So many frames of something else (a garbage collection, a comparison) do not end a recursion."""

_REPEATED = re.compile(rf"(.{{1,{LONGEST_PERIOD}}}?)\1{{{FEWEST_TIMES - 1}}}", re.DOTALL)


@dataclass(frozen=True)
class Run:
    """A part of the stack that repeats: ``frames`` frames from ``start`` on, ``times`` whole periods of ``period``.

    ``bytes_per_period`` is the mean over the whole periods; ``unit`` holds the index of each frame of one period.
    """

    start: int
    period: int
    times: int
    frames: int
    bytes_per_period: float | None = None

    @property
    def unit(self) -> range:
        """The indices of the frames of the first whole period."""
        return range(self.start, self.start + self.period)


def fold(keys: Sequence[Hashable], stack_pointers: Sequence[int | None] | None = None) -> tuple[Run, ...]:
    """The repeating parts, the one that covers most frames first.

    Args:
        keys: what makes two frames the same, innermost first.
        stack_pointers: of the same frames, in bytes.

    """
    text = _letters(keys)
    runs: list[Run] = []
    at = 0
    while (match := _REPEATED.search(text, at)) is not None:
        start, period = match.start(), len(match[1])
        end = _extend(text, start, period)
        runs.append(Run(start, period, (end - start) // period, end - start))
        at = end
    merged = _merge(text, runs)
    if stack_pointers is not None:
        merged = [replace(run, bytes_per_period=_bytes(run, stack_pointers, text)) for run in merged]
    return tuple(sorted(merged, key=lambda run: (-run.frames, run.start)))


def _letters(keys: Sequence[Hashable]) -> str:
    # There is no code point above this many distinct functions: a stack with more of them has no period anyway.
    letters = {key: chr(min(number, 0x10FFFF)) for number, key in enumerate(dict.fromkeys(keys), 1)}
    return "".join(map(letters.__getitem__, keys))


def _extend(text: str, start: int, period: int) -> int:
    """The end of the longest stretch from ``start`` on in which each letter equals the one ``period`` before it."""
    at, step, size = start + period * FEWEST_TIMES, 64, len(text)
    while at < size:
        step = min(step, size - at)
        if text[at : at + step] == text[at - period : at - period + step]:
            at += step
            step *= 2
        elif step == 1:
            break
        else:
            step //= 2
    return at


def _merge(text: str, runs: list[Run]) -> list[Run]:
    """Join neighbours of the same cycle that only a short break divides."""
    merged: list[Run] = []
    for run in runs:
        last = merged[-1] if merged else None
        if (
            last is not None
            and last.period == run.period
            and run.start - (last.start + last.frames) <= LONGEST_BREAK
            and text[run.start : run.start + run.period] in text[last.start : last.start + last.period] * 2
        ):
            merged[-1] = replace(last, times=last.times + run.times, frames=run.start + run.frames - last.start)
        else:
            merged.append(run)
    return merged


def _bytes(run: Run, pointers: Sequence[int | None], text: str) -> float | None:
    """The mean distance of one period, over the unbroken stretch at the outer end of the run.

    A frame's size is the distance to its caller's pointer, so the first frame whose size is meant is followed by whole
    periods up to the last frame that has a caller in the list. The innermost frame may not have its full size yet.
    """
    last = min(run.start + run.frames, len(pointers)) - 1
    first = last
    while first - run.period >= run.start and text[first - run.period] == text[first]:
        first -= run.period
    whole = first + run.period
    if first == run.start and whole < last:
        first = whole
    periods = (last - first) // run.period
    low, high = pointers[first], pointers[last]
    if not periods or low is None or high is None:
        return None
    return (high - low) / periods
