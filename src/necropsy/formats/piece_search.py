"""Looks for the texts of known kinds in excerpts of a log: dumps, backtraces, sentences about an end."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import attrgetter

import msgspec

from necropsy.formats.lines import Line
from necropsy.formats.log_excerpts import Excerpt
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.lazy_re import regex
from necropsy.model import Gap

LONGEST = 1000
"""Characters of a message and of one of its fields; a line of 4,000 is read, but nobody wants to see it."""
_TRIES, _ALL_TRIES, _LAST_TRIES = 1000, 5000, 30
"""How often one reader, and all of them, may say that a stretch is not of their kind; then only where the text ends."""
_THREAD = regex(
    r"[\s>|]{0,40}(?:Current thread|Thread) (?P<number>0x[0-9a-fA-F]{6,16})\b"
    r"|.{0,200}?\(TID (?P<tid>0x[0-9a-f]{6,16})\)"
)
"""faulthandler's; glog's."""
_THREADS = 16
"""Threads of a report whose numbers are kept: a process is known by any of them."""


class PieceSearch:
    """Looks for texts of known kinds in one excerpt after the other; it gives up where too many only look like one."""

    def __init__(self, all_readers: Sequence[TextReader]) -> None:
        self._readers = all_readers
        self._failures: Counter[int] = Counter()
        self._all_failures = 0
        self.gave_up = False
        self._by_trigger: dict[bytes, list[int]] = {}
        for number, reader in enumerate(all_readers):
            for word in reader.triggers:
                self._by_trigger.setdefault(word.encode(), []).append(number)

    def left_out(self) -> list[Gap]:
        """Whether any places were left out."""
        why = "too much of it looks like a report of some tool and is none: not every place was read"
        return [Gap(part="log", why=why)] if self.gave_up else []

    def pieces(self, excerpt: Excerpt) -> Iterator[TextReport]:
        """What each reader finds in the lines of an excerpt."""
        places: dict[int, list[int]] = {}
        for index, held in excerpt.marks:
            text = excerpt.lines[index].text
            asked = {one for word in held if word.decode() in text for one in self._by_trigger.get(word, ())}
            for number in asked:
                places.setdefault(number, []).append(index)
        for number, own in sorted(places.items()):
            yield from self._of_one(number, excerpt, own)

    def _of_one(self, number: int, excerpt: Excerpt, places: Sequence[int]) -> Iterator[TextReport]:
        lines, done = excerpt.lines, 0
        for nth, index in enumerate(places):
            if lines[index].number <= done:
                continue
            tired = self._failures[number] >= _TRIES or self._all_failures >= _ALL_TRIES
            if tired and not (excerpt.final and len(places) - nth <= _LAST_TRIES):
                self.gave_up = True
                continue
            piece = self._readers[number].read(lines, index)
            if piece is None or piece.first <= done:
                self._failures[number] += 1
                self._all_failures += 1
                continue
            yield _told_by(_shortened(piece), lines)
            done = max(done, piece.last)


def _shortened(piece: TextReport) -> TextReport:
    """The report with its messages cut to the length of phrases."""
    messages = piece.crash.messages or ()
    if all(len(text) <= LONGEST for one in messages for text in (one.text, *one.fields.values())):
        return piece
    short = tuple(
        msgspec.structs.replace(
            one, text=one.text[:LONGEST], fields={name: value[:LONGEST] for name, value in one.fields.items()}
        )
        for one in messages
    )
    return replace(piece, crash=msgspec.structs.replace(piece.crash, messages=short))


def _told_by(piece: TextReport, lines: Sequence[Line]) -> TextReport:
    """The report with its writer, and with what tells whether another one is of the same process."""
    own = lines[bisect_left(lines, piece.first, key=_number) :]
    own = own[: bisect_left(own, piece.last + 1, key=_number)]
    content = hashlib.blake2b(digest_size=12)
    threads: set[str] = set()
    for line in own:
        text = line.text.strip()
        content.update(text.encode("utf-8", "replace") + b"\n")
        if (match := _THREAD.match(text[:LONGEST])) and (len(threads) < _THREADS or "Current" in text):
            threads.add(match["number"] or match["tid"])
    return replace(piece, writer=own[0].writer if own else "", threads=frozenset(threads), content=content.hexdigest())


_number = attrgetter("number")
