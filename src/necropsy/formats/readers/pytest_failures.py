"""The failed tests of a pytest run, with the exception and the place of each.

A failing test is not a death: the messages are of a kind of their own. Format: _pytest/_code/code.py and terminal.py of
pytest 3 to 9; the ``E`` before the exception is removed with other prefixes. ``--tb=native`` prints Python's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from necropsy.formats import tracebacks
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.formats.tracebacks import TracebackPlace
from necropsy.lazy_re import regex
from necropsy.model import Crash, Message

KIND = "test-failed"
_REACH = 4000
_MOST = 50
"""Failures that are told; a run with more has one cause for most of them."""
_SECTION = regex(r"={3,} (?:FAILURES|ERRORS) ={3,}\s*$")
_END = regex(r"={3,} .{1,200} ={3,}\s*$")
_TITLE = regex(r"_{3,} (?P<title>\S.{0,300}?) _{3,}\s*$")
_SHORT = regex(r"(?P<file>[^\s:](?:[^:]|:(?!\d)){0,500}):(?P<line>\d{1,9}): in (?P<function>.{1,200})$")
_LONG = regex(r"(?P<file>[^\s:](?:[^:]|:(?!\d)){0,500}):(?P<line>\d{1,9}): ?(?P<type>[A-Za-z_]\w{0,100})?\s*$")
_EXCEPTION = regex(r"\s{0,12}(?P<type>[A-Za-z_][\w.]{0,200}): ?(?P<text>.*)$")
_LONGEST = 800


def read(lines: Sequence[Line], index: int) -> TextReport | None:
    """All failures of the section whose head is at ``index``, and of the one below it."""
    if not _SECTION.match(lines[index].text[:_LONGEST]):
        return None
    messages: list[Message] = []
    last, title = index, index
    for at in range(index + 1, min(len(lines), index + 1 + _REACH)):
        text = lines[at].text[:_LONGEST]
        over = bool(_END.match(text)) and not _SECTION.match(text)
        if over or _TITLE.match(text) or _SECTION.match(text):
            messages += _failure(lines, title, at)
            title = at
        if over:
            break
        last = at
    else:
        messages += _failure(lines, title, last + 1)
    if not messages:
        return None
    crash = Crash(messages=tuple(messages[:_MOST]))
    return TextReport(kind="pytest-failures", first=lines[index].number, last=lines[last].number, crash=crash)


def _failure(lines: Sequence[Line], begin: int, end: int) -> list[Message]:
    """The failure between two titles; none where Python's own traceback shows it."""
    title = _TITLE.match(lines[begin].text[:_LONGEST])
    if title is None:
        return []
    places: list[TracebackPlace] = []
    name = text = None
    for line in lines[begin + 1 : end]:
        row = line.text[:_LONGEST]
        if tracebacks.HEAD in row:
            return []
        if match := _SHORT.match(row):
            places.append(TracebackPlace(match["file"], match["line"], match["function"].strip()))
        elif match := _LONG.match(row):
            places.append(TracebackPlace(match["file"], match["line"], ""))
            name = match["type"] if match["type"] and name is None else name
        elif (match := _EXCEPTION.match(row)) and tracebacks.is_exception(match["type"]) and not row.startswith("  "):
            name, text = match["type"], match["text"].strip()
        elif match and text is None and tracebacks.is_exception(match["type"]):
            text = match["text"].strip()
    if not places and name is None:
        return []
    fields = tracebacks.fields_of(places, name, text or "") | {"test": title["title"]}
    line = lines[begin]
    return [
        Message(kind=KIND, text=line.text.strip(), where=f"log line {line.number}", line=line.number, fields=fields)
    ]


READER = TextReader(kind="pytest-failures", triggers=("= FAILURES =", "= ERRORS ="), read=read, reach=_REACH)
