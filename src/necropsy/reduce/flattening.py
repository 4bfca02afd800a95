"""Rewritings that replace attributes and items by variables, and variables that are read once by their values."""

from __future__ import annotations

import ast
import keyword
from collections import defaultdict

from necropsy.reduce.deletion import deletions, suites
from necropsy.reduce.python_source import Edit, Source
from necropsy.reduce.rewriting import Alternatives

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def flattened_attributes(source: Source) -> list[Alternatives]:
    """``scene.nodes`` becomes ``nodes`` everywhere, where the module's own level assigns it."""
    assigned: set[str] = set()
    elsewhere: set[str] = set()
    used: dict[str, list[ast.Attribute]] = defaultdict(list)
    outer = _of_the_module(source.tree)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and _is_chain(node.value):
            used[node.attr].append(node)
            if not isinstance(node.ctx, ast.Load):
                (assigned if node in outer else elsewhere).add(node.attr)
    return [
        [[Edit(source.start(node), source.end(node), name.encode()) for node in used[name]]]
        for name in sorted(assigned - elsewhere - {"argtypes", "restype"})
    ]


def _is_chain(node: ast.expr) -> bool:
    """``a`` or ``a.b.c``."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _of_the_module(tree: ast.Module) -> set[ast.AST]:
    """The nodes outside of functions and classes."""
    found: set[ast.AST] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        found.add(node)
        if not isinstance(node, _SCOPES):
            waiting += ast.iter_child_nodes(node)
    return found


def flattened_items(source: Source) -> list[Alternatives]:
    """``nodes["first"]`` becomes ``first``, where a dictionary is used by literal keys only."""
    names = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    places: list[Alternatives] = []
    for suite in suites(source):
        for statement in suite.statements:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            made = statement.value if isinstance(statement, ast.Assign) else None
            if not isinstance(target, ast.Name) or not isinstance(made, ast.Dict) or made.keys:
                continue
            items = [node for node in ast.walk(source.tree) if _is_item_of(node, target.id)]
            mentions = sum(isinstance(node, ast.Name) and node.id == target.id for node in ast.walk(source.tree))
            if mentions != len(items) + 1:
                continue
            edits = deletions(source, suite, [statement])
            for node in items:
                if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                    name = _variable(target.id, node.slice.value, names)
                    edits.append(Edit(source.start(node), source.end(node), name.encode()))
            places.append([edits])
    return places


def _is_item_of(node: ast.AST, name: str) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == name
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str | int)
    )


def _variable(owner: str, key: object, taken: set[str]) -> str:
    """``first``, or a name that has the key in it."""
    text = str(key)
    if text.isascii() and text.isidentifier() and not keyword.iskeyword(text) and text not in taken:
        return text
    return f"{owner}_{''.join(one if one.isascii() and one.isalnum() else '_' for one in text)}"


def merged_variables(source: Source) -> list[Alternatives]:
    """Of two variables with the same value, one is left."""
    firsts: dict[bytes, str] = {}
    places: list[Alternatives] = []
    for suite in suites(source):
        for statement in suite.statements:
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                continue
            target, value = statement.targets[0], source.segment(statement.value)
            if not isinstance(target, ast.Name):
                continue
            first = firsts.setdefault(value, target.id)
            if first != target.id:
                edits = deletions(source, suite, [statement])
                edits += [
                    Edit(source.start(node), source.end(node), first.encode())
                    for node in ast.walk(source.tree)
                    if isinstance(node, ast.Name) and node.id == target.id and node is not target
                ]
                places.append([edits])
    return places


def substituted_variables(source: Source) -> list[Alternatives]:
    """A variable that is assigned once and read once: its value stands where it is read."""
    names: dict[str, list[ast.Name]] = defaultdict(list)
    quoted = {inner for node in ast.walk(source.tree) if isinstance(node, ast.JoinedStr) for inner in ast.walk(node)}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Name):
            names[node.id].append(node)
    places: list[Alternatives] = []
    for suite in reversed(list(suites(source))):
        for statement in reversed(suite.statements):
            if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                if all(isinstance(one.ctx, ast.Store) for one in names[statement.target.id]):
                    places.append([[Edit(source.start(statement), source.start(statement.value))]])
                continue
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                continue
            target = statement.targets[0]
            both = names[target.id] if isinstance(target, ast.Name) else []
            read = next((one for one in both if isinstance(one.ctx, ast.Load)), None)
            if len(both) != 2 or read is None or read in quoted or read.lineno < statement.lineno:
                continue
            value = source.segment(statement.value)
            if not isinstance(statement.value, ast.Name | ast.Constant | ast.Attribute | ast.Call | ast.Subscript):
                value = b"(" + value + b")"
            if b"\n" in value or b"\r" in value:
                continue
            places.append([[Edit(source.start(read), source.end(read), value), *deletions(source, suite, [statement])]])
    return places
