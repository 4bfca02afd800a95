"""Rewritings that put the statements of a function where it is called, if that is in one place."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from necropsy.reduce.deletion import deletions, suites
from necropsy.reduce.expressions import last_name
from necropsy.reduce.python_source import Edit, Source, source_of
from necropsy.reduce.rewriting import Alternatives, indentation, own_lines, reindented, replaced_lines

_SHORT = 40
"""Longest argument, in bytes, that may replace each use of its parameter."""
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef, ast.GeneratorExp, ast.ListComp)
_SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return)


@dataclass(frozen=True)
class _Call:
    """A call in a statement, and the function that it calls. ``made``: an object's name, of ``name = Class(...)``."""

    statement: ast.stmt
    call: ast.Call
    function: ast.FunctionDef
    receiver: bytes | None
    made: str | None = None


def inlined_functions(source: Source) -> list[Alternatives]:
    """Functions, methods and constructors of the file that are called in one place, put there.

    Their names become names of the caller: where that changes what happens, the trial says so.
    """
    places: list[Alternatives] = []
    for one in _calls(source):
        text = _inlined(source, one)
        if text is not None:
            places.append([[Edit(0, len(source.text), text)]])
    return places


def _calls(source: Source) -> list[_Call]:
    """Calls that can be inlined, from the end of the file on. Their order does not depend on what arguments are."""
    functions: dict[str, tuple[ast.FunctionDef, bool]] = {}
    classes: dict[str, ast.FunctionDef] = {}
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef):
            functions[node.name] = node, False
        for inner in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(inner, ast.FunctionDef) and isinstance(node, ast.ClassDef) and inner.args.args:
                if inner.name == "__init__":
                    classes[node.name] = inner
                elif inner.name not in functions:
                    functions[inner.name] = inner, True
    mentions = _mentions(source.tree)
    found: list[_Call] = []
    for statement in ast.walk(source.tree):
        if not isinstance(statement, _SIMPLE) or not own_lines(source, statement):
            continue
        for call in _evaluated(statement):
            name = last_name(call.func) or ""
            if name in functions:
                function, is_method = functions[name]
                if (mentions - _mentions(function))[name] != 1:
                    continue
                is_attribute = isinstance(call.func, ast.Attribute)
                if is_method == is_attribute and _is_inlinable(source, function, statement):
                    receiver = source.segment(call.func.value) if isinstance(call.func, ast.Attribute) else None
                    found.append(_Call(statement, call, function, receiver))
            elif (
                name in classes
                and mentions[name] == 1
                and isinstance(statement, ast.Assign)
                and statement.value is call
            ):
                target = statement.targets[0]
                if isinstance(target, ast.Name) and _is_inlinable(source, classes[name], statement):
                    found.append(_Call(statement, call, classes[name], target.id.encode(), target.id))
    return sorted(found, key=lambda one: (-one.statement.lineno, one.call.lineno))


def _mentions(tree: ast.AST) -> Counter[str | None]:
    """How often names are read, as names or as attributes; not to declare the types of a function of ctypes."""
    declared = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in {"argtypes", "restype"}
    }
    return Counter(
        last_name(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load) and node not in declared
    )


def _evaluated(statement: ast.stmt) -> Iterator[ast.Call]:
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            yield node
        if not isinstance(node, _SCOPES):
            waiting += ast.iter_child_nodes(node)


def _is_inlinable(source: Source, function: ast.FunctionDef, statement: ast.stmt) -> bool:
    inside = list(ast.walk(function))
    return (
        own_lines(source, function)
        and not function.decorator_list
        and not _has_inner_return(function)
        and statement not in inside
        and not any(isinstance(one, ast.Name) and one.id == "super" for one in inside)
    )


def _inlined(source: Source, one: _Call) -> bytes | None:
    """The text of the file with a call inlined; None where the arguments do not simply correspond."""
    given = _given(source, one)
    if given is None:
        return None
    direct, assigned = _sorted_out(one.function, given)
    if direct:
        edits = [
            Edit(source.start(node), source.end(node), direct[node.id])
            for inner in one.function.body
            for node in ast.walk(inner)
            if isinstance(node, ast.Name) and node.id in direct
        ]
        changed = source_of(source.edited(edits))
        if changed is None:
            return None
        again = [call for call in _calls(changed) if call.function.name == one.function.name]
        same = [call for call in _calls(source) if call.function.name == one.function.name]
        at = next((index for index, call in enumerate(same) if call.call is one.call), None)
        if at is None or len(again) != len(same):
            return None
        source, one = changed, again[at]
    edits = [replaced_lines(source, one.statement, _text(source, one, assigned))]
    suite = next(suite for suite in suites(source) if one.function in suite.statements)
    edits += deletions(source, suite, [one.function])
    pieces, at = [], 0
    for edit in sorted(edits, key=lambda each: each.start):
        if edit.start < at:
            return None
        pieces += [source.text[at : edit.start], edit.text]
        at = edit.end
    return b"".join([*pieces, source.text[at:]])


def _given(source: Source, one: _Call) -> dict[str, tuple[ast.expr | None, bytes]] | None:
    """The argument of each parameter, and its text; None where they do not simply correspond."""
    call, parameters = one.call, one.function.args
    if parameters.kwarg or any(isinstance(each, ast.Starred) for each in call.args):
        return None
    names = [each.arg for each in (*parameters.posonlyargs, *parameters.args)]
    found: dict[str, tuple[ast.expr | None, bytes]] = {}
    if one.receiver is not None:
        receiver = call.func.value if isinstance(call.func, ast.Attribute) and one.made is None else None
        found[names.pop(0)] = receiver, one.receiver
    if any(each.arg is None for each in call.keywords):
        return None
    if len(call.args) > len(names):
        if parameters.vararg is None:
            return None
        rest = b", ".join(source.segment(each) for each in call.args[len(names) :])
        found[parameters.vararg.arg] = call, b"(" + rest + b",)"
    elif parameters.vararg is not None:
        found[parameters.vararg.arg] = call, b"()"
    given: dict[str, ast.expr] = dict(zip(names, call.args, strict=False))
    given |= {each.arg: each.value for each in call.keywords if each.arg is not None}
    defaults = dict(zip(reversed(names), reversed(parameters.defaults), strict=False))
    defaults |= {
        each.arg: value for each, value in zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True) if value
    }
    for name in (*names, *(each.arg for each in parameters.kwonlyargs)):
        value = given.get(name) or defaults.get(name)
        if value is None:
            return None
        text = source.segment(value)
        found[name] = value, b"(" + text + b")" if b"\n" in text or b"\r" in text else text
    return found


def _sorted_out(
    function: ast.FunctionDef, given: dict[str, tuple[ast.expr | None, bytes]]
) -> tuple[dict[str, bytes], list[bytes]]:
    """Arguments that replace their parameters, and assignments for the others that are used."""
    names = [node for inner in function.body for node in ast.walk(inner) if isinstance(node, ast.Name)]
    stored = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
    stored |= {node.arg for inner in function.body for node in ast.walk(inner) if isinstance(node, ast.arg)}
    quoted = {
        node.id
        for inner in function.body
        for whole in ast.walk(inner)
        if isinstance(whole, ast.JoinedStr)
        for node in ast.walk(whole)
        if isinstance(node, ast.Name)
    }
    used = {node.id for node in names}
    bases = {
        node.value.id
        for inner in function.body
        for node in ast.walk(inner)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    direct: dict[str, bytes] = {}
    assigned: list[bytes] = []
    for name, (value, text) in given.items():
        if text == name.encode() or name not in used:
            continue
        is_plain = value is None or (isinstance(value, ast.Name) and value.id not in stored)
        is_plain = is_plain or (isinstance(value, ast.Constant | ast.Attribute) and len(text) <= _SHORT)
        if is_plain and name not in stored | quoted and not (isinstance(value, ast.Attribute) and b"(" in text):
            direct[name] = b"(" + text + b")" if text[:1].isdigit() and name in bases else text
        else:
            assigned.append(name.encode() + b" = " + text)
    return direct, assigned


def _text(source: Source, one: _Call, assigned: Sequence[bytes]) -> bytes:
    """The lines in the place of the statement with the call."""
    body: Sequence[ast.stmt] = one.function.body
    if ast.get_docstring(one.function, clean=False) is not None:
        body = body[1:]
    last = body[-1] if body else None
    value = b"None"
    if isinstance(last, ast.Return):
        body = body[:-1]
        if last.value is not None:
            value = source.segment(last.value)
            if not isinstance(last.value, ast.Name | ast.Constant | ast.Attribute | ast.Call | ast.Tuple):
                value = b"(" + value + b")"
    body = [each for each in body if not isinstance(each, ast.Pass)]
    node = one.statement
    indent = indentation(source, node)
    before = source.text[source.start(node) : source.start(one.call)]
    after = source.text[source.end(one.call) : source.end(node)]
    lines = [indent + each for each in assigned]
    if one.made is not None:
        lines.insert(0, indent + before + source.segment(one.call.func) + b"()")
    if body:
        lines.append(reindented(source, body, indent))
    if one.made is None and (before or after or value != b"None"):
        lines.append(indent + before + value + after)
    return source.eol.join(lines) if lines else indent + b"pass"


def _has_inner_return(function: ast.FunctionDef) -> bool:
    """A ``return`` that is not the last statement, or a ``yield``."""
    waiting: list[ast.AST] = list(function.body[:-1])
    if not isinstance(function.body[-1], ast.Return):
        waiting.append(function.body[-1])
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return | ast.Yield | ast.YieldFrom | ast.Await):
            return True
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return False
