"""Passes on what is no code: comments that belong to nothing any more, docstrings, blank lines."""

from __future__ import annotations

import ast
import re

from necropsy.reduce.deletion import deletions, suites
from necropsy.reduce.program import Program, Steps
from necropsy.reduce.python_source import Edit, Source
from necropsy.reduce.statements import parsed

_COMMENT = re.compile(rb"[ \t\f]*#")
_DECLARED = re.compile(rb"^[ \t\f]*#.*?coding[:=]")  # PEP 263


def tidy(program: Program) -> Steps:
    """A pass that leaves out docstrings, then comments without code below them and doubled blank lines."""
    for made in (_without_docstrings, _without_loose_lines):
        candidate = made(program)
        if candidate.files != program.files and (yield candidate):
            program = candidate
    return program


def _without_docstrings(program: Program) -> Program:
    for path, source in parsed(program).items():
        edits: list[Edit] = []
        for suite in suites(source):
            texts = [node for node in suite.statements if isinstance(node, ast.Expr) and _is_constant(node.value)]
            if texts:
                edits += deletions(source, suite, texts)
        program = program.with_file(path, source.edited(edits))
    return program


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is not ...


def _without_loose_lines(program: Program) -> Program:
    for path, source in parsed(program).items():
        program = program.with_file(path, source.edited(_loose_lines(source)))
    return program


def _loose_lines(source: Source) -> list[Edit]:
    """Blocks of comments with no code directly below, and blank lines beyond what the formatter would leave."""
    taken = _lines_of_statements(source)
    lines: list[tuple[int, int]] = []
    at = 0
    while at < len(source.text):
        end = source.line_end(at)
        lines.append((at, end))
        at = end
    edits: list[Edit] = []
    blanks, any_code = 0, False
    number = 0
    while number < len(lines):
        start, end = lines[number]
        text = source.text[start:end]
        if number + 1 in taken:
            blanks, any_code = 0, True
        elif _COMMENT.match(text):
            last = number
            while last + 1 < len(lines) and last + 2 not in taken and _COMMENT.match(source.text, lines[last + 1][0]):
                last += 1
            followed = last + 2 in taken
            if not followed and not (number < 2 and (_DECLARED.match(text) or text.startswith(b"#!"))):
                edits.append(Edit(start, lines[last][1]))
            else:
                blanks = 0
            number = last
        elif not text.strip():
            blanks += 1
            if blanks > 2 or not any_code:
                edits.append(Edit(start, end))
        number += 1
    return edits


def _lines_of_statements(source: Source) -> set[int]:
    """The lines, from 1, that statements without blocks take, and the heads of those with blocks."""
    taken: set[int] = set()
    for node in ast.walk(source.tree):
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            body: list[ast.stmt] = getattr(node, "body", getattr(node, "cases", []))
            first = getattr(node, "lineno", None) or node.pattern.lineno  # type: ignore[union-attr]  # a match_case has no place of its own
            last = body[0].lineno - 1 if body and isinstance(body[0], ast.stmt) else getattr(node, "end_lineno", first)
            decorators: list[ast.expr] = getattr(node, "decorator_list", [])
            first = min([first, *(one.lineno for one in decorators)])
            taken.update(range(first, max(first, last) + 1))
    return taken
