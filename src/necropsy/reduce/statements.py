"""Passes that leave out statements: what never ran, then level by level from the end."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from necropsy.reduce.deletion import Suite, deletions, suites
from necropsy.reduce.program import Pass, Program, Search, Steps, from_the_end, in_parts, search
from necropsy.reduce.python_source import Edit, Source, source_of

Place = tuple[str, Suite, ast.stmt]
"""A statement: the path of its file, its block, and its node."""


def parsed(program: Program) -> dict[str, Source]:
    """The Python files that can be parsed."""
    found = {}
    for path in program.python_files:
        if (source := source_of(program.files[path])) is not None:
            found[path] = source
    return found


def count_statements(program: Program) -> int:
    """The statements in all Python files, docstrings and ``pass`` left out."""
    return sum(
        isinstance(node, ast.stmt)
        and not isinstance(node, ast.Pass)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for source in parsed(program).values()
        for node in ast.walk(source.tree)
    )


def without(program: Program, sources: Mapping[str, Source], gone: Sequence[Place]) -> Program:
    """The program without some statements."""
    by_suite: dict[tuple[str, Suite], list[ast.stmt]] = defaultdict(list)
    for path, suite, node in gone:
        by_suite[path, suite].append(node)
    edits: dict[str, list[Edit]] = defaultdict(list)
    for (path, suite), nodes in by_suite.items():
        edits[path] += deletions(sources[path], suite, nodes)
    return program.with_files({path: sources[path].edited(some) for path, some in edits.items()})


def drop_never_ran(executed: Mapping[str, Collection[int]]) -> Pass:
    """A pass that leaves out what the crashing run did not execute.

    ``executed``: line numbers by path, of the program that the pass is first given.
    """

    def steps(program: Program) -> Steps:
        for path in [path for path in program.python_files[:-1] if not executed.get(path)]:
            candidate = program.without_file(path)
            if (yield candidate):
                program = candidate
        sources = {path: source for path, source in parsed(program).items() if path in executed}
        never = [place for path, source in sources.items() for place in _never_ran(path, source, executed[path])]
        return (yield from _leave_out(program, sources, never, in_parts))

    return steps


def _never_ran(path: str, source: Source, executed: Collection[int]) -> Iterator[Place]:
    inside: set[ast.stmt] = set()
    for suite in suites(source):
        for node in suite.statements:
            if node not in inside and not _is_declaration(node) and not any(line in executed for line in _lines(node)):
                inside.update(one for one in ast.walk(node) if isinstance(one, ast.stmt))
                yield path, suite, node


def _lines(node: ast.stmt) -> range:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(one.lineno for one in decorators)])
    return range(first, (node.end_lineno or node.lineno) + 1)


def _is_declaration(node: ast.stmt) -> bool:
    """No line of it is ever executed."""
    if isinstance(node, ast.AnnAssign):
        return node.value is None
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    return isinstance(node, ast.Global | ast.Nonlocal | ast.Pass)


def drop_files(program: Program) -> Steps:
    """A pass that leaves out whole Python files, but not the script."""
    for path in program.python_files[:-1]:
        candidate = program.without_file(path)
        if (yield candidate):
            program = candidate
    return program


def drop_statements(program: Program) -> Steps:
    """A pass over all statements: the outer ones first, in each level from the end of the script on."""
    depth = 0
    while True:
        sources = parsed(program)
        level = [(path, suite) for path, source in sources.items() for suite in suites(source)]
        if depth > max((suite.depth for _, suite in level), default=-1):
            return program
        places = [
            (path, suite, node)
            for path, suite in level
            if suite.depth == depth
            for node in suite.statements
            if not (isinstance(node, ast.Pass) and len(suite.statements) == 1)
        ]
        program = yield from _leave_out(program, sources, places, from_the_end)
        depth += 1


def _leave_out(program: Program, sources: Mapping[str, Source], places: Sequence[Place], ranges: Search) -> Steps:
    return (yield from search(program, places, ranges, lambda gone: without(program, sources, gone)))
