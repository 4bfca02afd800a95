"""Finds the known messages in a log's text.

``digest`` reads a stream of any size: ``formats.log_sampler`` finds the stretches around known literals,
``formats.log_excerpts`` makes lines of them, in which phrases are looked up and the readers of ``formats.readers``
start. Messages of several lines have their own functions: an exception's ``what():``, the ``Status:`` line of a failed
check; tracebacks are in ``formats.tracebacks``. All are linear in the text and accept any text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from necropsy.formats import sanitizers, tracebacks
from necropsy.formats.byte_windows import ByteSpan
from necropsy.formats.decoding import Text, plain
from necropsy.formats.first_last import FirstLast
from necropsy.formats.lines import FATAL, Line
from necropsy.formats.literal_search import finder, passing_finder
from necropsy.formats.log_excerpts import CUT, Excerpt, ballot, excerpts, tail
from necropsy.formats.log_prefixes import Unwrap
from necropsy.formats.log_sampler import MOST, LogSample, sift
from necropsy.formats.phrases import found_in, phrases
from necropsy.formats.piece_search import LONGEST, PieceSearch
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.model import Gap, Message

_STATUS = re.compile(r"(?:s|S)tatus: (?P<status>.+)")
_WHAT = re.compile(r"\s{0,8}what\(\): {0,2}(?P<what>.*)")
_HOW_FAR = 4
"""Lines in which a message's second line is looked for: another thread may have written in between."""


TAIL = (200, 64 << 10)
"""Lines and bytes of a log's end that are kept for people to read."""
_GAPS = 4
"""Words that stand too often in a text whose numbers are told one by one."""

_MOST_MESSAGES, _MOST_PIECES = 50, 10
"""Messages and pieces of one kind that are kept from the beginning, and as many from the end."""


@dataclass(frozen=True)
class Digest:
    """What one text says: ``messages`` and ``pieces`` in the order of their lines, ``tail`` its last lines.

    ``lines`` and ``bytes`` count all of the input. No two pieces of one reader share a line; those of two writers whose
    lines are mixed may overlap.
    """

    messages: tuple[Message, ...]
    pieces: tuple[TextReport, ...]
    tail: str
    lines: int
    bytes: int
    gaps: tuple[Gap, ...] = ()
    writers: Mapping[int, str] = field(default_factory=dict)
    """By the line of a message: who wrote it, where the log's collector says so."""


def digest(stream: BinaryIO, where: str = "log") -> Digest:
    """The known messages of ``stream``, of any size and encoding; ``where`` names it in their places.

    Raises InputError where its packing is not supported (zip, zstd), and OSError where it cannot be read.
    """
    from necropsy.formats.readers import readers

    text = Text(stream)
    words = known_words(readers())
    sifted = sift(text, words)
    unwrap = ballot(sifted.runs)
    messages = FirstLast[Message](_MOST_MESSAGES)
    pieces = FirstLast[TextReport](_MOST_PIECES)
    search = PieceSearch(readers())
    writers: dict[int, str] = {}
    for excerpt in excerpts(sifted.runs, words, finder(words), unwrap):
        for message in messages_of(excerpt, where):
            messages.add(message.kind, message)
        writers |= writers_of(excerpt)
        for piece in search.pieces(excerpt):
            pieces.add(piece.kind, piece)
    return Digest(
        messages=tuple(chained(sorted(messages.all(), key=lambda message: message.line or 0))),
        pieces=tuple(sorted(pieces.all(), key=lambda piece: piece.first)),
        tail=tail(sifted.runs, *TAIL, unwrap),
        lines=sifted.lines,
        bytes=text.bytes,
        gaps=(
            *text.gaps,
            *_left_out(sifted),
            *search.left_out(),
            *messages.left_out("messages"),
            *pieces.left_out("pieces"),
        ),
        writers=writers,
    )


def scan(text: str, where: str = "log") -> tuple[Message, ...]:
    """Known messages in order, ``line`` counted from 1; ``where="log"`` becomes ``log line 12``, others stay."""
    runs = (ByteSpan(0, 1, plain(text.encode("utf-8", "replace"))),)
    words = _words(_of_phrases())
    messages = FirstLast[Message](_MOST_MESSAGES)
    # Nobody collects what a process says itself; and it is dying: nothing is prepared for more than one text.
    for excerpt in excerpts(runs, words, passing_finder(words), Unwrap()):
        for message in _messages(excerpt, lambda line: f"log line {line.number}" if where == "log" else where):
            messages.add(message.kind, message)
    return tuple(chained(sorted(messages.all(), key=lambda message: message.line or 0)))


def known_words(readers: Sequence[TextReader]) -> tuple[bytes, ...]:
    """Every literal that phrases and ``readers`` look for."""
    return _words(_of_phrases(), *(reader.triggers for reader in readers))


def _of_phrases() -> tuple[str, ...]:
    """What phrases must hold, and the beginnings of fatal lines, which are read whatever they say."""
    return (*(one.must for one in phrases()), *FATAL)


def _words(*many: Iterable[str]) -> tuple[bytes, ...]:
    return tuple(dict.fromkeys(word.encode() for words in many for word in words))


def _left_out(sifted: LogSample) -> list[Gap]:
    gaps: list[Gap] = []
    if not sifted.whole:
        read = sum(run.data.count(b"\n") for run in sifted.runs)
        why = f"of {sifted.lines} lines {min(read, sifted.lines)} were read: both ends, and what is around known words"
        gaps.append(Gap(part="log", why=why))
    most_first = sorted(sifted.often.items(), key=lambda item: -item[1])
    for word, times in most_first[:_GAPS]:
        least = "at least " if word in sifted.missed else ""
        why = (
            f"\u201c{word.decode().strip()}\u201d occurs {least}{times} times: "
            f"at most the first and last {MOST} lines were read"
        )
        gaps.append(Gap(part="log", why=why))
    if len(most_first) > _GAPS:
        why = f"{len(most_first) - _GAPS} more known phrases occur too often to be read everywhere"
        gaps.append(Gap(part="log", why=why))
    return gaps


def messages_of(excerpt: Excerpt, where: str) -> Iterator[Message]:
    """The known messages of an excerpt; ``where`` names the text in their places."""
    return _messages(excerpt, lambda line: f"{where} line {line.number}")


def writers_of(excerpt: Excerpt) -> dict[int, str]:
    """Who wrote the marked lines of an excerpt, by their numbers, where the log's collector says so."""
    marked = (excerpt.lines[index] for index, _ in excerpt.marks)
    return {line.number: line.writer for line in marked if line.writer}


def _messages(excerpt: Excerpt, place: Callable[[Line], str]) -> Iterator[Message]:
    lines = excerpt.lines
    read = -1
    for index, held in excerpt.marks:
        line = lines[index]
        known = list(found_in(line.message, {word.decode() for word in held}))
        if not known and line.fields.get("level") == "F" and line.message.strip():
            # LOG(FATAL): its envelope says that the program ends here, whatever the words.
            fields = {**line.fields, "what": line.message.strip()[:LONGEST]}
            yield Message(kind="fatal-log", text=_shown(line), where=place(line), line=line.number, fields=fields)
        for phrase, match in known:
            fields = {**line.fields, **{name: value for name, value in match.groupdict().items() if value is not None}}
            if phrase.id == tracebacks.KIND:
                if index <= read:
                    continue  # of an exception group that was read already
                more, read = _traceback(lines, index)
                fields |= more
            elif follow := _FOLLOWERS.get(phrase.id):
                fields = follow(lines, index, fields)
            fields = {name: value[:LONGEST] for name, value in fields.items()}
            text = _shown(line, match)
            yield Message(kind=phrase.id, text=text, where=place(line), line=line.number, fields=fields)


def _shown(line: Line, match: re.Match[str] | None = None) -> str:
    """The line as quoted; of a long one the part around the known words."""
    text = line.text.strip()
    if len(text) <= LONGEST:
        return text
    start = 0 if match is None else line.text.find(match[0]) - LONGEST // 4
    part = text[max(0, start) : max(0, start) + LONGEST]
    return (f"{CUT}{part}" if start > 0 else part).strip() + CUT.rstrip()


def chained(messages: Sequence[Message]) -> list[Message]:
    """The messages; a traceback takes in those that it was chained to, since the last exception counts."""
    kept: list[Message] = []
    for message in messages:
        chained = message.fields.get("chained")
        if message.kind == tracebacks.KIND and chained:
            index = next((i for i in range(len(kept) - 1, -1, -1) if kept[i].kind == tracebacks.KIND), None)
            if index is not None:
                message = tracebacks.join(kept.pop(index), message)  # noqa: PLW2901 - the same message, completed
        kept.append(message)
    return kept


# ---------------------------------------------------------------- messages of several lines

_Follower = Callable[[Sequence[Line], int, dict[str, str]], dict[str, str]]


def _check_failed(_lines: Sequence[Line], _index: int, fields: dict[str, str]) -> dict[str, str]:
    expression, operands, detail = split_check(fields["expression"])
    fields["expression"] = expression.replace("::tsl::TfCheckOkDeprecationMarker(), ", "")
    if expression.endswith(" is OK") and operands:
        fields["status"] = operands
    elif operands:
        fields["operands"] = operands
    if detail:
        fields["detail"] = detail
    return fields


def split_check(text: str) -> tuple[str, str | None, str | None]:
    """``expression``, the values in brackets, and the text behind them, of a CHECK's message.

    Only ``CHECK_EQ`` and its family print values, as ``(a vs. b)``; in ``CHECK(x) << text`` nothing marks the end of
    the expression, so it takes all.
    """
    middle = text.find(" vs. ")
    opening = text.rfind(" (", 0, middle) if middle >= 0 else text.find(" is OK (")
    if opening < 0:
        return text.strip(), None, None
    if middle < 0:
        opening += len(" is OK")
    closing = _closing(text, opening + 1)
    return text[:opening].strip(), text[opening + 2 : closing].strip(), text[closing + 1 :].strip() or None


def _closing(text: str, opening: int) -> int:
    """Index of the bracket that closes the one at ``opening``, or the text's end."""
    depth = 0
    for index in range(opening, len(text)):
        if text[index] == "(":
            depth += 1
        elif text[index] == ")":
            depth -= 1
            if depth == 0:
                return index
    return len(text)


def _non_ok_status(lines: Sequence[Line], index: int, fields: dict[str, str]) -> dict[str, str]:
    """The status: behind the expression (TensorFlow up to 2.15) or on the next line."""
    head, separator, status = fields["expression"].partition(" status: ")
    fields["expression"] = head.strip()
    if separator:
        fields["status"] = status.strip()
        return fields
    for line in lines[index + 1 : index + 1 + _HOW_FAR]:
        if match := _STATUS.match(line.text):
            fields["status"] = match["status"].strip()
            break
    return fields


def _terminate(lines: Sequence[Line], index: int, fields: dict[str, str]) -> dict[str, str]:
    """The ``what():`` line, and the text of several lines directly below it."""
    for line in lines[index + 1 : index + 1 + _HOW_FAR]:
        if match := _WHAT.match(line.text):
            fields["what"] = match["what"].strip()
            break
    return fields


def _last_words(lines: Sequence[Line], index: int, fields: dict[str, str]) -> dict[str, str]:
    """A panic of Rust has its place on one line, and its text on the next (since 1.73)."""
    if "panicked at " in lines[index].text and fields.get("what", "").rstrip().endswith(":"):
        following = next((line.message.strip() for line in lines[index + 1 : index + 2]), "")
        if following and not following.startswith(("stack backtrace:", "note: ")):
            fields["what"] = f"{following} ({fields['what'].rstrip().removesuffix(':')})"
    if "Java Runtime Environment" in fields.get("what", ""):
        # The signal, the call that got no memory, and the library stand on lines of their own.
        below = [line.message.lstrip("# ").strip() for line in lines[index + 1 : index + 1 + _JAVA]]
        more = [one for one in below if _OF_JAVA.match(one)]
        fields["what"] = "; ".join([fields["what"], *dict.fromkeys(more)])
    if fields.get("what", "").startswith("Fatal error in ") and index + 1 < len(lines):
        fields["what"] = f"{lines[index + 1].message.lstrip('# ').strip()} ({fields['what']})"  # V8
    return fields


_JAVA = 16
"""Lines of the Java machine's report that are looked at."""
_OF_JAVA = re.compile(r"SIG[A-Z]{2,6} \(0x|[CVJj] {1,2}\[?\S|Native memory allocation|Internal Error \(")


def _traceback(lines: Sequence[Line], index: int) -> tuple[dict[str, str], int]:
    begin = max(0, index - tracebacks.BEFORE)
    fields, last = tracebacks.read([line.text for line in lines[begin : index + 1 + tracebacks.LINES]], index - begin)
    return fields, last + begin


def _faulthandler(lines: Sequence[Line], index: int, fields: dict[str, str]) -> dict[str, str]:
    return fields | tracebacks.dump_fields([line.text for line in _window(lines, index)])


def _sanitizer(lines: Sequence[Line], index: int, fields: dict[str, str]) -> dict[str, str]:
    found = sanitizers.report([line.text for line in lines[index + 1 : index + 1 + sanitizers.LINES]])
    if "tool" in fields:
        fields["kind"] = sanitizers.kind_of(fields["kind"] + fields.get("detail", ""))
    return found | fields


def _window(lines: Sequence[Line], index: int) -> Sequence[Line]:
    return lines[index + 1 : index + 1 + tracebacks.LINES]


_FOLLOWERS: Mapping[str, _Follower] = {
    "check-failed": _check_failed,
    "non-ok-status": _non_ok_status,
    "cpp-terminate": _terminate,
    "faulthandler": _faulthandler,
    "last-words": _last_words,
    "sanitizer": _sanitizer,
    "python-fatal": _faulthandler,
}
