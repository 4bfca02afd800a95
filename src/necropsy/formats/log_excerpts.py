"""Stretches of a log's bytes -> lines in which the known literals are marked."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from necropsy.formats.byte_windows import ByteSpan
from necropsy.formats.lines import Line, line
from necropsy.formats.literal_search import Finder, Hit
from necropsy.formats.log_prefixes import Unwrap, vote
from necropsy.formats.log_sampler import MOST

LONGEST = 4096
"""Bytes of one line that are looked at; the cause of a death stands at the front of its line ..."""
_AROUND = (256, 1024)
"""... or, where a longer one holds a literal further on, that many bytes before it and behind."""
_PIECES = 8
"""Such pieces, and states of a line that is redrawn, that are looked at at the beginning and at the end of one line."""
CUT = "\u2026 "
"""Stands at the front of what does not begin a line, so that nothing that must stand there is found in it."""
_VOTERS = 1000
_PIECE, _HITS = 1 << 16, 2048
_JSON = re.compile(rb'[\s,]{0,200}(?:\{\s?"|"\w{1,40}"\s?:\s?[\[{])')
"""A line of an .ips file has all threads in it: cut, it could not be read. Its ``message`` is cut all the same."""
_NONE: frozenset[int] = frozenset()
_literal, _start = itemgetter(0), itemgetter(1)


@dataclass(frozen=True)
class Excerpt:
    """Contiguous lines of one writer; ``marks``: indexes of lines with literals, and which; ``final``: text ends."""

    lines: tuple[Line, ...]
    marks: tuple[tuple[int, frozenset[bytes]], ...]
    final: bool


@dataclass(frozen=True)
class _Row:
    number: int
    position: int
    """Offset of its first byte in the piece ..."""
    data: bytes
    hits: Sequence[Hit]
    """... in which these were found."""
    literals: frozenset[int]
    cut: bool
    last: bool


def excerpts(
    runs: Sequence[ByteSpan], words: Sequence[bytes], find: Finder, unwrap: Unwrap, *, most: int = MOST
) -> Iterator[Excerpt]:
    """The lines of ``runs``, the first and last ``most`` of each literal marked; ``unwrap`` removes prefixes."""
    overlap = max((len(word) for word in words), default=1) - 1
    total: Counter[int] = Counter()
    for run in runs:
        for row in _rows(run, find, overlap):
            total.update(row.literals)
    seen: Counter[int] = Counter()
    for index, run in enumerate(runs):
        writer = ""
        lines: dict[str, list[Line]] = {}
        marks: dict[str, list[tuple[int, frozenset[bytes]]]] = {}
        for row in _rows(run, find, overlap):
            active = {i for i in row.literals if seen[i] < most or seen[i] >= total[i] - most}
            seen.update(row.literals)
            for text, held in _pieces(row, final=row.last and index == len(runs) - 1):
                one = line(row.number, text.decode("utf-8", "replace"), unwrap)
                if one.writer or (one.text and one.text[0] not in " \t"):
                    # Journald indents the further lines of a message, and puts nothing before them.
                    writer = one.writer
                own = lines.setdefault(writer, [])
                if marked := held & active:
                    marks.setdefault(writer, []).append((len(own), frozenset(words[i] for i in marked)))
                own.append(one)
        for name, own in lines.items():
            yield Excerpt(tuple(own), tuple(marks.get(name, ())), final=index == len(runs) - 1)


def ballot(runs: Sequence[ByteSpan]) -> Unwrap:
    """The wrappers that the lines at both ends of the text have in common."""
    if not runs:
        return Unwrap()
    head = runs[0].data[: _VOTERS * LONGEST].split(b"\n", _VOTERS)[:_VOTERS]
    tail = runs[-1].data[-_VOTERS * LONGEST :].rsplit(b"\n", _VOTERS)[-_VOTERS:] if len(head) == _VOTERS else []
    return vote(row[:LONGEST].rstrip(b"\r").rsplit(b"\r", 1)[-1].decode("utf-8", "replace") for row in (*head, *tail))


def tail(runs: Sequence[ByteSpan], most_lines: int, most_bytes: int, unwrap: Unwrap) -> str:
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


def _rows(run: ByteSpan, find: Finder, overlap: int) -> Iterator[_Row]:
    """The rows of a run, with the literals in each; piece by piece, because a hit takes more room than its text."""
    data, number, position = run.data, run.number, 0
    while position < len(data):
        end = len(data)
        if end - position > _PIECE:
            end = data.rfind(b"\n", position, position + _PIECE) + 1 or data.find(b"\n", position) + 1 or end
        piece = data[position:end]
        rows = piece.split(b"\n")
        if not rows[-1] and len(rows) > 1:
            rows.pop()
        hits = _hits(piece, find, overlap)
        start = at = 0
        for index, row in enumerate(rows):
            own: Sequence[Hit] = ()
            if at < len(hits) and hits[at][1] < start + len(row) + 1:
                behind = bisect_left(hits, start + len(row) + 1, at, key=_start)
                own, at = hits[at:behind], behind
            literals = frozenset(map(_literal, own)) if own else _NONE
            last = end == len(data) and index == len(rows) - 1
            yield _Row(number + index, start, row, own, literals, run.cut and not position and not index, last)
            start += len(row) + 1
        number += len(rows)
        position = end


def _hits(piece: bytes, find: Finder, overlap: int) -> Sequence[Hit]:
    """The hits in order; of a line that is longer than a piece the first, the last and one of each literal."""
    if len(piece) <= _PIECE:
        return sorted(find(piece), key=_start)
    first: list[Hit] = []
    last: deque[Hit] = deque(maxlen=_HITS)
    one_of_each: dict[int, Hit] = {}
    for at in range(0, len(piece), _PIECE):
        low = max(0, at - overlap)
        found = [(i, start + low, end + low) for i, start, end in find(piece[low : at + _PIECE]) if end + low > at]
        for hit in found:
            one_of_each.setdefault(hit[0], hit)
        first += found[: _HITS - len(first)]
        last += found
    return sorted({*first, *last, *one_of_each.values()}, key=_start)


def _pieces(row: _Row, *, final: bool) -> Iterator[tuple[bytes, set[int]]]:
    """The parts of a row to read, with their literals; of a redrawn row its last state, and those with a literal."""
    data = row.data.rstrip(b"\r")
    if b"\r" not in data and (len(data) <= LONGEST or _JSON.match(data)):
        yield CUT.encode() + data if row.cut else data, set(row.literals)
        return
    states: dict[tuple[int, int], list[tuple[int, int]]] = {}
    end = -1
    for literal, begin, _ in row.hits:
        place = begin - row.position
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
    """A long text's front, the surroundings of later literals, and, of the last line of all, its end."""
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
