"""Rewritings that replace an expression by a simpler one, or leave out a part of it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Sequence

from necropsy.reduce.python_source import Edit, Placed, Source
from necropsy.reduce.rewriting import Alternatives, Finder, from_the_end

_SHORT = 8
"""Characters of a string, or bytes, that are not worth a trial."""
_MANY = 8
"""Items of a list, or arguments, up to which each is looked at."""
_SMALL = 4
"""Numbers up to this one are not worth a trial."""
_LARGE = 0x10000


def simplified_expressions(kept_calls: Collection[str]) -> Finder:
    """A finder of expressions that can be simpler.

    ``kept_calls``: the last part of the names of functions, such as those on the line that died. Their arguments keep
    their number and kind: with others they would die of something else.
    """

    def find(source: Source) -> list[Alternatives]:
        skipped = _in_f_strings(source.tree) | _docstrings(source.tree)
        skipped |= _of_long_lists(source.tree) | _declared_types(source.tree)
        kept = {
            node for node in ast.walk(source.tree) if isinstance(node, ast.Call) and last_name(node.func) in kept_calls
        }
        fixed, origins = _origins(source.tree, kept)
        places: list[Alternatives] = []
        for node in from_the_end(source, (ast.expr, ast.Import, ast.ImportFrom)):
            if node in skipped:
                continue
            alternatives = [[edit] for edit in _rewritten(source, node, kept, fixed, origins)]
            if alternatives:
                places.append(alternatives)
        return places

    return find


def _origins(tree: ast.Module, kept: Collection[ast.Call]) -> tuple[set[ast.expr], set[str]]:
    """Where the arguments of calls come from: expressions, and the names of variables and attributes."""
    fixed = {argument for call in kept for argument in (*call.args, *(each.value for each in call.keywords))}
    names: set[str] = set()
    waiting = list(fixed)
    while waiting:
        name = last_name(waiting.pop())
        if name is None or name in names:
            continue
        names.add(name)
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and any(last_name(one) == name for one in node.targets):
                fixed.add(node.value)
                waiting.append(node.value)
    return fixed, names


def _rewritten(
    source: Source, node: ast.AST, kept: Collection[ast.Call], fixed: Collection[ast.expr], origins: Collection[str]
) -> Iterator[Edit]:
    """``kept``: calls whose arguments keep their number and kind, which come from ``fixed`` and ``origins``."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        if len(node.names) > 1:
            yield from (_left_out(source, node.names, index) for index in reversed(range(len(node.names))))
        return
    if not isinstance(node, ast.expr):
        return
    start, end = source.start(node), source.end(node)
    if isinstance(node, ast.Constant):
        yield from (Edit(start, end, text) for text in _smaller(node.value))
        return
    if node not in kept and node not in fixed:
        for text in _parts(source, node):
            yield Edit(start, end, b"(" + text + b")" if b"\n" in text or b"\r" in text else text)
    if isinstance(node, ast.Call) and node not in kept:
        names = [one for one in (*node.args, *(each.value for each in node.keywords)) if isinstance(one, ast.Name)]
        yield from (Edit(source.start(one), source.end(one), b"None") for one in names if one.id not in origins)
        yield from (_left_out(source, node.keywords, at) for at in reversed(range(len(node.keywords))))
        if len(node.args) > _MANY:
            yield from _shorter(source, node.args, node.args)
        elif len(node.args) > 1 or (node.args and not node.keywords):
            yield _left_out(source, node.args, len(node.args) - 1)
    elif isinstance(node, ast.List | ast.Tuple | ast.Set) and isinstance(getattr(node, "ctx", None), ast.Load | None):
        yield from _shorter(source, node.elts, node.elts)
    elif isinstance(node, ast.Dict) and None not in node.keys:
        yield from _shorter(source, [key for key in node.keys if key is not None], node.values)


def _parts(source: Source, node: ast.expr) -> Iterator[bytes]:
    """What may stand instead of an expression."""
    whole: list[ast.expr] = []
    if isinstance(node, ast.Call):
        if (item := _first_item(node)) is not None:
            yield source.segment(item)
        if isinstance(node.func, ast.Attribute):
            whole.append(node.func.value)
        whole += [one for one in node.args if not isinstance(one, ast.Starred)]
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name):
        whole += [one for one in node.value.args if not isinstance(one, ast.Starred)]  # `Point(x, y).x`
    elif isinstance(node, ast.IfExp):
        whole += [node.body, node.orelse]
    elif isinstance(node, ast.BoolOp):
        whole += node.values
    elif isinstance(node, ast.BinOp):
        whole += [node.left, node.right]
    elif isinstance(node, ast.Compare):
        whole += [node.left, *node.comparators]
    elif isinstance(node, ast.UnaryOp):
        whole.append(node.operand)
    elif isinstance(node, ast.Subscript | ast.Await | ast.NamedExpr):
        if not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            whole.append(node.value)
    elif isinstance(node, ast.JoinedStr):
        yield b"''"
    elif isinstance(node, ast.ListComp):
        yield b"[" + source.segment(node.elt) + b"]"
    if isinstance(node, ast.Call):
        yield b"None"
    yield from (source.segment(one) for one in whole)


def _first_item(node: ast.Call) -> ast.expr | None:
    """The ``a`` of ``next(iter([a, b]))``, which unwrapping a loop makes."""
    inner = node.args[0] if last_name(node.func) == "next" and node.args else None
    if not isinstance(inner, ast.Call) or last_name(inner.func) != "iter" or not inner.args:
        return None
    items = inner.args[0]
    if isinstance(items, ast.List | ast.Tuple) and items.elts and not isinstance(items.elts[0], ast.Starred):
        return items.elts[0]
    return None


def _smaller(value: object) -> Iterator[bytes]:
    """Simpler values of the same type."""
    if isinstance(value, bool):
        return
    if isinstance(value, int) and value > _SMALL:
        # Half of it, and again where that is accepted; but a large one down to the bound would die by chance only.
        yield from (repr(number).encode() for number in (1, value // 2 if value < _LARGE else 1000))
    elif isinstance(value, str | bytes) and len(value) > _SHORT:
        yield from (ascii(part).encode() for part in (value[:0], value[: len(value) // 2]))


def _shorter(source: Source, firsts: Sequence[ast.expr], lasts: Sequence[ast.expr]) -> Iterator[Edit]:
    """The items of a display without a half of them, or without the last. A pair begins with its key."""
    count = len(firsts)
    if count > 3:
        middle = count // 2
        yield Edit(source.start(firsts[0]), source.start(firsts[middle]))
        yield Edit(source.end(lasts[middle - 1]), source.end(lasts[-1]))
    if 1 < count <= _MANY:
        yield Edit(source.end(lasts[-2]), source.end(lasts[-1]))
        yield Edit(source.start(firsts[0]), source.start(firsts[1]))


def _left_out(source: Source, items: Sequence[Placed], index: int) -> Edit:
    """One item of a list with commas left out."""
    item = items[index]
    if index:
        return Edit(source.end(items[index - 1]), source.end(item))
    if len(items) > 1:
        return Edit(source.start(item), source.start(items[1]))
    return Edit(source.start(item), source.end(item))


def _declared_types(tree: ast.Module) -> set[ast.AST]:
    """``lib.gather.argtypes = [...]``: with others, another crash is made."""
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and any(last_name(one) in {"argtypes", "restype"} for one in node.targets)
        for inner in ast.walk(node)
    }


def last_name(node: ast.expr) -> str | None:
    """``gather`` of ``lib.gather``."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _in_f_strings(tree: ast.Module) -> set[ast.AST]:
    """Before Python 3.12 their places in the text are not known."""
    return {
        inner for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for inner in ast.walk(node) if inner != node
    }


def _of_long_lists(tree: ast.Module) -> set[ast.AST]:
    """The items of long lists: the list gets shorter first."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        items: list[ast.expr] = []
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            items = node.elts
        elif isinstance(node, ast.Dict):
            items = [*(key for key in node.keys if key is not None), *node.values]
        elif isinstance(node, ast.Call):
            items = node.args
        if len(items) > _MANY:
            found.update(inner for item in items for inner in ast.walk(item))
    return found


def _docstrings(tree: ast.Module) -> set[ast.AST]:
    return {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
