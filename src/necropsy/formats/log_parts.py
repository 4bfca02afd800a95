"""A log of any length, part by part: all that each part says, in bounded memory.

``formats.log.digest`` keeps the first and the last of each kind, which is enough for one death. Here nothing is left
out. Where parts end depends only on what is before: when the log grows, its earlier parts stay what they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import BinaryIO

from necropsy.formats.byte_windows import ByteSpan, ByteWindow, joined
from necropsy.formats.decoding import Text
from necropsy.formats.lines import Line
from necropsy.formats.literal_search import Hit, finder
from necropsy.formats.log import chained, known_words, messages_of, writers_of
from necropsy.formats.log_excerpts import ballot, excerpts
from necropsy.formats.log_prefixes import Unwrap
from necropsy.formats.log_sampler import WHOLE_BYTES, whole_rows
from necropsy.formats.piece_search import PieceSearch
from necropsy.formats.text_reports import TextReport
from necropsy.model import Message

SIZE = WHOLE_BYTES
"""Bytes of a part at most, besides the block of text that makes it too large."""
_AROUND = (100, 16 << 10, 400, 64 << 10)
"""Lines and bytes before a known word and behind it that are read: as much as any reader looks at."""
_AHEAD = 1 << 10
"""Bytes before a known word that go with it into the next part ..."""
_FAR_APART = 16 << 10
"""... if so many or more are between it and the word before, whose text they may belong to."""
_LONGER = 4
"""How much longer than any other the stretch at the end must be: it may be the middle of a long text."""
_EVERY = 1 << 30
"""All places of a known word are read."""
_start = itemgetter(1)


@dataclass(frozen=True)
class LogPart:
    """What one part says, in the order of its lines, which are counted from the beginning of the log.

    ``writers``: by the line of a message, who wrote it. ``lines``: of each writer, what was read around known words.
    ``end``: the number of the line behind it.
    """

    messages: tuple[Message, ...]
    pieces: tuple[TextReport, ...]
    writers: Mapping[int, str]
    lines: Mapping[str, Sequence[Line]]
    end: int


def parts(stream: BinaryIO, where: str = "log", row: int = 1) -> Iterator[LogPart]:
    """The parts of ``stream``, whose first line is ``row``; ``where`` names it in the places of messages.

    Raises InputError where its packing is not supported (zip, zstd), and OSError where it cannot be read.
    """
    from necropsy.formats.readers import readers

    words = known_words(readers())
    offset = 0
    for data, hits in _cut(whole_rows(Text(stream)), words):
        whole = (ByteSpan(offset, row, data),)
        end = row + data.count(b"\n")
        # Of the first part everything is read, as of any short log, because some texts are one block.
        runs = _around(data, hits, offset, row) if offset else whole
        yield _part(runs, words, ballot(whole), where, end) if hits else LogPart((), (), {}, {}, end)
        offset += len(data)
        row = end


def _cut(blocks: Iterator[bytes], words: tuple[bytes, ...]) -> Iterator[tuple[bytes, Sequence[Hit]]]:
    """The text in parts of about ``SIZE``, with the known words in each."""
    find = finder(words)
    data = b""
    for block in blocks:
        data += block
        if len(data) < SIZE:
            continue
        hits = sorted(find(data), key=_start)
        end = _quiet_place(data, hits)
        yield data[:end], [hit for hit in hits if hit[1] < end]
        data = data[end:]
    if data:
        yield data, sorted(find(data), key=_start)


def _quiet_place(data: bytes, hits: Sequence[Hit]) -> int:
    """Where to end a part: in the second half, at the end of the longest stretch without known words."""
    half = len(data) // 2
    edges = [half, *(hit[1] for hit in hits if hit[1] > half)]
    gaps = [(after - before, after) for before, after in zip(edges, [*edges[1:], len(data)], strict=True)]
    last, (length, end) = gaps[-1][0], max(gaps[:-1], default=(0, half))
    if last >= min(_AROUND[3], _LONGER * length):
        return len(data)
    wanted = max(end - (_AHEAD if length >= _FAR_APART else 0), 1)
    return data.rfind(b"\n", 0, wanted) + 1 or data.find(b"\n", wanted) + 1 or len(data)


def _around(data: bytes, hits: Sequence[Hit], offset: int, row: int) -> Sequence[ByteSpan]:
    window = ByteWindow(data, offset, row)
    return [window.run(start, end) for start, end in joined([window.around(hit[1], _AROUND) for hit in hits])]


def _part(runs: Sequence[ByteSpan], words: tuple[bytes, ...], unwrap: Unwrap, where: str, end: int) -> LogPart:
    from necropsy.formats.readers import readers

    messages: list[Message] = []
    pieces: list[TextReport] = []
    writers: dict[int, str] = {}
    lines: dict[str, list[Line]] = {}
    search = PieceSearch(readers())
    for excerpt in excerpts(runs, words, finder(words), unwrap, most=_EVERY):
        messages += messages_of(excerpt, where)
        pieces += search.pieces(excerpt)
        writers |= writers_of(excerpt)
        if excerpt.lines:
            lines.setdefault(excerpt.lines[0].writer, []).extend(excerpt.lines)
    messages.sort(key=lambda one: one.line or 0)
    pieces.sort(key=lambda one: one.first)
    return LogPart(tuple(chained(messages)), tuple(pieces), writers, lines, end)
