"""Expands a project's own macros, so that the number of lines stays as it was.

Tokens of an argument stay on the line that they were written on; what the macro adds stands on the line of its name.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.audit.cxx.known_macros import FUNCTIONS, KEPT, OBJECTS
from necropsy.audit.cxx.tokens import TOKEN, argument_spans, closing, kind_of

_DEFINITION = re.compile(r"\s*([A-Za-z_]\w*)(\(([^)]*)\))?(.*)", re.DOTALL)
_DEEPEST = 40
_MOST_TOKENS = 60_000
"""In one expansion; what would be larger is left as it is."""
_LONGEST_CALL = 1 << 18


@dataclass(frozen=True, slots=True)
class Token:
    """``at``: its offset in the source, where it is written there and not in a macro's body."""

    kind: str
    text: str
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Macro:
    """``parameters`` is None for one without a list of them; the last may be ``...``."""

    name: str
    parameters: tuple[str, ...] | None
    body: tuple[Token, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """What an expansion wrote (``start`` to ``end``), and from which text of the source; offsets of bytes."""

    start: int
    end: int
    source_start: int
    source_end: int
    macro: str
    anchors: tuple[tuple[int, int, int], ...] = ()
    """For each token that was copied from the source: its offset in this text, its offset in the source, its length."""


class _TooLargeError(Exception):
    pass


def split(text: str) -> tuple[Token, ...]:
    """The tokens of a macro's body; blanks as one blank."""
    return tuple(
        Token(kind, " " if kind == "space" else one[0]) for one in TOKEN.finditer(text) for kind in [kind_of(one)]
    )


def defined(text: str) -> Macro | None:
    """The macro of a ``#define`` line, given without this word; None where it is none."""
    match = _DEFINITION.fullmatch(text)
    if match is None:
        return None
    name, brackets, inner, body = match.groups()
    if brackets is None:
        return Macro(name, None, split(body.strip()))
    parameters = tuple(one.strip() for one in inner.split(",")) if inner.strip() else ()
    named = tuple("..." if one.endswith("...") else one for one in parameters)
    body = (
        re.sub(rf"\b{re.escape(parameters[-1][:-3])}\b", "__VA_ARGS__", body)
        if named[-1:] == ("...",) and len(parameters[-1]) > 3
        else body
    )
    return Macro(name, named, split(body.strip()))


class Table(dict[str, Macro]):
    """Macros by name; ``removed`` are those that were undefined."""

    def __init__(self) -> None:
        super().__init__()
        self.removed: set[str] = set()
        for name, text in OBJECTS.items():
            self[name] = Macro(name, None, split(text))
        for name, (parameters, text) in FUNCTIONS.items():
            self[name] = Macro(name, parameters, split(text))

    def define(self, macro: Macro) -> None:
        """Known meanings are kept: these are not redefined."""
        if macro.name not in KEPT and macro.name not in FUNCTIONS and macro.name not in OBJECTS:
            self[macro.name] = macro

    def undefine(self, name: str) -> None:
        """Forget a macro, and that it was there."""
        if self.pop(name, None) is not None:
            self.removed.add(name)


def expand(text: str, table: Table) -> tuple[str, list[Span]]:
    """The text with its macros expanded, and what was; it has as many lines as before."""
    out: list[str] = []
    spans: list[Span] = []
    lines = [one.start() for one in re.finditer("\n", text)]
    done, length, skip = 0, 0, 0
    for one in TOKEN.finditer(text):
        if one["name"] is None or one.start() < skip or one[0] not in table:
            continue
        macro = table[one[0]]
        found = _invoked(macro, text, one.end(), table)
        if found is None:
            continue
        macro, given, end = found
        try:
            tokens = _Expander(table).replaced(macro, given, frozenset(), 0)
        except (_TooLargeError, RecursionError):
            continue
        written, anchors = _written(tokens, one.start(), end, lines)
        before = text[done : one.start()]
        start = length + len(before)
        out += (before, written)
        length = start + len(written)
        spans.append(
            Span(start, length, one.start(), end, macro.name, tuple((start + to, at, size) for to, at, size in anchors))
        )
        done = skip = end
    out.append(text[done:])
    return "".join(out), spans


def _invoked(macro: Macro, text: str, end: int, table: Table) -> tuple[Macro, list[list[Token]], int] | None:
    """The macro, its arguments and where the call ends; None where its name stands without a list."""
    if macro.parameters is None:
        names = [one.text for one in macro.body if one.kind != "space"]
        other = table.get(names[0]) if len(names) == 1 else None
        if other is None or other.parameters is None:
            return macro, [], end
        macro = other  # another name of a macro with parameters
    at = end
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    if text[at : at + 1] != "(":
        return None
    close = closing(text, at, longest=_LONGEST_CALL)
    if close is None:
        return None
    inner = text[at + 1 : close]
    given = [_tokens_of(inner[start:stop], at + 1 + start) for start, stop in argument_spans(inner, angles=False)]
    return macro, given, close + 1


def _tokens_of(text: str, offset: int) -> list[Token]:
    found = [Token(kind_of(one), one[0], offset + one.start()) for one in TOKEN.finditer(text)]
    return _stripped(found)


def _stripped(tokens: Sequence[Token]) -> list[Token]:
    start, end = 0, len(tokens)
    while start < end and tokens[start].kind == "space":
        start += 1
    while end > start and tokens[end - 1].kind == "space":
        end -= 1
    return list(tokens[start:end])


@dataclass
class _Expander:
    table: Table
    made: int = 0

    def replaced(self, macro: Macro, given: list[list[Token]], active: frozenset[str], depth: int) -> list[Token]:
        """What the call of a macro becomes, with the macros in it expanded."""
        if depth > _DEEPEST:
            raise _TooLargeError
        tokens = list(macro.body) if macro.parameters is None else self.filled(macro, given, active, depth)
        self.made += len(tokens)
        if self.made > _MOST_TOKENS:
            raise _TooLargeError
        return self.rescanned(tokens, active | {macro.name}, depth + 1)

    def filled(self, macro: Macro, given: list[list[Token]], active: frozenset[str], depth: int) -> list[Token]:
        """The body with the arguments in the places of the parameters."""
        by_name = self._by_name(macro, given)
        out: list[Token] = []
        body, at = macro.body, 0
        while at < len(body):
            one = body[at]
            after = _next(body, at)
            if one.text == "#" and after is not None and body[after].text in by_name:
                plain = (
                    "".join(each.text for each in by_name[body[after].text]).replace("\\", "\\\\").replace('"', '\\"')
                )
                out.append(Token("literal", '"' + " ".join(plain.split()) + '"'))
                at = after + 1
                continue
            if one.text == "##" and after is not None:
                while out and out[-1].kind == "space":
                    out.pop()
                right = by_name.get(body[after].text, [body[after]])
                if out and right:
                    left = out.pop()
                    out += (Token("name" if left.kind == "name" else left.kind, left.text + right[0].text), *right[1:])
                else:
                    out += right
                at = after + 1
                continue
            if one.kind == "name" and one.text in by_name:
                pasted = after is not None and body[after].text == "##"
                argument = by_name[one.text]
                out += argument if pasted else self.rescanned(argument, active, depth + 1)
            else:
                out.append(one)
            at += 1
        return out

    def _by_name(self, macro: Macro, given: list[list[Token]]) -> dict[str, list[Token]]:
        parameters = macro.parameters or ()
        found: dict[str, list[Token]] = {}
        for number, name in enumerate(parameters):
            if name == "...":
                rest: list[Token] = []
                for each in given[number:]:
                    rest += [Token("sign", ","), Token("space", " "), *each] if rest else each
                found["__VA_ARGS__"] = rest
            else:
                found[name] = given[number] if number < len(given) else []
        return found

    def rescanned(self, tokens: list[Token], active: frozenset[str], depth: int) -> list[Token]:
        """The tokens with the macros among them expanded, except those that are just being expanded."""
        if depth > _DEEPEST:
            raise _TooLargeError
        out: list[Token] = []
        at = 0
        while at < len(tokens):
            one = tokens[at]
            macro = self.table.get(one.text) if one.kind == "name" and one.text not in active else None
            at += 1
            if macro is None:
                out.append(one)
            elif macro.parameters is None:
                out += self.replaced(macro, [], active, depth)
            else:
                found = _call_in(tokens, at)
                if found is None:
                    out.append(one)
                else:
                    given, at = found
                    out += self.replaced(macro, given, active, depth)
            if len(out) > _MOST_TOKENS:
                raise _TooLargeError
        return out


def _next(body: Sequence[Token], at: int) -> int | None:
    """The next token that is no blank."""
    return next((number for number in range(at + 1, len(body)) if body[number].kind != "space"), None)


def _call_in(tokens: list[Token], at: int) -> tuple[list[list[Token]], int] | None:
    """The arguments of a list that begins at the token ``at``, and the token behind it."""
    while at < len(tokens) and tokens[at].kind == "space":
        at += 1
    if at >= len(tokens) or tokens[at].text != "(":
        return None
    depth, given = 0, [[]]  # type: tuple[int, list[list[Token]]]
    for number in range(at, len(tokens)):
        one = tokens[number]
        if one.text in {"(", "[", "{"}:
            depth += 1
            if depth == 1:
                continue
        elif one.text in {")", "]", "}"}:
            depth -= 1
            if depth == 0:
                return [_stripped(each) for each in given], number + 1
        if one.text == "," and depth == 1:
            given.append([])
        else:
            given[-1].append(one)
    return None


def _written(tokens: list[Token], start: int, end: int, lines: list[int]) -> tuple[str, list[tuple[int, int, int]]]:
    """The text of an expansion, with as many line ends as the source has from ``start`` to ``end``."""
    line, last = bisect.bisect_left(lines, start), bisect.bisect_left(lines, end)
    parts: list[str] = []
    anchors = []
    length = 0
    glue = ""
    for one in tokens:
        text = one.text if one.kind != "space" else " "
        if one.at is not None and one.kind != "space":
            wanted = min(bisect.bisect_left(lines, one.at), last)
            if wanted > line:
                parts.append("\n" * (wanted - line))
                length += wanted - line
                line, glue = wanted, ""
        text = text.replace("\n", " ")
        if glue and text and (text[0].isalnum() or text[0] == "_"):
            parts.append(" ")
            length += 1
        if one.at is not None and one.kind != "space":
            anchors.append((length, one.at, len(text)))
        parts.append(text)
        length += len(text)
        glue = text[-1] if text and (text[-1].isalnum() or text[-1] == "_") else ""
    parts.append("\n" * (last - line))
    return "".join(parts), anchors
