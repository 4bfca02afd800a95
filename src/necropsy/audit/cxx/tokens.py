"""C++ text -> tokens, as far as macros and constant expressions need them. Text is Latin-1: one character, one byte."""

from __future__ import annotations

import re
from collections.abc import Iterator

_RAW = r'(?:u8|u|U|L)?R"(?P<{0}>[^()\\\s]{{0,16}})\((?s:.*?)\)(?P={0})"'
_STRING = r'"(?:\\.|\\\n|[^"\\\n])*"?'
_CHARACTER = r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'?"
_COMMENTED = re.compile(
    rf"(?P<comment>//(?:\\\r?\n|[^\n])*|/\*(?s:.*?)(?:\*/|\Z))|{_RAW.format('first')}|{_STRING}|{_CHARACTER}"
)
TOKEN = re.compile(
    rf"(?P<literal>{_RAW.format('second')}|{_STRING}|{_CHARACTER})|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<number>\.?[0-9](?:[eEpP][+-]|'?[\w.])*)|(?P<space>[^\S\n]+|\n)|(?P<sign>::|->|<<|>>|<=|>=|==|!=|&&|\|\||##|.)",
    re.DOTALL,
)
"""One token; ``lastgroup`` is not its kind (raw strings have a group of their own): ask ``kind_of``."""
_NOT_NEWLINE = re.compile(r"[^\n]")
_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(_OPENING.values())


def blank(text: str) -> str:
    """As many blanks, with the same line ends."""
    return _NOT_NEWLINE.sub(" ", text)


def without_comments(text: str) -> str:
    """The text with a blank for each character of a comment; every offset stays valid."""
    return _COMMENTED.sub(lambda found: blank(found[0]) if found["comment"] is not None else found[0], text)


def kind_of(token: re.Match[str]) -> str:
    """``literal``, ``name``, ``number``, ``space`` or ``sign``."""
    return next(one for one in ("name", "space", "sign", "number", "literal") if token[one] is not None)


def tokens(text: str, start: int = 0) -> Iterator[re.Match[str]]:
    """All tokens from ``start`` on."""
    return TOKEN.finditer(text, start)


def closing(text: str, start: int, *, longest: int = 1 << 20) -> int | None:
    """Where the bracket at ``start`` is closed; None where it is not."""
    depth = 0
    for one in TOKEN.finditer(text, start, min(len(text), start + longest)):
        sign = one["sign"]
        if sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            depth -= 1
            if depth == 0:
                return one.start()
    return None


def arguments(text: str, *, angles: bool = True) -> list[str]:
    """What commas outside of brackets separate; with ``angles``, those between ``<`` and ``>`` do not count either."""
    return [text[start:end].strip() for start, end in argument_spans(text, angles=angles)]


def argument_spans(text: str, *, angles: bool = True) -> list[tuple[int, int]]:
    """As ``arguments``, as offsets."""
    spans, depth, pointed, start = [], 0, 0, 0
    for one in TOKEN.finditer(text):
        sign = one["sign"]
        if sign is None:
            continue
        if sign in _OPENING:
            depth += 1
        elif sign in _CLOSING:
            depth -= 1
        elif angles and sign == "<" and re.search(r"[A-Za-z_]\w*\s*$", text[max(0, one.start() - 80) : one.start()]):
            pointed += 1
        elif angles and sign in {">", ">>"}:
            pointed = max(0, pointed - len(sign))
        elif sign == "," and depth == 0 and pointed == 0:
            spans.append((start, one.start()))
            start = one.end()
    if spans or text[start:].strip():
        spans.append((start, len(text)))
    return spans
