"""A log's text -> the known messages in it.

A line is looked up once behind its envelope (the ``2026-11-20 21:17:51.617250: F file.cc:42] `` of TensorFlow, absl and
glog). What goes on over several lines is read by a follower of its kind: an exception's ``what():``, the ``Status:``
line of a failed check; tracebacks and faulthandler's dumps are in ``formats.tracebacks``.

``scan`` is linear in the text and takes any text whatsoever.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from necropsy.formats import sanitizers, tracebacks
from necropsy.formats.lines import Line
from necropsy.formats.phrases import found_in
from necropsy.formats.pieces import Piece
from necropsy.formats.readers import readers
from necropsy.model import Gap, Message

LONGEST = 4096
"""Characters of one line that are looked at; the cause of a death stands at the front of its line."""

_ENVELOPE = re.compile(
    r"(?:(?P<date>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}): (?P<level>[IWEF]) "
    r"|(?P<level_absl>[IWEF])\d{4}(?:\d{4})? \d\d:\d\d:[\d.]{5,24} +\d+ "
    r"|^(?P<level_old>[IWEF]) (?=\S+:\d+\] ))"
    r"(?P<file>[^\s\]]+):(?P<line>\d+)\] ?"
)
_COLOUR = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_STATUS = re.compile(r"(?:s|S)tatus: (?P<status>.+)")
_WHAT = re.compile(r"\s{0,8}what\(\): {0,2}(?P<what>.*)")
_HOW_FAR = 4
"""Lines in which a message's second line is looked for: another thread may have written in between."""


TAIL = 200
"""Lines of a log's end that are kept for people to read."""


@dataclass(frozen=True)
class Digest:
    """What one text says: ``messages`` and ``pieces`` in the order of their lines, ``tail`` its last lines.

    ``lines`` and ``bytes`` count all of the input. Of one reader, no two pieces share a line.
    """

    messages: tuple[Message, ...]
    pieces: tuple[Piece, ...]
    tail: str
    lines: int
    bytes: int
    gaps: tuple[Gap, ...] = ()


def digest(stream: BinaryIO, where: str = "log") -> Digest:
    """All that is known in ``stream``; ``where`` names it in the messages' places."""
    data = stream.read()
    text = data.decode("utf-8", "replace")
    lines = _lines(text)
    tail = "\n".join(line.text for line in lines[-TAIL:])
    pieces: list[Piece] = []
    for reader in readers():
        done = 0
        for index, line in enumerate(lines):
            if line.number > done and any(one in line.text for one in reader.triggers):
                piece = reader.read(lines, index)
                if piece is not None and piece.first > done:
                    pieces.append(piece)
                    done = piece.last
    pieces.sort(key=lambda piece: piece.first)
    return Digest(scan(text, where), tuple(pieces), tail, len(lines), len(data))


def scan(text: str, where: str = "log") -> tuple[Message, ...]:
    """The known messages of ``text`` in the order in which they were written.

    ``where`` names the place: ``log`` becomes ``log line 12``, anything else stays as it is. A message's ``line``
    counts from 1 at the beginning of ``text``.
    """
    lines = _lines(text)
    found: list[Message] = []
    for index, line in enumerate(lines):
        known = list(found_in(line.message))
        if not known and line.fields.get("level") == "F" and line.message.strip():
            found.append(_fatal(line, where))
        for phrase, match in known:
            fields = {**line.fields, **{name: value for name, value in match.groupdict().items() if value is not None}}
            follow = _FOLLOWERS.get(phrase.id)
            if follow is not None:
                fields = follow(lines, index, fields)
            found.append(
                Message(
                    kind=phrase.id,
                    text=line.text.strip(),
                    where=_place(line, where),
                    line=line.number,
                    fields=fields,
                )
            )
    return tuple(_chained(found))


def _place(line: Line, where: str) -> str:
    return f"log line {line.number}" if where == "log" else where


def _fatal(line: Line, where: str) -> Message:
    """``LOG(FATAL)``: its envelope says that the program ends here, whatever the words."""
    fields = {**line.fields, "what": line.message.strip()}
    return Message(kind="fatal-log", text=line.text.strip(), where=_place(line, where), line=line.number, fields=fields)


def _lines(text: str) -> list[Line]:
    # A progress bar is rewritten in place with carriage returns; what dies in the middle of one stands behind the last.
    rows = re.split(r"\r\n|\n", text)
    return [
        _line(number, row[-LONGEST:] if "\r" in row[-LONGEST:] else row[:LONGEST]) for number, row in enumerate(rows, 1)
    ]


def _line(number: int, row: str) -> Line:
    text = _COLOUR.sub("", row) if "\x1b" in row else row
    text = text.rstrip("\r").rsplit("\r", 1)[-1].replace("\x08", "")
    envelope = _ENVELOPE.search(text) if "] " in text else None
    if envelope is None:
        return Line(number, text, text.lstrip(), {})
    level = envelope["level"] or envelope["level_absl"] or envelope["level_old"]
    fields = {"level": level, "file": envelope["file"], "source_line": envelope["line"]}
    return Line(number, text, text[envelope.end() :], fields)


def _chained(messages: Sequence[Message]) -> list[Message]:
    """The messages with every traceback that was chained to an earlier one taken into it: the last exception counts."""
    kept: list[Message] = []
    for message in messages:
        chained = message.fields.get("chained")
        if message.kind == "python-traceback" and chained:
            index = next((i for i in range(len(kept) - 1, -1, -1) if kept[i].kind == "python-traceback"), None)
            if index is not None:
                message = tracebacks.join(kept.pop(index), message)  # noqa: PLW2901 - the same message, completed
        kept.append(message)
    return kept


# ---------------------------------------------------------------- messages of several lines

_Follower = Callable[[Sequence[Line], int, dict[str, str]], dict[str, str]]


def _check_failed(_lines: Sequence[Line], _index: int, fields: dict[str, str]) -> dict[str, str]:
    """Split ``a == b (1 vs. 2) text`` and ``X is OK (STATUS)`` into their parts."""
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

    Only ``CHECK_EQ`` and its family print values, as ``(a vs. b)``; of ``CHECK(x) << text`` nobody can say where the
    expression ends, so all of it is taken for the expression.
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
    """Index of the bracket that closes the one at ``opening``; the text's end where none does."""
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
    """The ``what():`` line, and what follows it directly: a text of several lines."""
    for line in lines[index + 1 : index + 1 + _HOW_FAR]:
        if match := _WHAT.match(line.text):
            fields["what"] = match["what"].strip()
            break
    return fields


def _traceback(lines: Sequence[Line], index: int, fields: dict[str, str]) -> dict[str, str]:
    return fields | tracebacks.traceback(
        [line.text for line in _window(lines, index)], [line.text for line in lines[max(0, index - 4) : index]]
    )


def _faulthandler(lines: Sequence[Line], index: int, fields: dict[str, str]) -> dict[str, str]:
    return fields | tracebacks.dump([line.text for line in _window(lines, index)])


def _sanitizer(lines: Sequence[Line], index: int, fields: dict[str, str]) -> dict[str, str]:
    found = sanitizers.report([line.text for line in lines[index + 1 : index + 1 + sanitizers.LINES]])
    return found | fields


def _window(lines: Sequence[Line], index: int) -> Sequence[Line]:
    """The lines behind ``index`` that may belong to its message."""
    return lines[index + 1 : index + 1 + tracebacks.LINES]


_FOLLOWERS: Mapping[str, _Follower] = {
    "check-failed": _check_failed,
    "non-ok-status": _non_ok_status,
    "cpp-terminate": _terminate,
    "python-traceback": _traceback,
    "faulthandler": _faulthandler,
    "sanitizer": _sanitizer,
    "python-fatal": _faulthandler,
}
