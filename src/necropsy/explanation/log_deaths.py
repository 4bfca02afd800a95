"""The deaths that one log tells of, each with the texts that are about it alone."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO

from necropsy.capture.death_marks import marks_of
from necropsy.capture.separate_deaths import LogDeath, Separator, separated
from necropsy.errors import InputError, NoInputError
from necropsy.explanation import archives, files
from necropsy.explanation.inputs import Inputs, digests, said_place
from necropsy.formats.lines import Line
from necropsy.formats.log import TAIL, Digest
from necropsy.formats.log_parts import LogPart, parts
from necropsy.formats.text_reports import TextReport

_ENDS = frozenset({"dump", "bare", "end", "lost"})
_NOTHING = Digest((), (), "", 0, 0)
_number = attrgetter("number")


@dataclass(frozen=True)
class ToldDeath:
    """One of the deaths of a text. ``place``: which of them, from 0; ``line``: where it begins."""

    place: int
    line: int
    digest: Digest


def first_lines(read: Sequence[Digest]) -> tuple[int, ...]:
    """Where the deaths begin in texts that were read as for one; ``read_each`` reads more than one."""
    return tuple(death.first for one in read for death in separated(one.messages, one.pieces, one.writers))


def read_each(stream: BinaryIO, name: str, use: Callable[[ToldDeath], None]) -> int:
    """Read a text, packed or not, or the texts of an archive, and give ``use`` one death after the other.

    They come in the order in which they begin. Returns how many texts of further deaths there are, beyond those that
    can be told apart.

    Raises ``InputError`` where it cannot be unpacked, and ``OSError`` where it cannot be read.
    """
    reading = _Reading(use)
    digests(stream, name, reading.text)
    reading.end()
    return reading.more


def at_line(path: Path, line: int) -> Inputs | None:
    """What a log says of the death that begins at ``line``, or of the last one before; None where it tells of one.

    Raises ``InputError`` where no death begins there or before, ``NoInputError`` where the file cannot be read.
    """
    found: list[ToldDeath] = []
    count = 0

    def use(death: ToldDeath) -> None:
        nonlocal count
        count += 1
        if death.line <= line:
            found[:] = [death]

    try:
        stream, _ = files.opened(path)
        with stream:
            read_each(stream, str(path), use)
    except OSError as error:
        raise NoInputError(f"cannot read {path}: {error.strerror or error}") from error
    if count <= 1:
        return None
    if not found:
        raise InputError(f"{path} tells of no death at line {line} or before")
    return Inputs(words=(str(path),), digests=(found[0].digest,), sources=(str(path),))


class _Reading:
    def __init__(self, use: Callable[[ToldDeath], None]) -> None:
        self._use = use
        self._places = 0
        self._separator = Separator()
        self._row = 1
        self._lines: dict[str, list[Line]] = {}
        """The last of each writer in the part before."""
        self.more = 0

    def text(self, stream: BinaryIO, name: str) -> Digest:
        """Take one text; the next one goes on where it ends, if it is not the log of a job."""
        if archives.is_job(name):
            self.end()
        for part in parts(stream, said_place(name), self._row):
            self._separator.take(part.messages, part.pieces, part.writers)
            self._keep_tails(part)
            self._give(self._separator.finished())
            self._row = part.end
        return _NOTHING

    def end(self) -> None:
        """Nothing more belongs to the deaths before."""
        self._give(self._separator.rest())
        self._places += len(self._separator.deaths)
        self.more += self._separator.more
        self._separator, self._row, self._lines = Separator(), 1, {}

    def _keep_tails(self, part: LogPart) -> None:
        """What each death's writer wrote before its end, behind the death before, without texts of others."""
        most, size = TAIL
        written = {writer: [*self._lines.get(writer, ()), *lines] for writer, lines in part.lines.items()}
        of_piece = {number: one for one in part.pieces if marks_of(one).role in _ENDS for number in _lines(one)}
        before: dict[str, int] = {}
        for death in self._separator.open:
            lines = written.get(death.writer, ())
            start = bisect_right(lines, before.get(death.writer, 0), key=_number)
            own = lines[start : bisect_right(lines, death.last, key=_number)][-most:]
            if own and own[-1].number >= death.first:
                pieces = set(map(id, death.pieces))
                told = (one for one in own if one.number not in of_piece or id(of_piece[one.number]) in pieces)
                death.tail = "\n".join(one.text for one in told)[-size:]
            before[death.writer] = max(before.get(death.writer, 0), death.last)
        self._lines = {writer: lines[-most:] for writer, lines in written.items()}

    def _give(self, deaths: Iterator[tuple[int, LogDeath]]) -> None:
        for place, death in deaths:
            found = Digest(
                messages=tuple(sorted(death.messages, key=lambda one: one.line or 0)),
                pieces=tuple(sorted(death.pieces, key=lambda one: one.first)),
                tail=death.tail,
                lines=death.last - death.first + 1,
                bytes=len(death.tail),
            )
            self._use(ToldDeath(self._places + place, death.first, found))


def _lines(piece: TextReport) -> range:
    return range(piece.first, piece.last + 1)
