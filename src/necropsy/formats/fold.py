"""Deep stacks, folded by period: A-B-A-B is one recursion of period 2.

Linear in the number of frames; the memory it takes does not grow with them. Names become letters of one text, which is
fed piece by piece. Repeats of up to ``LONGEST_PERIOD`` letters are found for thousands of letters at once: in a text
written as bits, each letter is compared with the one ``period`` behind it by one shift.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

LONGEST_PERIOD = 64
FEWEST_TIMES = 4
"""Repeated less often it is no recursion worth a line."""
LONGEST_BREAK = 64
"""So many frames of something else (a garbage collection, a comparison) do not end a recursion."""
MOST_RUNS = 256
"""If there are more runs than this, only those that cover most frames are kept."""

_BEHIND = LONGEST_BREAK + LONGEST_PERIOD
"""Letters before the place that is looked at which are needed still."""
_DECIDES = FEWEST_TIMES * LONGEST_PERIOD
"""So many letters tell whether a run begins at the first of them."""
_BLOCK = 8192
"""Letters that are searched at once."""
_BITS = tuple(bytes(48 + (value >> bit & 1) for value in range(256)) for bit in range(8))
"""Tables for ``bytes.translate``: the digit of one bit."""


@dataclass(frozen=True)
class RepeatedRun:
    """``frames`` repeated frames from ``start`` on, ``times`` whole periods of ``period``.

    ``bytes_per_period``: mean over whole periods; ``unit``: indexes of one period's frames; ``letters``: its letters.
    """

    start: int
    period: int
    times: int
    frames: int
    bytes_per_period: float | None = None
    letters: str = ""

    @property
    def unit(self) -> range:
        """The indices of the frames of the first whole period."""
        return range(self.start, self.start + self.period)


def fold(keys: Sequence[Hashable], stack_pointers: Sequence[int | None] | None = None) -> tuple[RepeatedRun, ...]:
    """The ``MOST_RUNS`` repeats that cover most frames, by their keys and stack pointers (bytes), innermost first."""
    folder = Folder()
    folder.feed(_letters(keys), stack_pointers)
    return folder.runs()


def _letters(keys: Sequence[Hashable]) -> str:
    # There is no code point above this many distinct functions: a stack with more of them has no period anyway.
    letters = {key: chr(min(number, 0x10FFFF)) for number, key in enumerate(dict.fromkeys(keys), 1)}
    return "".join(map(letters.__getitem__, keys))


@dataclass(slots=True)
class _Cycle:
    """A run, with what was joined to it; it may go on."""

    start: int
    period: int
    letters: str
    times: int = 0
    end: int = 0
    last: int | None = None
    second: int | None = None
    """Stack pointer of the frame with which its second period begins."""
    unbroken: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    """By place in the period: since which frame the same letter came every time, and that frame's pointer."""

    def run(self) -> RepeatedRun:
        return RepeatedRun(self.start, self.period, self.times, self.end - self.start, self._bytes(), self.letters)

    def _bytes(self) -> float | None:
        """The mean distance of one period, over the unbroken stretch at the outer end of the run.

        A frame's size is the distance to its caller's pointer, and the innermost frame may not have its full size yet.
        """
        last = self.end - 1
        first, low = self.unbroken[last % self.period]
        if first == self.start and first + self.period < last:
            first, low = first + self.period, self.second
        periods = (last - first) // self.period
        if not periods or low is None or self.last is None:
            return None
        return (self.last - low) / periods


class Folder:
    """Folds one stack that is fed in pieces, innermost frame first."""

    def __init__(self) -> None:
        self._text = ""
        """What is not decided yet, and up to ``_BEHIND`` letters before it."""
        self._pointers: list[int | None] = []
        """The stack pointers of the same frames; empty where none are fed."""
        self._base = 0
        """The index of the frame that the first of these letters represents."""
        self._from = 0
        """Before this frame all is decided."""
        self._open: tuple[int, int] | None = None
        """Where the run began that goes on at ``_from``, and its period."""
        self._cycle: _Cycle | None = None
        """The last run; the next one may be joined to it."""
        self._runs: list[RepeatedRun] = []
        self._least = 0
        """Runs of so few frames are not kept: there are ``MOST_RUNS`` larger ones."""
        self._block: tuple[int, int, list[tuple[int, int]]] = (0, 0, [])

    def feed(self, text: str, pointers: Sequence[int | None] | None = None) -> None:
        """The next frames: one letter each, and their stack pointers in bytes, or none at all."""
        self._text += text
        if pointers is not None:
            self._pointers.extend(pointers)
        self._work(final=False)
        passed = max(self._from - _BEHIND - self._base, 0)
        self._text = self._text[passed:]
        del self._pointers[:passed]
        self._base += passed

    def goes_on(self, count: int) -> bool:
        """Whether the last frame belongs to a run whose period divides ``count``."""
        return self._open is not None and count % self._open[1] == 0

    def repeat(self, count: int, times: int, size: int) -> None:
        """The last ``count`` frames come ``times`` more times, each time ``size`` bytes higher; ``goes_on`` holds."""
        self._base += count * times
        self._from += count * times
        self._pointers = [None if one is None else one + size * times for one in self._pointers]

    def runs(self) -> tuple[RepeatedRun, ...]:
        """The runs, the one that covers most frames first; nothing may be fed after it."""
        self._work(final=True)
        if self._cycle is not None:
            self._keep(self._cycle)
            self._cycle = None
        return tuple(_largest(self._runs))

    def _keep(self, cycle: _Cycle) -> None:
        if cycle.end - cycle.start <= self._least:
            return
        self._runs.append(cycle.run())
        if len(self._runs) > 2 * MOST_RUNS:
            self._runs = _largest(self._runs)
            self._least = self._runs[-1].frames

    def _work(self, *, final: bool) -> None:
        end = self._base + len(self._text)
        while True:
            if self._open is not None:
                self._from = self._run_end(self._open[1])
                if self._from == end and not final:
                    return
                self._close(*self._open)
            limit = end if final else end - _DECIDES
            found = self._search(limit)
            if found is None:
                self._from = max(self._from, limit)
                return
            self._begin(*found)

    def _search(self, limit: int) -> tuple[int, int] | None:
        """Where the next run before ``limit`` begins, and its shortest period."""
        while self._from < limit:
            start, end, places = self._block
            if not start <= self._from < end:
                start = self._from
                end = min(start + _BLOCK, limit)
                text = self._text[start - self._base : end - self._base + _DECIDES]
                # What begins behind the end of the block is left to the next one, which sees more of it.
                behind = len(text) - (end - start)
                places = [(period, found) for period, one in _repeated(text) if (found := one >> behind)]
                self._block = start, end, places
            left = (1 << end - self._from) - 1
            best, shortest = 0, 0
            for period, one in places:
                size = (one & left).bit_length()
                if size > best:
                    best, shortest = size, period
            if best:
                return end - best, shortest
            self._from = end
        return None

    def _begin(self, start: int, period: int) -> None:
        text, base, pointers = self._text, self._base, self._pointers
        unit = text[start - base : start - base + period]
        cycle = self._cycle
        self._open, self._from = (start, period), start + period * FEWEST_TIMES
        if (
            cycle is not None
            and cycle.period == period
            and start - cycle.end <= LONGEST_BREAK
            and unit in cycle.letters * 2
        ):
            broken: set[int] = set()
            for at in range(start + period - 1, cycle.end - 1, -1):
                if text[at - base] != text[at - base - period] and at % period not in broken:
                    broken.add(at % period)
                    cycle.unbroken[at % period] = at, pointers[at - base] if pointers else None
                    if len(broken) == period:
                        break
            return
        if cycle is not None:
            self._keep(cycle)
        self._cycle = cycle = _Cycle(start, period, unit)
        if pointers:
            cycle.second = pointers[start - base + period]
        for at in range(start, start + period):
            cycle.unbroken[at % period] = at, pointers[at - base] if pointers else None

    def _run_end(self, period: int) -> int:
        """The end of the stretch from ``_from`` on in which each letter equals the one ``period`` before it."""
        text, at = self._text, self._from - self._base
        size, step = len(text), 1
        while at < size:
            step = min(step, size - at)
            if text[at : at + step] == text[at - period : at - period + step]:
                at += step
                step *= 2
            elif step == 1:
                break
            else:
                step //= 2
        return self._base + at

    def _close(self, start: int, period: int) -> None:
        cycle, end = self._cycle, self._from
        self._open = None
        if cycle is None:
            return
        cycle.times += (end - start) // period
        cycle.end = end
        cycle.last = self._pointers[end - 1 - self._base] if self._pointers else None


def _largest(runs: list[RepeatedRun]) -> list[RepeatedRun]:
    return sorted(runs, key=lambda run: (-run.frames, run.start))[:MOST_RUNS]


def _repeated(text: str) -> list[tuple[int, int]]:
    """By period: where a piece of it begins that comes ``FEWEST_TIMES`` times in a row; the highest bit is first."""
    size = len(text)
    if len(set(text)) == size:
        return []
    planes = _planes(text)
    found = []
    for period in range(1, min(LONGEST_PERIOD, size // FEWEST_TIMES) + 1):
        differs = 0
        for plane in planes:
            differs |= plane ^ plane << period
        compared = (1 << size) - (1 << period)
        same = compared ^ compared & differs
        # A place is left where this one and the next (FEWEST_TIMES - 1) * period - 1 letters are the same.
        covered, wanted = 1, (FEWEST_TIMES - 1) * period
        while same and covered < wanted:
            step = min(covered, wanted - covered)
            same &= same << step
            covered += step
        if same:
            found.append((period, same))
    return found


def _planes(text: str) -> list[int]:
    """The text as numbers, one for each bit of its letters; the first letter's bit is the highest."""
    data = text.encode("utf-32-le", "surrogatepass")
    planes = []
    for part in (data[0::4], data[1::4], data[2::4]):
        for table in _BITS if part.strip(b"\0") else ():
            digits = part.translate(table)
            if b"1" in digits:
                planes.append(int(digits, 2))
    return planes
