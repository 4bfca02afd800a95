"""Rewritings that take statements out of the block around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from necropsy.reduce.deletion import is_elif
from necropsy.reduce.python_source import Edit, Source
from necropsy.reduce.rewriting import (
    Alternatives,
    from_the_end,
    indentation,
    own_lines,
    reindented,
    replaced_lines,
)

_TRY = (ast.Try, ast.TryStar) if hasattr(ast, "TryStar") else (ast.Try,)
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Match, *_TRY)


def unwrapped_blocks(source: Source) -> list[Alternatives]:
    """``if``, ``for``, ``while``, ``with``, ``try`` and ``match`` replaced by what is in them."""
    places: list[Alternatives] = []
    for node in from_the_end(source, BLOCKS):
        if isinstance(node, ast.stmt) and own_lines(source, node):
            if source.text.startswith(b"elif", source.start(node)):
                continue  # its `if` is unwrapped to it
            places.append([[replaced_lines(source, node, text)] for text in _contents(source, node)])
    return places


def content(source: Source, node: ast.stmt) -> Edit | None:
    """A block replaced by its statements: of its parts, the first in which there are any."""
    parts: list[list[ast.stmt]] = [getattr(node, name, []) for name in ("body", "orelse", "finalbody")]
    parts += [one.body for name in ("handlers", "cases") for one in getattr(node, name, [])]
    filled = next((part for part in parts if not all(isinstance(one, ast.Pass) for one in part)), None)
    if (
        not isinstance(node, BLOCKS)
        or not own_lines(source, node)
        or source.text.startswith(b"elif", source.start(node))
    ):
        return None
    indent = indentation(source, node)
    if filled is None:
        return replaced_lines(source, node, indent + b"pass")
    if is_elif(source, node, filled):
        return replaced_lines(source, node, indent + source.text[source.start(filled[0]) + 2 : source.end(filled[0])])
    return replaced_lines(source, node, reindented(source, filled, indent))


def _contents(source: Source, node: ast.stmt) -> Iterator[bytes]:
    """What may stand instead of a block, each with its indentation."""
    indent = indentation(source, node)
    if isinstance(node, ast.Match):
        yield from (reindented(source, case.body, indent) for case in node.cases)
        return
    body: Sequence[ast.stmt] = getattr(node, "body", [])
    yield reindented(source, body, indent)
    for before in _heads(source, node):
        yield b"".join(indent + line + source.eol for line in before) + reindented(source, body, indent)
    if isinstance(node, ast.With) and len(node.items) == 1 and isinstance(node.items[0].optional_vars, ast.Name):
        # What an own class does there may be what the crash needs; the methods can be inlined then.
        name, value = source.segment(node.items[0].optional_vars), _segment(source, node.items[0].context_expr)
        begun = (name + b" = " + value, name + b".__enter__()")
        ended = source.eol + indent + name + b".__exit__(None, None, None)"
        yield b"".join(indent + line + source.eol for line in begun) + reindented(source, body, indent) + ended
    orelse: list[ast.stmt] = getattr(node, "orelse", [])
    if isinstance(node, ast.If) and is_elif(source, node, orelse):
        # `elif` becomes `if`, with all that follows.
        yield indent + source.text[source.start(orelse[0]) + 2 : source.end(orelse[0])]
    elif orelse:
        yield reindented(source, orelse, indent)


def _heads(source: Source, node: ast.stmt) -> Iterator[list[bytes]]:
    """What the head of a block does, as statements."""
    if isinstance(node, ast.For | ast.AsyncFor):
        target, items = _segment(source, node.target), source.segment(node.iter)
        yield [target + b" = next(iter(" + items + b"))"]
        # It may be the last one that matters, or something that the iteration itself does.
        yield [b"*_, " + target + b" = " + _segment(source, node.iter)]
    elif isinstance(node, ast.With | ast.AsyncWith):
        heads: list[list[bytes]] = [[], []]
        for item in node.items:
            value = _segment(source, item.context_expr)
            target = _segment(source, item.optional_vars) + b" = " if item.optional_vars else b""
            heads[0].append(target + value)
            heads[1].append(target + b"(" + value + b").__enter__()")
        yield from heads if isinstance(node, ast.With) else heads[:1]
    elif isinstance(node, ast.If | ast.While) and any(isinstance(one, ast.Call) for one in ast.walk(node.test)):
        yield [_segment(source, node.test)]


def _segment(source: Source, node: ast.expr) -> bytes:
    text = source.segment(node)
    return b"(" + text + b")" if b"\n" in text or b"\r" in text else text


def dropped_decorators(source: Source) -> list[Alternatives]:
    """Functions and classes without a decorator, a base class, or annotations."""
    places: list[Alternatives] = []
    for node in from_the_end(source, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for decorator in reversed(node.decorator_list):
            start = source.line_start(source.start(decorator))
            places.append([[Edit(start, source.line_end(source.end(decorator)))]])
        if isinstance(node, ast.ClassDef):
            parts: list[ast.expr | ast.keyword] = [*node.bases, *node.keywords]
            if parts:
                low = source.text.rindex(b"(", 0, source.start(parts[0]))
                high = source.text.index(b")", source.end(parts[-1])) + 1
                places.append([[Edit(low, high)]])
        elif node.returns is not None:
            low = source.text.rindex(b"->", 0, source.start(node.returns))
            places.append([[Edit(low, source.end(node.returns))]])
    return places
