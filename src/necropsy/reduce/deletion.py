"""Edits that leave statements out of a Python file so that the rest stays as it was written."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from necropsy.reduce.python_source import Edit, Source

_BLANK = b" \t\f"
_COMMENT_LINE = re.compile(rb"[ \t\f]*#")


@dataclass(frozen=True)
class Suite:
    """The statements of one block.

    ``empty`` is what becomes of it when all go: nothing (a module), ``pass``, or the whole clause from ``clause`` on.
    """

    statements: tuple[ast.stmt, ...]
    depth: int
    empty: Literal["nothing", "pass", "clause"]
    clause: int = 0


def suites(source: Source) -> Iterator[Suite]:
    """The blocks of a file, the outer ones first. The depth counts the statements around a block."""
    yield Suite(tuple(source.tree.body), 0, "nothing")
    waiting: list[tuple[ast.stmt, int]] = [(node, 1) for node in source.tree.body]
    while waiting:
        node, depth = waiting.pop(0)
        for suite in _of(source, node, depth):
            yield suite
            waiting += [(inner, depth + 1) for inner in suite.statements]


def _of(source: Source, node: ast.stmt, depth: int) -> Iterator[Suite]:
    for name in ("body", "orelse", "finalbody"):
        block: list[ast.stmt] = getattr(node, name, [])
        if not block:
            continue
        if name == "body":
            yield Suite(tuple(block), depth, "pass")
        elif is_elif(source, node, block):
            yield Suite(tuple(block), depth, "clause", source.start(block[0]))
        else:
            word = b"else" if name == "orelse" else b"finally"
            # `try` needs an `except` or a `finally`.
            needed = name == "finalbody" and not getattr(node, "handlers", [])
            yield Suite(tuple(block), depth, "pass" if needed else "clause", _keyword(source, block[0], word))
    handlers: list[ast.ExceptHandler] = getattr(node, "handlers", [])
    for handler in handlers:
        alone = len(handlers) == 1 and not getattr(node, "finalbody", [])
        yield Suite(tuple(handler.body), depth, "pass" if alone else "clause", source.start(handler))
    cases: list[ast.match_case] = getattr(node, "cases", [])
    for case in cases:
        alone = len(cases) == 1
        yield Suite(tuple(case.body), depth, "pass" if alone else "clause", _keyword(source, case.pattern, b"case"))


def is_elif(source: Source, node: ast.stmt, orelse: Sequence[ast.stmt]) -> bool:
    """The ``else`` part of an ``if`` is written as ``elif``."""
    return (
        isinstance(node, ast.If)
        and len(orelse) == 1
        and isinstance(orelse[0], ast.If)
        and source.text.startswith(b"elif", source.start(orelse[0]))
    )


def _keyword(source: Source, first: ast.stmt | ast.pattern, word: bytes) -> int:
    """Where the clause begins whose block or pattern begins with ``first``: there is little between them."""
    return source.text.rindex(word, 0, source.start(first))


def deletions(source: Source, suite: Suite, gone: Collection[ast.stmt]) -> list[Edit]:
    """Edits that leave the statements ``gone`` out of their block."""
    left = [node for node in suite.statements if node not in gone]
    if not left and suite.empty == "clause":
        return [_without(source, suite.clause, source.end(suite.statements[-1]))]
    if not left and suite.empty == "nothing":
        return [Edit(0, len(source.text))]
    edits = []
    filled = bool(left) or suite.empty != "pass"
    for row in _rows(suite.statements):
        keep = [node for node in row if node not in gone]
        start, end = source.start(row[0]), source.end(row[-1])
        if len(keep) == len(row):
            continue
        if keep:
            edits.append(Edit(start, end, b"; ".join(source.segment(node) for node in keep)))
        elif not filled:
            edits.append(Edit(start, _behind_semicolon(source, end), b"pass"))
            filled = True
        elif source.text[source.line_start(start) : start].strip(_BLANK):
            edits.append(Edit(start, end, b"pass"))  # `if x: a` with more of the block below: cannot be
        else:
            edits.append(_without(source, start, end))
    return edits


def _rows(statements: Sequence[ast.stmt]) -> list[list[ast.stmt]]:
    """Statements that share lines, as in ``a = 1; b = 2``."""
    rows: list[list[ast.stmt]] = []
    for node in statements:
        if rows and rows[-1][-1].end_lineno == node.lineno:
            rows[-1].append(node)
        else:
            rows.append([node])
    return rows


def _behind_semicolon(source: Source, end: int) -> int:
    at = end
    while at < len(source.text) and source.text[at] in _BLANK:
        at += 1
    return at + 1 if source.text[at : at + 1] == b";" else end


def _without(source: Source, start: int, end: int) -> Edit:
    """The lines from one place to another are left out, with the comment above and doubled blank lines."""
    text = source.text
    low, high = source.line_start(start), source.line_end(end)
    if text[low:start].strip(_BLANK):
        return Edit(start, end)  # other code is in front of it
    while low > 0 and _COMMENT_LINE.match(text, above := source.line_start(low - 1)) and above < low:
        if b"coding" in text[above:low] and text.count(b"\n", 0, above) < 2:
            break  # the declaration of the encoding
        if text.startswith(b"#!", above) and above == 0:
            break
        low = above
    blank_above = low == 0 or not text[source.line_start(low - 1) : low].strip()
    while blank_above and high < len(text) and not text[high : source.line_end(high)].strip():
        high = source.line_end(high)
    return Edit(low, high)
