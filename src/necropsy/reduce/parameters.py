"""Rewritings that leave out a parameter that is not used, and its argument in all calls."""

from __future__ import annotations

import ast
import re

from necropsy.reduce.expressions import last_name
from necropsy.reduce.python_source import Edit, Placed, Source
from necropsy.reduce.rewriting import Alternatives


def unused_parameters(source: Source) -> list[Alternatives]:
    """Of the functions, methods and constructors of the file; calls of the same name are taken for calls of them."""
    places: list[Alternatives] = []
    owners: list[ast.Module | ast.ClassDef] = [source.tree]
    owners += [node for node in source.tree.body if isinstance(node, ast.ClassDef)]
    for owner in owners:
        for function in owner.body:
            if isinstance(function, ast.FunctionDef):
                called = (
                    owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
                )
                places += _of(source, function, called, int(isinstance(owner, ast.ClassDef)))
    return places


def _of(source: Source, function: ast.FunctionDef, called: str, bound: int) -> list[Alternatives]:
    used = {node.id for inner in function.body for node in ast.walk(inner) if isinstance(node, ast.Name)}
    names = [*function.args.posonlyargs, *function.args.args]
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and last_name(node.func) == called]
    places: list[Alternatives] = []
    for at in reversed(range(bound, len(names))):
        if names[at].arg in used:
            continue
        edits = [_left_out(source, [*names], at, _default(function, at, len(names)))]
        for call in calls:
            keywords = [each for each in call.keywords if each.arg == names[at].arg]
            arguments: list[Placed] = [*call.args, *call.keywords]
            if keywords:
                edits.append(_left_out(source, arguments, arguments.index(keywords[0])))
            elif at - bound < len(call.args) and not any(isinstance(each, ast.Starred) for each in call.args):
                edits.append(_left_out(source, arguments, at - bound))
        places.append([edits])
    return places


def _default(function: ast.FunctionDef, at: int, count: int) -> ast.expr | None:
    defaults = function.args.defaults
    return defaults[at - count] if at - count >= -len(defaults) else None


def _left_out(source: Source, items: list[Placed], at: int, default: ast.expr | None = None) -> Edit:
    """One item of a list with commas left out, with its default value."""
    end = source.end(default if default is not None else items[at])
    if at + 1 < len(items):
        return Edit(source.start(items[at]), source.start(items[at + 1]))
    if at:
        comma = source.text.rindex(b",", 0, source.start(items[at]))
        return Edit(comma, end)
    comma_after = re.compile(rb"\s*,\s*").match(source.text, end)  # `(x, *, y)`
    return Edit(source.start(items[at]), comma_after.end() if comma_after is not None else end)
