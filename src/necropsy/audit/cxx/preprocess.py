"""A source and its project headers -> text that a parser understands, line for line the same.

Conditionals are decided for the CPU build, macros of the project are expanded, comments and directives become blanks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import PurePath

from necropsy.audit.cxx.expressions import evaluate
from necropsy.audit.cxx.known_macros import UNDEFINED
from necropsy.audit.cxx.macros import Span, Table, defined, expand
from necropsy.audit.cxx.tokens import blank, without_comments

Find = Callable[[str, str], "tuple[str, str] | None"]
"""From the name in ``#include "..."`` and the path of the including file to the header's path and text."""
_DIRECTIVE = re.compile(r"[ \t]*#[ \t]*([a-z_]*)(.*)", re.DOTALL)
_FOREIGN = re.compile(
    r"(?:third_party/eigen3|unsupported/Eigen|Eigen|absl|tensorflow|tsl|xla|google|cuda|re2|gtest|gmock)/"
)
_OWN_MARK = re.compile(r"[A-Za-z_]\w*")
_DEEPEST = 200
_MOST_TEXT = 8 << 20
"""Bytes that expansions may write for one source and its headers."""


@dataclass(frozen=True)
class Expanded:
    """One file: ``text`` is what to parse. Text is Latin-1, so that offsets count bytes."""

    path: str
    original: str
    text: str
    spans: tuple[Span, ...]


@dataclass
class _Condition:
    taken: bool
    """A branch of it has been kept, so that the others are not."""
    active: bool
    has_other: bool


@dataclass
class Preprocessor:
    """Reads one source with its headers; ``files`` are in the order in which a compiler would read them to the end."""

    find: Find
    find_angled: Callable[[str], tuple[str, str] | None] = lambda _: None
    """As ``find``, for ``#include <...>``: system headers are not read."""
    table: Table = field(default_factory=Table)
    files: list[Expanded] = field(default_factory=list)
    missing: list[tuple[str, str, int]] = field(default_factory=list)
    """Quoted headers that were not found: the name, and the path and line of its ``#include``."""
    seen: set[str] = field(default_factory=set)
    written: int = 0

    def read(self, path: str, original: str, depth: int = 0) -> None:
        """Preprocess a file; what it includes comes first."""
        self.seen.add(path)
        text = without_comments(original)
        others = _with_alternatives(text)
        out: list[str] = []
        spans: list[Span] = []
        stack: list[_Condition] = []
        done = length = 0

        def code(start: int, end: int) -> int:
            part = text[start:end]
            if not all(one.active for one in stack):
                written: str = blank(part)
            else:
                written, found = self._expanded(part.replace("\\\n", " \n").replace("\\\r\n", " \r\n"))
                spans.extend(_moved(one, length, start) for one in found)
            out.append(written)
            return len(written)

        for number, (start, end) in enumerate(_directives(text)):
            length += code(done, start)
            out.append(blank(text[start:end]))
            length += end - start
            done = end
            line = re.sub(r"\\\r?\n", " ", text[start:end])
            self._directive(line, stack, others.get(number, False), (path, text.count("\n", 0, start) + 1), depth)
        code(done, len(text))
        self.files.append(Expanded(path, original, "".join(out), tuple(spans)))

    def _expanded(self, part: str) -> tuple[str, list[Span]]:
        if self.written > _MOST_TEXT:
            return part, []
        written, found = expand(part, self.table)
        self.written += sum(one.end - one.start for one in found)
        return written, found

    def _directive(
        self, line: str, stack: list[_Condition], has_other: bool, where: tuple[str, int], depth: int
    ) -> None:
        match = _DIRECTIVE.match(line)
        if match is None:
            return
        word, rest = match[1], match[2].strip()
        if word in {"if", "ifdef", "ifndef"}:
            keep = self._decided(_as_condition(word, rest), has_other)
            stack.append(_Condition(taken=keep, active=keep, has_other=has_other))
        elif word in {"elif", "else"} and stack:
            last = stack[-1]
            last.active = not last.taken and (word == "else" or self._decided(rest, has_other))
            last.taken = last.taken or last.active
        elif word == "endif" and stack:
            stack.pop()
        elif not all(one.active for one in stack):
            return
        elif word == "define":
            self.define(rest)
        elif word == "undef":
            self.table.undefine(rest.split()[0] if rest else "")
        elif word == "include":
            self._include(rest, where, depth)

    def define(self, text: str) -> None:
        """A macro, given as behind the word ``#define``."""
        macro = defined(text)
        if macro is not None:
            self.table.define(macro)

    def _decided(self, condition: str, has_other: bool) -> bool:
        """Unknown conditions hold; where there is another branch, unknown macros count as undefined instead."""
        value = evaluate(condition, self._value)
        if value is None and has_other:
            value = evaluate(condition, self._value_or_none) or 0
        return value is None or value != 0

    def _value(self, name: str, depth: int = 0) -> int | None:
        if name.startswith("defined "):
            wanted = name.removeprefix("defined ")
            if wanted in self.table:
                return 1
            return 0 if wanted in UNDEFINED or wanted in self.table.removed else None
        macro = self.table.get(name)
        if macro is None:
            return 0 if name in UNDEFINED or name in self.table.removed else None
        if macro.parameters is not None or depth > _DEEPEST // 10:
            return None
        body = " ".join(one.text for one in macro.body)
        return evaluate(body, lambda inner: self._value(inner, depth + 1)) if body.strip() else None

    def _value_or_none(self, name: str) -> int | None:
        value = self._value(name)
        return 0 if value is None and _OWN_MARK.fullmatch(name.removeprefix("defined ")) else value

    def _include(self, rest: str, where: tuple[str, int], depth: int) -> None:
        is_angled = rest.startswith("<")
        name = rest[1:].partition(">" if is_angled else '"')[0] if rest.startswith(("<", '"')) else ""
        if not name or _FOREIGN.match(name) or depth > _DEEPEST or len(self.seen) > _DEEPEST:
            return
        found = self.find_angled(name) if is_angled else self.find(name, where[0])
        if found is None:
            if not is_angled and not name.endswith((".pb.h", ".inc")):
                self.missing.append((name, *where))
        elif found[0] not in self.seen:
            self.read(found[0], found[1], depth + 1)


def _as_condition(word: str, rest: str) -> str:
    name = rest.split(maxsplit=1)[0] if rest else ""
    return {"if": rest, "ifdef": f"defined({name})", "ifndef": f"!defined({name})"}[word]


def _directives(text: str) -> list[tuple[int, int]]:
    """Where directives are, each with the lines that continue it and without its line end."""
    return [
        (one.start(), one.end()) for one in re.finditer(r"^[ \t]*#(?:[^\\\n]|\\\r?\n|\\(?!\r?\n))*", text, re.MULTILINE)
    ]


def _with_alternatives(text: str) -> dict[int, bool]:
    """For each ``#if`` and ``#elif``, by its number among the directives: another branch follows."""
    found: dict[int, bool] = {}
    open_: list[int] = []
    for number, (start, end) in enumerate(_directives(text)):
        match = _DIRECTIVE.match(text[start:end])
        word = match[1] if match is not None else ""
        if word in {"if", "ifdef", "ifndef"}:
            open_.append(number)
        elif word in {"elif", "else"} and open_:
            found[open_[-1]] = True
            open_[-1] = number
        elif word == "endif" and open_:
            open_.pop()
    return found


def _moved(one: Span, out: int, source: int) -> Span:
    return Span(
        one.start + out,
        one.end + out,
        one.source_start + source,
        one.source_end + source,
        one.macro,
        tuple((to + out, at + source, size) for to, at, size in one.anchors),
    )


def is_header(path: str) -> bool:
    """By its name."""
    return PurePath(path).suffix in {".h", ".hpp", ".hh", ".hxx", ".cuh", ".inc"}
