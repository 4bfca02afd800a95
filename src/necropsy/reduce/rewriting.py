"""Passes that try rewritings at one place of the syntax tree after the other."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from necropsy.reduce.program import Pass, Program, Steps
from necropsy.reduce.python_source import Edit, Placed, Source, source_of

Alternatives = Sequence[Sequence[Edit]]
"""Rewritings of one place, the boldest first: each a set of edits."""
Finder = Callable[[Source], Sequence[Alternatives]]
"""The places of a file, from its end on. What is found behind a place does not depend on what is done at it."""

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|$)")


def rewriting(find: Finder, refused: set[object] | None = None) -> Pass:
    """A pass over all Python files: the script first, each from its end on.

    ``refused``: what was tried in vain before. It is not tried again as long as the lines around it are the same.
    """
    tried: set[object] = set() if refused is None else refused

    def steps(program: Program) -> Steps:
        for path in reversed(program.python_files):
            done = 0
            source = source_of(program.files[path])
            places = find(source) if source is not None else []
            while source is not None and done < len(places):
                for edits in places[done]:
                    key = _key(path, source, edits)
                    if key in tried:
                        continue
                    candidate = program.with_file(path, source.edited(edits))
                    if (yield candidate):
                        program = candidate
                        source = source_of(program.files[path])
                        places = find(source) if source is not None else []
                        break
                    tried.add(key)
                else:
                    done += 1
        return program

    return steps


def _key(path: str, source: Source, edits: Sequence[Edit]) -> object:
    """The same for the same edits of the same lines, wherever these are."""
    parts = []
    for edit in edits:
        low = source.line_start(edit.start)
        parts.append((source.text[low : source.line_end(edit.end)], edit.start - low, edit.end - low, edit.text))
    return path, tuple(parts)


def from_the_end(source: Source, kinds: type[ast.AST] | tuple[type[ast.AST], ...]) -> list[Placed]:
    """The nodes of some kinds: those that end last first, and of those the outer ones first."""
    found = [node for node in ast.walk(source.tree) if isinstance(node, kinds) and isinstance(node, Placed)]
    return sorted(found, key=lambda node: (-source.end(node), source.start(node)))


def indentation(source: Source, node: ast.stmt) -> bytes:
    """The blanks before a statement that begins its line."""
    start = source.start(node)
    return source.text[source.line_start(start) : start]


def reindented(source: Source, statements: Sequence[ast.stmt], indent: bytes) -> bytes:
    """The lines of a block under another indentation, without the last line end. Strings stay as they are."""
    first, last = statements[0], statements[-1]
    start, end = source.start(first), source.end(last)
    old = indentation(source, first)
    if old.strip():  # `if x: a; b`
        return indent + source.text[start:end]
    inside = _lines_in_strings(statements)
    lines = []
    at, number = source.line_start(start), first.lineno
    stop = source.line_end(end)
    while at < stop:
        found = _LINE.match(source.text, at)
        line = found.group() if found else b""
        if not line:
            break
        if number in inside or not line.startswith(old):
            lines.append(line)
        else:
            lines.append(indent + line[len(old) :])
        at += len(line)
        number += 1
    return b"".join(lines).rstrip(b"\r\n")


def _lines_in_strings(statements: Sequence[ast.stmt]) -> set[int]:
    return {
        line
        for statement in statements
        for node in ast.walk(statement)
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
        for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1)
    }


def replaced_lines(source: Source, node: ast.stmt, text: bytes) -> Edit:
    """The statement's place gets ``text``, which begins with its indentation; a comment behind it goes."""
    end = source.end(node)
    behind = source.text[end : source.line_end(end)].rstrip(b"\r\n")
    if behind.lstrip().startswith(b"#"):
        end += len(behind)
    return Edit(source.line_start(source.start(node)), end, text)


def own_lines(source: Source, node: ast.stmt) -> bool:
    """The statement begins its line, and nothing but a comment follows it on the last one."""
    after = source.text[source.end(node) : source.line_end(source.end(node))].strip()
    return not indentation(source, node).strip() and (not after or after.startswith(b"#"))
