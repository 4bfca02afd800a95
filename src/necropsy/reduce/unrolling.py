"""A pass that writes the body of a short loop once for each item, where less is left of it in the end."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from necropsy.reduce.program import Pass, Program, Steps
from necropsy.reduce.python_source import Source, source_of
from necropsy.reduce.rewriting import from_the_end, indentation, own_lines, reindented, replaced_lines
from necropsy.reduce.statements import count_statements

_MOST_ITEMS = 3
_NESTED = (ast.For, ast.AsyncFor, ast.While)


def unrolled_loops(passes: Sequence[Pass], refused: set[object]) -> Pass:
    """A pass over the loops whose items are written there; ``passes`` reduce what unrolling makes of each.

    ``refused``: the loops of which more was left than before. They are not tried again.
    """

    def steps(program: Program) -> Steps:
        while (found := next(_unrolled(program, refused), None)) is not None:
            key, longer = found
            refused.add(key)
            if not (yield longer):
                continue
            shorter = longer
            for make in passes:
                shorter = yield from make(shorter)
            if _measure(shorter) < _measure(program):
                program = shorter
            else:
                yield program
        return program

    return steps


def _measure(program: Program) -> tuple[int, int]:
    return count_statements(program), program.size


def _unrolled(program: Program, refused: set[object]) -> Iterator[tuple[object, Program]]:
    """The loops that can be unrolled, each with the program where it is."""
    for path in reversed(program.python_files):
        source = source_of(program.files[path])
        for node in from_the_end(source, ast.For) if source is not None else ():
            if source is None or not isinstance(node, ast.For) or not _is_short(node) or not own_lines(source, node):
                continue
            key = path, source.segment(node)
            if key not in refused:
                edit = replaced_lines(source, node, _text(source, node))
                yield key, program.with_file(path, source.edited([edit]))


def _is_short(node: ast.For) -> bool:
    if not isinstance(node.iter, ast.List | ast.Tuple) or not 0 < len(node.iter.elts) <= _MOST_ITEMS or node.orelse:
        return False
    if any(isinstance(item, ast.Starred) for item in node.iter.elts):
        return False
    return not any(map(_leaves_the_loop, node.body))


def _leaves_the_loop(node: ast.AST) -> bool:
    """It has a ``break`` or ``continue`` of the loop around it."""
    if isinstance(node, ast.Break | ast.Continue):
        return True
    if isinstance(node, _NESTED):
        return any(map(_leaves_the_loop, node.orelse))
    return any(map(_leaves_the_loop, ast.iter_child_nodes(node)))


def _text(source: Source, node: ast.For) -> bytes:
    indent = indentation(source, node)
    body = reindented(source, node.body, indent)
    target = indent + source.segment(node.target) + b" = "
    items = node.iter.elts if isinstance(node.iter, ast.List | ast.Tuple) else []
    return source.eol.join(part for item in items for part in (target + source.segment(item), body))
