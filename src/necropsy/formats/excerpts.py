"""Stretches of a log's bytes -> lines in which the known literals are marked."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from necropsy.formats.lines import Line, line
from necropsy.formats.literals import Finder
from necropsy.formats.rows import Run
from necropsy.formats.sift import MOST
from necropsy.formats.wrappers import Unwrap, vote

LONGEST = 4096
"""Bytes of one line that are looked at; the cause of a death stands at the front of its line ..."""
_AROUND = (256, 1024)
"""... or, where a longer one holds a literal further on, that many bytes before it and behind."""
_PIECES = 8
"""Such pieces, and states of a line that is redrawn, that are looked at at the beginning and at the end of one line."""
CUT = "\u2026 "
"""Stands at the front of what does not begin a line, so that nothing that must stand there is found in it."""
_VOTERS = 1000
_JSON = re.compile(rb'[\s,]{0,200}(?:\{\s?"|"\w{1,40}"\s?:\s?[\[{])')
"""A line of an .ips file has all threads in it: cut, it could not be read. Its ``message`` is cut all the same."""
_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Excerpt:
    """Lines of one writer without holes, but for other writers' lines between them.

    ``marks`` are the indexes of the lines that hold literals to be looked at, and which.
    """

    lines: tuple[Line, ...]
    marks: tuple[tuple[int, frozenset[bytes]], ...]


@dataclass(frozen=True)
class _Row:
    number: int
    data: bytes
    places: Sequence[tuple[int, int]]
    """Position of each literal, and which."""
    literals: frozenset[int]
    cut: bool
    last: bool


def excerpts(runs: Sequence[Run], words: Sequence[bytes], find: Finder, unwrap: Unwrap) -> Iterator[Excerpt]:
    """The lines of ``runs``; of each literal's lines, the first and the last ``MOST`` are marked.

    ``find`` finds the ``words``, ``unwrap`` takes off what collectors put before the lines.
    """
    total: Counter[int] = Counter()
    for run in runs:
        for row in _rows(run, find):
            total.update(row.literals)
    seen: Counter[int] = Counter()
    for index, run in enumerate(runs):
        lines: dict[str, list[Line]] = {}
        marks: dict[str, list[tuple[int, frozenset[bytes]]]] = {}
        for row in _rows(run, find):
            active = {i for i in row.literals if seen[i] < MOST or seen[i] >= total[i] - MOST}
            seen.update(row.literals)
            for text, held in _pieces(row, final=row.last and index == len(runs) - 1):
                one = line(row.number, text.decode("utf-8", "replace"), unwrap)
                own = lines.setdefault(one.writer, [])
                if marked := held & active:
                    marks.setdefault(one.writer, []).append((len(own), frozenset(words[i] for i in marked)))
                own.append(one)
        for writer, own in lines.items():
            yield Excerpt(tuple(own), tuple(marks.get(writer, ())))


def ballot(runs: Sequence[Run]) -> Unwrap:
    """The wrappers that the lines at both ends of the text have in common."""
    if not runs:
        return Unwrap()
    head = runs[0].data[: _VOTERS * LONGEST].split(b"\n", _VOTERS)[:_VOTERS]
    tail = runs[-1].data[-_VOTERS * LONGEST :].rsplit(b"\n", _VOTERS)[-_VOTERS:] if len(head) == _VOTERS else []
    return vote(row[:LONGEST].rstrip(b"\r").rsplit(b"\r", 1)[-1].decode("utf-8", "replace") for row in (*head, *tail))


def tail(runs: Sequence[Run], most_lines: int, most_bytes: int, unwrap: Unwrap) -> str:
    """The last lines as they are to be read by people."""
    if not runs:
        return ""
    last = runs[-1]
    data = last.data[-most_bytes:]
    first = data.partition(b"\n")[0]
    if len(data) < len(last.data) and len(first) < len(data) and b"\r" not in first.rstrip(b"\r"):
        data = data[len(first) + 1 :]
    rows = data.rstrip(b"\r\n").split(b"\n")[-most_lines:]
    return "\n".join(
        unwrap(row[:LONGEST].rstrip(b"\r").rsplit(b"\r", 1)[-1].decode("utf-8", "replace"))[0] for row in rows
    )


def _rows(run: Run, find: Finder) -> Iterator[_Row]:
    """The rows of a run, with the literals in each."""
    hits = sorted((start, literal) for literal, start, _ in find(run.data))
    rows = run.data.split(b"\n")
    if not rows[-1] and len(rows) > 1:
        rows.pop()
    position = at = 0
    for index, row in enumerate(rows):
        end = position + len(row) + 1
        places: list[tuple[int, int]] = []
        while at < len(hits) and hits[at][0] < end:
            places.append((hits[at][0] - position, hits[at][1]))
            at += 1
        literals = frozenset(literal for _, literal in places) if places else _NONE
        yield _Row(run.number + index, row, places, literals, run.cut and not index, index == len(rows) - 1)
        position = end


def _pieces(row: _Row, *, final: bool) -> Iterator[tuple[bytes, set[int]]]:
    """What is looked at of one row, and the literals in it: all of it, where it is not too long and was not redrawn.

    Of a row that was redrawn: its last state, and those that hold a literal.
    """
    data = row.data.rstrip(b"\r")
    if b"\r" not in data and (len(data) <= LONGEST or _JSON.match(data)):
        yield CUT.encode() + data if row.cut else data, set(row.literals)
        return
    states: dict[tuple[int, int], list[tuple[int, int]]] = {}
    end = -1
    for place, literal in row.places:
        if place >= end:
            start = data.rfind(b"\r", 0, place) + 1
            end = data.find(b"\r", place)
            end = len(data) if end < 0 else end
        states.setdefault((start, end), []).append((place - start, literal))
    states.setdefault((data.rfind(b"\r") + 1, len(data)), [])
    shown = list(states.items())
    if len(shown) > 2 * _PIECES:
        shown = shown[:_PIECES] + shown[-_PIECES:]
    for (start, end), places in shown:
        state = data[start:end]
        yield from _parts(state, places, cut=row.cut and not start, final=final and end == len(data))


def _parts(
    state: bytes, places: Sequence[tuple[int, int]], *, cut: bool, final: bool
) -> Iterator[tuple[bytes, set[int]]]:
    """A long text's front, what is around the literals further on, and, of the last line of all, its end."""
    mark = CUT.encode()
    front = {literal for place, literal in places if place < LONGEST - _AROUND[1]}
    yield (mark if cut else b"") + state[:LONGEST], front
    parts: list[tuple[int, int, set[int]]] = []
    for place, literal in places:
        if place < LONGEST - _AROUND[1]:
            continue
        if parts and place < parts[-1][0] + _AROUND[1]:
            parts[-1][2].add(literal)
        else:
            parts.append((max(0, place - _AROUND[0]), place + 2 * _AROUND[1], {literal}))
    if len(parts) > 2 * _PIECES:
        parts = parts[:_PIECES] + parts[-_PIECES:]
    for start, end, literals in parts:
        yield mark + state[start:end], literals
    if final and len(state) > LONGEST and not parts:
        yield mark + state[-_AROUND[1] :], set()
