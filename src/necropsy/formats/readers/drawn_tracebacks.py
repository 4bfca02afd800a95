"""Tracebacks that Python itself does not print: IPython's and Jupyter's, rich's boxes; a syntax error without a head.

Formats: IPython/core/ultratb.py of 5 to 9, rich/traceback.py of 10 to 14 (with box drawing or in ASCII), Python's own
for a main script that cannot be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from necropsy.formats import tracebacks
from necropsy.formats.lines import Line
from necropsy.formats.text_reports import TextReader, TextReport
from necropsy.formats.tracebacks import KIND, TracebackPlace
from necropsy.lazy_re import regex
from necropsy.model import Crash, Message

_REACH = 600
_LONGEST = 600
_EXCEPTION = regex(r"(?P<type>[A-Za-z_][\w.]{0,200}): ?(?P<text>.*)$|(?P<bare>[A-Za-z_][\w.]{0,200})$")
_CAUSE, _CONTEXT = "The above exception was the direct cause", "During handling of the above exception"


@dataclass
class _Chain:
    """The exceptions of one chain, the first one raised first."""

    messages: list[Message] = field(default_factory=list)
    link: str = ""

    def add(self, line: Line, places: Sequence[TracebackPlace], exception: str | None, text: str) -> None:
        fields = tracebacks.fields_of(places, exception, text)
        if self.link:
            fields["chained"] = self.link
        where = f"log line {line.number}"
        last = Message(kind=KIND, text=line.text.strip(), where=where, line=line.number, fields=fields)
        self.messages = [tracebacks.join(self.messages[-1], last) if self.messages else last]
        self.link = ""

    def goes_on(self, text: str) -> bool:
        if text.startswith(_CAUSE):
            self.link = "cause"
        elif text.startswith(_CONTEXT):
            self.link = "context"
        return bool(self.link)

    def piece(self, kind: str, lines: Sequence[Line], first: int, last: int) -> TextReport | None:
        if not self.messages:
            return None
        return TextReport(
            kind=kind, first=lines[first].number, last=lines[last].number, crash=Crash(messages=tuple(self.messages))
        )


def _exception(text: str) -> tuple[str, str] | None:
    match = _EXCEPTION.match(text[:_LONGEST].rstrip())
    name = (match["type"] or match["bare"]) if match else None
    return (name, ((match and match["text"]) or "").strip()) if name and tracebacks.is_exception(name) else None


# ---------------------------------------------------------------- IPython

_HEAD = regex(r"(?P<type>[A-Za-z_]\w{0,100}) {2,120}Traceback \(most recent call last\)\s*$")
_CELL = regex(r"(?P<file>(?:Cell|Input) In ?\[\d{1,9}\]),? (?:line (?P<line>\d{1,9}))?(?:, )?(?:in (?P<function>.+))?$")
_FILE = regex(r"File (?P<file>[^\s:](?:[^:]|:(?!\d)){0,1000}):(?P<line>\d{1,9})(?:, in (?P<function>.+))?$")
_OLD = regex(r"(?P<file>[~./\\<\w].{0,1000}?) in (?P<function>[\w.<>]{1,200}(?: line: \d+>)?(?:\(.*)?)$")
_ARROW = regex(r"-{1,8}> (?P<line>\d{1,9})(?: |$)")


def _ipython(lines: Sequence[Line], index: int) -> TextReport | None:
    chain = _Chain()
    at: int | None = index
    last = index
    while at is not None:
        head = _HEAD.match(lines[at].text[:_LONGEST])
        if head is None:
            break
        found = _ipython_stack(lines, at, head["type"])
        if found is None:
            break
        places, (name, text), last = found
        chain.add(lines[at], places, name, text)
        at = next(
            (n for n in range(last + 1, min(len(lines), last + 5)) if _HEAD.match(lines[n].text[:_LONGEST])), None
        )
        if at is None or not any(chain.goes_on(line.text) for line in lines[last + 1 : at]):
            break
    return chain.piece("ipython-traceback", lines, index, last)


def _ipython_stack(
    lines: Sequence[Line], index: int, kind: str
) -> tuple[list[TracebackPlace], tuple[str, str], int] | None:
    """The stack below the head at ``index``; it ends with the exception that the head names."""
    places: list[TracebackPlace] = []
    for at in range(index + 1, min(len(lines), index + 1 + _REACH)):
        text = lines[at].text[:_LONGEST]
        if (found := _exception(text)) and found[0].rsplit(".", 1)[-1] == kind:
            return places, found, at
        if match := _ARROW.match(text):
            if places and not places[-1].line:
                places[-1] = TracebackPlace(places[-1].file, match["line"], places[-1].function)
        elif match := _CELL.match(text) or _FILE.match(text) or _OLD.match(text):
            groups = match.groupdict()
            places.append(TracebackPlace(groups["file"], groups.get("line") or "", _function(groups["function"])))
        elif _HEAD.match(text):
            return None
    return None


def _function(text: str | None) -> str:
    name = (text or "").partition("(")[0]
    return name if name and not name.startswith("<cell line") else "<module>"


# ---------------------------------------------------------------- rich

_TOP = regex(
    r"[\u256d\u250c+][\u2500-]{1,300} ?Traceback \(most recent call last\) ?[\u2500-]{0,300}[\u256e\u2510+]\s*$"
)
_BOTTOM = regex(r"[\u2570\u2514+][\u2500-]{10,400}[\u256f\u2518+]\s*$")
_ROW = regex(r"[\u2502|] (?P<text>.*) [\u2502|]\s*$")
_WHERE = regex(r"(?P<file>\S.{0,1500}):(?P<line>\d{1,9}) in (?P<function>.{1,300})$")


def _rich(lines: Sequence[Line], index: int) -> TextReport | None:
    chain = _Chain()
    at: int | None = index
    last = index
    while at is not None and _TOP.match(lines[at].text[:_LONGEST]):
        places, end = _rich_stack(lines, at)
        found = _exception(lines[end + 1].text) if end is not None and end + 1 < len(lines) else None
        if end is None or found is None:
            break
        last = end + 1
        chain.add(lines[at], places, *found)
        at = next((n for n in range(last + 1, min(len(lines), last + 8)) if _TOP.match(lines[n].text[:_LONGEST])), None)
        if at is None or not any(chain.goes_on(line.text) for line in lines[last + 1 : at]):
            break
    return chain.piece("rich-traceback", lines, index, last)


def _rich_stack(lines: Sequence[Line], index: int) -> tuple[list[TracebackPlace], int | None]:
    """The places in the box below ``index``, and the index of its lower edge."""
    places: list[TracebackPlace] = []
    where = ""
    for at in range(index + 1, min(len(lines), index + 1 + _REACH)):
        text = lines[at].text[: 2 * _LONGEST]
        if _BOTTOM.match(text):
            return places, at
        match = _ROW.match(text)
        if match is None:
            return places, None
        row = match["text"]
        if row.strip() and row[0] not in " \u2771>\\\u256d\u2570\u2502|":
            # A long path goes on in the next row: in the middle of a word where this one is full.
            where += row if row[-1] != " " else row.rstrip() + " "
            continue
        if match := _WHERE.match(where.strip()):
            places.append(TracebackPlace(match["file"], match["line"], match["function"].strip()))
        where = ""
    return places, None


# ---------------------------------------------------------------- a script that cannot be compiled

_SYNTAX = regex(r"(?P<type>SyntaxError|IndentationError|TabError): (?P<text>.+)")
_IN_FILE = regex(r'  File "(?P<file>[^"]{1,1000})", line (?P<line>\d{1,9})$')


def _syntax(lines: Sequence[Line], index: int) -> TextReport | None:
    match = _SYNTAX.match(lines[index].text)
    if match is None:
        return None
    for at in range(index - 1, max(-1, index - 5), -1):
        place = _IN_FILE.match(lines[at].text)
        if place is None and not lines[at].text.startswith("  ") and lines[at].text.strip():
            return None
        if place is None:
            continue
        above = lines[at - 1].text if at else ""
        if above.startswith("  ") or "Traceback (most" in above:
            return None  # the last frame of a traceback with a head
        chain = _Chain()
        chain.add(
            lines[index],
            [TracebackPlace(place["file"], place["line"], "<module>")],
            match["type"],
            match["text"].strip(),
        )
        return chain.piece("syntax-error", lines, at, index)
    return None


def _reader(
    kind: str, triggers: tuple[str, ...], read: Callable[[Sequence[Line], int], TextReport | None]
) -> TextReader:
    return TextReader(kind=kind, triggers=triggers, read=read, reach=_REACH)


READERS = (
    _reader("ipython-traceback", ("  Traceback (most recent call last)",), _ipython),
    _reader(
        "rich-traceback",
        ("\u2500 Traceback (most recent call last) ", "- Traceback (most recent call last) -"),
        _rich,
    ),
    _reader("syntax-error", ("SyntaxError: ", "IndentationError: ", "TabError: "), _syntax),
)
