"""Candidates that cannot reach the crash, because code that runs reads a name that nothing binds any more."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

_KNOWN = frozenset(dir(builtins)) | {
    "__file__",
    "__path__",
    "__annotations__",
    "__class__",
    "__module__",
    "__qualname__",
}


def unbound_names(tree: ast.Module) -> frozenset[str]:
    """The names that code reachable from the module's top level reads, and nothing in the file binds.

    Scopes are not told apart: a name that any of them binds counts as bound. A function is reachable where its name
    stands in code that is.
    """
    bound: set[str] = set(_KNOWN)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return frozenset()
        bound.update(bound_names(node))
    functions: dict[str, list[ast.AST]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.setdefault(node.name, []).extend(node.body)
    read: set[str] = set()
    mentioned: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    entered: set[str] = set()
    while waiting:
        for node in _of_one_scope(waiting.pop()):
            if isinstance(node, ast.Name):
                mentioned.add(node.id)
                if isinstance(node.ctx, ast.Load):
                    read.add(node.id)
            elif isinstance(node, ast.Attribute):
                mentioned.add(node.attr)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_called_by_others(node):
                mentioned.add(node.name)
        for name in (mentioned & functions.keys()) - entered:
            entered.add(name)
            waiting += functions[name]
    return frozenset(read - bound)


def _of_one_scope(root: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one, without the bodies of functions."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [*node.decorator_list, *node.args.defaults, *(one for one in node.args.kw_defaults if one)]
        else:
            waiting += ast.iter_child_nodes(node)


def _is_called_by_others(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Python, a decorator or a framework calls it without its name being written."""
    return bool(node.decorator_list) or (node.name.startswith("__") and node.name.endswith("__"))


def bound_names(node: ast.AST) -> Iterator[str]:
    """The names that a node itself binds."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Store):
            yield node.id
    elif isinstance(node, ast.alias):
        yield (node.asname or node.name).split(".")[0]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.MatchMapping) and node.rest:
        yield node.rest
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from node.names
