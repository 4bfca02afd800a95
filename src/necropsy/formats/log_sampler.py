"""Samples a log of any size: the stretches around every known literal, its head and its tail.

One pass, block by block, in bounded memory. Of each literal the first and last places are kept, because the first cause
is at the beginning and the last words are at the end. While a literal fills the text, it is only counted. A text that
is small enough is kept whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from necropsy.formats.byte_windows import (
    STEP,
    ByteSpan,
    ByteWindow,
    Extent,
    Snippet,
    first_rows,
    joined,
    last_rows,
    merged,
)
from necropsy.formats.decoding import plain
from necropsy.formats.literal_search import Hit, finder, passing_finder

MOST = 200
"""Lines of one literal that are kept from the beginning, and as many from the end."""
WHOLE_BYTES, WHOLE_LINES = 1 << 20, 20_000
"""A text of so many bytes and lines, or fewer, is kept whole: some formats are one block (macOS .ips, WinDbg)."""
HEAD = (100, 16 << 10)
TAIL = (1000, 128 << 10)
"""Lines and bytes of a long text's two ends."""

# Lines and bytes before a literal and behind it. The first three places of a literal are shown with as much as any
# reader looks at, the others with what a message of several lines needs.
_WIDE = (100, 16 << 10, 400, 64 << 10)
_NARROW = (4, 1 << 10, 60, 6 << 10)
_BARE = (0, 256, 4, STEP)
_WIDELY = 3
_BEFORE, _BEHIND = _WIDE[1], _WIDE[3]
# What may be kept of the first places, in bytes and rows. Beyond the first bounds, the places behind the first three of
# a literal are kept with little around them; beyond the second, only the first place of each.
_SOFT, _HARD = (4 << 20, 30_000), (6 << 20, 60_000)
_LAST_CLIPS, _LAST_LITERALS = 1024, 64
"""Clips of last places, all literals together, and the literals that have any: no honest text is full of more."""
_BLOCK = 1 << 18
_DENSE = 1024
"""Hits in one block above which the most frequent literals are put aside."""
_THIN = 64
"""Places in one block below which such a literal is looked for again."""
_WATCHED, _RETURNS = 16, 64
"""Literals put aside that are still counted, and how often any may come back: each costs a new automaton."""
_LONGEST_ESCAPE = 64
_index = itemgetter(0)


@dataclass(frozen=True)
class LogSample:
    """Stretches worth reading; ``runs`` are in order and do not overlap; ``whole``: they are all of the text.

    ``lines`` counts all of its lines, ``often`` the places of literals that were not all kept, ``missed`` those not
    counted to the end.
    """

    runs: tuple[ByteSpan, ...]
    lines: int
    whole: bool
    often: dict[bytes, int]
    missed: frozenset[bytes]


def sift(blocks: Iterable[bytes], words: Sequence[bytes]) -> LogSample:
    """Look for ``words``, none of which may hold a line break, in UTF-8 ``blocks`` of any sizes."""
    sifter = _Sifter(tuple(dict.fromkeys(words)))
    for block in whole_rows(blocks):
        sifter.take(block)
    return sifter.end()


def whole_rows(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks of about the same size that end with a line, without colours; longer lines are cut."""
    rest = b""
    for block in blocks:
        # One that is not of the usual size (a pipe, a decoder) is cut into such.
        for at in range(0, len(block), _BLOCK):
            data = rest + block[at : at + _BLOCK]
            end = _last_end(data)
            if end:
                yield plain(data[:end])
            rest = data[end:]
    if rest:
        yield plain(rest)


def _last_end(data: bytes) -> int:
    """Where to cut: behind a line, else behind a redrawn one, else anywhere but in an escape sequence."""
    for end in (b"\n", b"\r"):
        if (at := data.rfind(end)) >= 0:
            return at + 1
    if len(data) < _BLOCK:
        return 0
    escape = data.rfind(b"\x1b", len(data) - _LONGEST_ESCAPE)
    return escape if escape > 0 else len(data)


@dataclass
class _Block:
    """A block and the hits in it, whose positions may begin before it: ``offset`` and ``row`` are of its begin."""

    data: bytes
    offset: int
    row: int
    hits: Sequence[Hit] = ()


@dataclass
class _Aside:
    """A literal that fills the text, and the latest block that it filled."""

    latest: _Block
    watched: bool = True


class _Sifter:
    def __init__(self, words: tuple[bytes, ...]) -> None:
        self._words = words
        self._overlap = max((len(word) for word in words), default=2) - 1
        self._active: Sequence[int] = range(len(words))
        self._find = finder(words)
        self._offset, self._row = 0, 1
        self._before = b""
        self._waiting: _Block | None = None
        self._firsts: list[ByteSpan] = []
        self._first_rows = self._first_bytes = 0
        self._places = [0] * len(words)
        self._hits = [0] * len(words)
        self._lasts: dict[int, deque[Snippet]] = {}
        self._most_lasts = MOST
        self._aside: dict[int, _Aside] = {}
        self._dropped: set[int] = set()
        self._missed: set[int] = set()
        self._returns = 0
        self._whole: list[bytes] | None = []

    def take(self, data: bytes) -> None:
        """Take a block, which ends with a row or in the middle of a long one."""
        block = _Block(data, self._offset, self._row)
        self._watch(block)
        block.hits = self._search(data)
        if self._waiting is not None:
            cut = len(data) if len(data) <= _BEHIND else data.rfind(b"\n", 0, _BEHIND) + 1 or _BEHIND
            self._settle(self._waiting, data[:cut])
        self._waiting = block
        self._offset += len(data)
        self._row += data.count(b"\n")
        if self._whole is not None:
            self._whole.append(data)
            if self._offset > WHOLE_BYTES or self._row > WHOLE_LINES:
                self._whole = None

    def end(self) -> LogSample:
        if self._waiting is not None:
            self._settle(self._waiting, b"")
        for literal in self._aside:
            self._come_back(literal)
        begins_row = self._before[-1:] in {b"", b"\n"}
        lines = self._row - 1 if begins_row else self._row
        often = {self._words[i]: self._hits[i] for i in sorted(self._dropped | self._missed)}
        missed = frozenset(self._words[i] for i in self._missed)
        if self._whole is not None:
            return LogSample((ByteSpan(0, 1, b"".join(self._whole)),), lines, whole=True, often=often, missed=missed)
        window = ByteWindow(self._before, self._offset - len(self._before), self._row - self._before.count(b"\n"))
        start, _ = window.around(len(self._before), (*TAIL, 0, 0))
        # Of a row that is redrawn and longer than that, the last state.
        state = self._before.rfind(b"\r", 0, max(0, start - 2))
        if start and state > self._before.rfind(b"\n", 0, start - 1):
            start = state + 1
        lasts = [clip.rows(_NARROW) for clips in self._lasts.values() for clip in clips]
        runs = merged([*self._firsts, *lasts, window.run(start, len(self._before))])
        return LogSample(tuple(runs), lines, whole=False, often=often, missed=missed)

    # ------------------------------------------------------------ one block

    def _search(self, data: bytes) -> Sequence[Hit]:
        # A literal may begin in the row that the block before this one ends in.
        tail = b"" if self._waiting is None else self._waiting.data[-self._overlap :]
        tail = tail[tail.rfind(b"\n") + 1 :]
        shift, text = len(tail), tail + data
        found = self._find(text)
        if len(found) > _DENSE:
            counts = {self._active[i]: count for i, count in Counter(map(_index, found)).items()}
            dense = self._put_aside(counts)
            # Of those that are put aside, no more is needed than what stands at both ends of the block.
            ends = found if len(found) <= 2 * _DENSE else [*found[:_DENSE], *found[-_DENSE:]]
            hits = [hit for hit in self._hits_of(ends, shift) if hit[0] in dense]
            self._look_for_the_rest()
            rest = self._hits_of(self._find(text), shift)
            for literal in dense:
                self._hits[literal] += counts[literal]
            self._count(rest)
            return hits + rest
        hits = self._hits_of(found, shift)
        self._count(hits)
        return hits

    def _count(self, hits: Sequence[Hit]) -> None:
        for literal, _, _ in hits:
            self._hits[literal] += 1

    def _hits_of(self, found: Sequence[Hit], shift: int) -> list[Hit]:
        active = self._active
        return [(active[i], start - shift, end - shift) for i, start, end in found if end > shift]

    def _settle(self, block: _Block, behind: bytes) -> None:
        """Select what to keep of a block, now that the text behind it is known."""
        before = self._before[-_BEFORE:]
        window = ByteWindow(before + block.data + behind, block.offset - len(before), block.row - before.count(b"\n"))
        intervals: list[tuple[int, int]] = []
        if not block.offset:
            intervals.append((0, window.around(0, (0, 0, *HEAD))[1]))
        positions: dict[int, list[int]] = defaultdict(list)
        for literal, start, _ in block.hits:
            positions[literal].append(start + len(before))
        last: set[tuple[int, int]] = set()
        for literal, starts in positions.items():
            room = MOST - self._places[literal]
            rest: Sequence[int] = starts
            if room > 0:
                firsts, rest = first_rows(window.text, starts, room)
                for at in firsts:
                    if extent := self._extent(literal):
                        intervals.append(window.around(at, extent))
                    self._places[literal] += 1
            if rest:
                last |= {(at, literal) for at in self._last_places(window.text, literal, rest)}
        self._keep_firsts(window, intervals)
        self._keep_lasts(window, sorted(last))
        self._before = (self._before + block.data)[-TAIL[1] :]

    def _extent(self, literal: int) -> Extent | None:
        """How much is kept around the next place of a literal; None where too much was kept already."""
        place = self._places[literal]
        soft, hard, far = (
            self._first_bytes > factor * most[0] or self._first_rows > factor * most[1]
            for most, factor in ((_SOFT, 1), (_HARD, 1), (_HARD, 2))
        )
        if hard:
            if not place:
                return _BARE if far else _NARROW
            self._dropped.add(literal)
            return None
        if place < _WIDELY:
            return _WIDE
        return _BARE if soft else _NARROW

    def _keep_firsts(self, window: ByteWindow, intervals: list[tuple[int, int]]) -> None:
        for start, end in joined(intervals):
            run = window.run(start, end)
            if self._firsts and self._firsts[-1].start <= run.start:
                known = self._firsts[-1].start + len(self._firsts[-1].data) - run.start
                if known >= len(run.data):
                    continue
                if known > 0:
                    run = window.run(start + known, end)
            self._firsts.append(run)
            self._first_bytes += len(run.data)
            self._first_rows += run.data.count(b"\n")

    # ------------------------------------------------------------ last places

    def _last_places(self, text: bytes, literal: int, starts: Sequence[int]) -> Sequence[int]:
        """Those of ``starts`` that may still be among the last of the literal when the text ends."""
        if literal not in self._lasts:
            if len(self._lasts) >= _LAST_LITERALS:
                self._dropped.add(literal)
                return ()
            self._lasts[literal] = deque()
            most = max(1, min(MOST, _LAST_CLIPS // len(self._lasts)))
            if most < self._most_lasts:
                self._most_lasts = most
                for one in self._lasts:
                    self._forget(one)
        most = self._most_lasts
        places = last_rows(text, starts, most + 1)
        if len(places) > most:
            self._dropped.add(literal)
        return places[-most:]

    def _keep_lasts(self, window: ByteWindow, places: Sequence[tuple[int, int]]) -> None:
        for at, literal in places:
            # Cheap here, for most of them are thrown away again; only what is left is cut to rows.
            start = max(0, at - _NARROW[1])
            self._lasts[literal].append(Snippet(window.run(start, at + _NARROW[3]), at - start))
        for literal in {literal for _, literal in places}:
            self._forget(literal)

    def _forget(self, literal: int) -> None:
        clips, most = self._lasts[literal], self._most_lasts
        while len(clips) > most:
            clips.popleft()
            self._dropped.add(literal)

    # ------------------------------------------------------------ literals that fill the text

    def _put_aside(self, counts: dict[int, int]) -> set[int]:
        """The literals to put aside so that few hits are left."""
        left = sum(counts.values())
        dense: set[int] = set()
        watched = sum(one.watched for one in self._aside.values())
        for literal, count in sorted(counts.items(), key=itemgetter(1), reverse=True):
            if left <= _DENSE // 2:
                break
            left -= count
            dense.add(literal)
            self._dropped.add(literal)
            watched += 1
            may_return = watched <= _WATCHED and self._returns < _RETURNS
            self._aside[literal] = _Aside(_Block(b"", self._offset, self._row), may_return)
            if not may_return:
                self._missed.add(literal)
        return dense

    def _look_for_the_rest(self) -> None:
        if not self._aside:
            self._active, self._find = range(len(self._words)), finder(self._words)
            return
        self._active = [i for i in range(len(self._words)) if i not in self._aside]
        self._find = passing_finder(tuple(self._words[i] for i in self._active))

    def _watch(self, block: _Block) -> None:
        """Count the literals that were put aside, and take back those that no longer fill the text."""
        back: list[int] = []
        for literal, aside in self._aside.items():
            if not aside.watched:
                continue
            count = block.data.count(self._words[literal])
            if count < _THIN and self._returns < _RETURNS:
                back.append(literal)
            elif count:
                aside.latest = block
                self._hits[literal] += count
        for literal in back:
            self._come_back(literal)
            del self._aside[literal]
        if back:
            self._returns += 1
            self._look_for_the_rest()

    def _come_back(self, literal: int) -> None:
        block, word = self._aside[literal].latest, self._words[literal]
        if not block.data:
            return
        starts: list[int] = []
        end = len(block.data)
        while len(starts) < MOST and (at := block.data.rfind(word, 0, end)) >= 0:
            starts.append(at)
            low = max(0, at - STEP)
            end = max(block.data.rfind(b"\n", low, at), low)
        window = ByteWindow(block.data, block.offset, block.row)
        places = self._last_places(block.data, literal, starts[::-1])
        self._keep_lasts(window, [(at, literal) for at in places])
