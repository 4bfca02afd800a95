"""Pointers that may be null where they are dereferenced: failed lookups, ``find`` without ``end``, empty lists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from necropsy.audit.cxx.aborts import callers_ask
from necropsy.audit.cxx.conditions import RETURNS_ERROR, arguments_of, asked_in, callee, outermost, words
from necropsy.audit.cxx.declarators import Local, locals_of, walk
from necropsy.audit.cxx.looking import Look, where
from necropsy.audit.cxx.model import Function
from necropsy.audit.cxx.registrations import string
from necropsy.model import CodeDefect, CodeFact

if TYPE_CHECKING:
    from tree_sitter import Node

_LOOKUPS = frozenset(
    {"Lookup", "LookupResource", "LookupMany", "GetResource", "LookupOrCreate", "LookupOrCreateResource"}
)
_ITERATORS = frozenset({"auto", "iterator", "const_iterator"})
_NULL = re.compile(r"\breturn\s*\(?\s*(?:nullptr|NULL|0)\s*\)?\s*;")


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for the first use of each."""
    for function in one.unit.functions:
        with one.of(function):
            if one.calls.kernel_of(function) is None:
                continue
            yield from _lookups(one, function)
            yield from _locals(one, function)
            yield from _lists(one, function)
            yield from _at_once(one, function)


def _uses(function: Function, name: str, after: int) -> Iterator[Node]:
    """Where ``name->`` or ``*name`` stands behind an offset."""
    for node in walk(function.body):
        if node.start_byte <= after or node.type not in {"field_expression", "pointer_expression"}:
            continue
        held = node.child_by_field_name("argument")
        if held is None or function.text(held) != name:
            continue
        text = function.text(node)
        if (node.type == "field_expression" and text[len(name) :].lstrip().startswith("->")) or text.startswith("*"):
            yield node


def _is_looked_at(function: Function, name: str, start: int, end: int) -> bool:
    """A condition between two offsets has the name in it."""
    pattern = re.compile(rf"\b{re.escape(name)}\b")
    return any(start < at < end and pattern.search(text) for at, text in asked_in(outermost(function)))


def _lookups(one: Look, function: Function) -> Iterator[CodeDefect]:
    """``Status s = manager->Lookup(..., &table)`` whose failure does not end the kernel."""
    pointers = {each.name: each for each in locals_of(function) if each.type.pointers}
    for node in walk(function.body, into_scopes=False):
        if node.type != "call_expression" or callee(function.file, node) not in _LOOKUPS:
            continue
        given = [function.text(each) for each in arguments_of(node)]
        name = next((each[1:].strip() for each in given if each.startswith("&") and each[1:].strip() in pointers), None)
        status = _status(function, node)
        if name is None or status is None:
            continue
        for use in _uses(function, name, node.end_byte):
            if _is_looked_at(function, name, node.start_byte, use.start_byte) or _ends(function, status, node, use):
                break
            yield _told(one, function, use, "lookup", name, callee(function.file, node), node)
            break


def _status(function: Function, node: Node) -> str | None:
    """The variable that keeps the status of the call; None where it is thrown away, or a macro looks at it."""
    parent = node.parent
    if parent is not None and parent.type == "init_declarator":
        held = parent.child_by_field_name("declarator")
        return function.text(held) if held is not None and held.type == "identifier" else None
    if parent is not None and parent.type == "assignment_expression":
        held = parent.child_by_field_name("left")
        return function.text(held) if held is not None and held.type == "identifier" else None
    return None


def _ends(function: Function, status: str, node: Node, use: Node) -> bool:
    """Something between leaves the function for a status that is not OK, or the use is within an ``if``."""
    at = use.parent
    while at is not None and at.type != "function_definition":
        if at.type in {"if_statement", "conditional_expression"} and re.search(
            rf"\b{re.escape(status)}\b", function.text(at).partition(")")[0] + function.text(at)[:200]
        ):
            return True
        at = at.parent
    for one in walk(outermost(function).body):
        if not node.end_byte < one.start_byte < use.start_byte or not re.search(
            rf"\b{re.escape(status)}\b", function.text(one)
        ):
            continue
        if one.type == "if_statement" and re.search(
            r"\breturn\b|\bthrow\b|\bcontinue\b|\bbreak\b|=", _body(function, one)
        ):
            return True
        if one.type == "call_expression" and (
            RETURNS_ERROR.fullmatch(callee(function.file, one))
            or callee(function.file, one).startswith(("OP_REQUIRES", "CHECK"))
        ):
            return True
    return False


def _body(function: Function, node: Node) -> str:
    held = node.child_by_field_name("consequence")
    other = node.child_by_field_name("alternative")
    return " ".join(function.text(each) for each in (held, other) if each is not None)


def _locals(one: Look, function: Function) -> Iterator[CodeDefect]:
    """``const Preset* p = FindPreset(name)`` and ``auto it = map.find(key)``."""
    for each in locals_of(function):
        if each.value is None or each.value.type != "call_expression":
            continue
        name = callee(function.file, each.value)
        if name == "find" and (each.type.rest or each.type.name).rpartition("::")[2] in _ITERATORS:
            yield from _found(one, function, each)
        elif each.type.pointers or each.type.last == "auto":
            yield from _returned(one, function, each, name)


def _found(one: Look, function: Function, each: Local) -> Iterator[CodeDefect]:
    called = each.value.child_by_field_name("function") if each.value is not None else None
    held = called.child_by_field_name("argument") if called is not None and called.type == "field_expression" else None
    if held is None or each.value is None:
        return
    container = function.text(held)
    key = " ".join(function.text(one_) for one_ in arguments_of(each.value))
    text = function.text(outermost(function).body)
    if re.search(rf"{re.escape(container)}\s*(?:\.|->)\s*(?:count|contains|insert|emplace|end|try_emplace)\s*\(", text):
        return
    kernel = one.calls.kernel_of(function)
    is_own = kernel is not None and outermost(function) in {kernel.compute, kernel.constructor}
    if not one.origins.decided(function, key) or (
        not is_own and (callers_ask(one, function, words(key)) or _is_asked_elsewhere(one, container))
    ):
        return  # in a helper, the key may have been checked before
    for use in _uses(function, each.name, each.statement.end_byte):
        if function.text(use).startswith("*") or re.search(r"->\s*(?:second|first)\b", function.text(use)):
            if not _is_looked_at(function, each.name, each.statement.start_byte, use.start_byte + 1):
                yield _told(one, function, use, "find", each.name, f"{container}.find", each.statement)
            return


def _is_asked_elsewhere(one: Look, container: str) -> bool:
    """Another function looks for a key in a container of the same name."""
    asks = re.compile(rf"\b{re.escape(container)}\s*(?:\.|->)\s*(?:find|count|contains)\s*\(")
    return sum(len(asks.findall(each.text(each.body))) for each in one.unit.functions if each.outer is None) > 1


def _returned(one: Look, function: Function, each: Local, name: str) -> Iterator[CodeDefect]:
    calls = [call for call in one.calls.calls(function) if call.node == each.value]
    targets = one.calls.targets(calls[0]) if calls else ()
    if len(targets) != 1 or targets[0].returns is None or not targets[0].returns.pointers or targets[0].is_virtual:
        return
    if _NULL.search(targets[0].text(targets[0].body)) is None:
        return
    text = " ".join(calls[0].texts)
    if not one.origins.decided(function, text) or _is_limited(one, function, text):
        return
    for use in _uses(function, each.name, each.statement.end_byte):
        if not _is_looked_at(function, each.name, each.statement.start_byte, use.end_byte) and not _is_looked_at_text(
            function, each.name, use
        ):
            yield _told(one, function, use, "returned", each.name, name, each.statement)
        return


def _at_once(one: Look, function: Function) -> Iterator[CodeDefect]:
    """``FindPreset(name)->factor`` and ``map_.find(key)->second``."""
    calls = {call.node.id: call for call in one.calls.calls(function)}
    for node in walk(function.body, into_scopes=False):
        held = node.child_by_field_name("argument") if node.type in {"field_expression", "pointer_expression"} else None
        call = calls.get(held.id) if held is not None else None
        if held is None or call is None or function.text(node).startswith("&"):
            continue
        if node.type == "field_expression" and not function.text(node)[len(function.text(held)) :].lstrip().startswith(
            "->"
        ):
            continue
        text = " ".join(call.texts)
        if not one.origins.decided(function, text) or _is_limited(one, function, text):
            continue
        targets = one.calls.targets(call)
        is_find = (
            call.name == "find"
            and call.receiver is not None
            and re.search(r"->\s*(?:second|first)\b", function.text(node))
        )
        may_fail = (
            len(targets) == 1
            and targets[0].returns is not None
            and bool(targets[0].returns.pointers)
            and not targets[0].is_virtual
            and _NULL.search(targets[0].text(targets[0].body)) is not None
        )
        if is_find and not targets:
            container = function.text(call.receiver) if call.receiver is not None else ""
            if not re.search(
                rf"\b{re.escape(container)}\s*(?:\.|->)\s*(?:count|contains|end)\b",
                function.text(outermost(function).body),
            ):
                yield _told(one, function, node, "find", f"{container}.find({text})", f"{container}.find", node)
        elif may_fail:
            yield _told(one, function, node, "returned", function.text(held)[:60], call.name, node)


def _is_looked_at_text(function: Function, name: str, use: Node) -> bool:
    """``p && p->x`` within one expression."""
    around = use.parent
    while around is not None and not around.type.endswith("statement"):
        if around.type == "binary_expression" and re.search(
            rf"\b{re.escape(name)}\s*(?:&&|!=|==)", function.text(around)
        ):
            return True
        around = around.parent
    return False


def _is_limited(one: Look, function: Function, text: str) -> bool:
    """What is looked up is asked for before, or an attribute of which the op allows certain values only."""
    names = words(text) - {"context", "ctx", "i", "size"}
    if any(names & words(asked) for _, asked in asked_in(outermost(function), loops=False)):
        return True
    kernel = one.calls.kernel_of(function)
    attributes = kernel.op.attributes if kernel is not None and kernel.op is not None else ()
    built = (
        kernel.constructor.text(kernel.constructor.node)
        if kernel is not None and kernel.constructor is not None
        else ""
    )
    limited = {each.name for each in attributes if each.allowed}
    read = {
        string(found[0])
        for found in re.finditer(r'"\w+"', built)
        if re.search(rf"{found[0]}\s*,\s*&\s*(?:{'|'.join(words(text))})\b", built)
    }
    asked = asked_in(kernel.constructor) if kernel is not None and kernel.constructor is not None else ()
    return bool(limited & read) or any(words(text) & words(each) for _, each in asked)


def _lists(one: Look, function: Function) -> Iterator[CodeDefect]:
    """The first element of an input list that may be empty."""
    kernel = one.calls.kernel_of(function)
    if kernel is None or kernel.op is None:
        return
    may = {}
    for argument in kernel.op.inputs:
        attribute = kernel.op.attribute(argument.number or argument.type)
        if attribute is not None and attribute.minimum == 0 and (argument.number or attribute.type.startswith("list")):
            may[argument.name] = attribute
    if not may:
        return
    text = function.text(function.body)
    for each in locals_of(function):
        if each.type.last != "OpInputList":
            continue
        filled = re.search(rf'"(\w+)"\s*,\s*&\s*{re.escape(each.name)}\b', text)
        attribute = may.get(filled[1]) if filled is not None else None
        if filled is None or attribute is None:
            continue
        for node in walk(function.body, into_scopes=False):
            if node.type != "subscript_expression" or not re.fullmatch(
                rf"{re.escape(each.name)}\s*\[\s*0\s*\]", function.text(node)
            ):
                continue
            if re.search(
                rf"\b{re.escape(each.name)}\s*\.\s*size|num_inputs|\bN\b",
                " ".join(t for at, t in asked_in(outermost(function)) if at < node.start_byte),
            ):
                break
            yield _told(one, function, node, "list", each.name, attribute.name, each.statement)
            break


def _told(one: Look, function: Function, use: Node, case: str, name: str, call: str, made: Node) -> CodeDefect:  # noqa: PLR0917 - what its callers have in hand
    file = function.file
    return one.defect(
        "op-null-input",
        case,
        file.place(use),
        "access",
        function=function,
        others=(one.place(file.place(made), "declaration"),),
        names={"pointer": name, "call": call},
        facts=(
            CodeFact(
                claim="comes from", seen=file.line_text(file.place(made).line)[:160], where=where(file.place(made))
            ),
        ),
        severity="error" if case == "list" else "warning",
        confidence="likely",
    )
