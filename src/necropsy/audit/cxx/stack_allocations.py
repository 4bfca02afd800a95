"""Arrays of variable length and ``alloca`` whose size comes from data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from necropsy.audit.cxx.conditions import arguments_of, callee, most, words
from necropsy.audit.cxx.declarators import Local, locals_of, walk
from necropsy.audit.cxx.frames import SHARE, bindings
from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Function
from necropsy.audit.cxx.sizes import Sizes
from necropsy.audit.cxx.types import Type
from necropsy.model import CodeDefect, CodeFact

if TYPE_CHECKING:
    from tree_sitter import Node

_ALLOCA = frozenset({"alloca", "__builtin_alloca", "_alloca", "_malloca", "strdupa"})


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each array and each call whose size no constant limits."""
    for function in one.unit.functions:
        with one.of(function):
            yield from _in(one, function)


def _in(one: Look, function: Function) -> Iterator[CodeDefect]:
    variables = {each.name: each for each in _around(function)}
    names = set(variables) | _parameters(function) | _members(one, function)
    for bound in bindings(one.unit, function)[:1]:
        sizes = Sizes(one.unit, bound, function.qualified)
        for each in locals_of(function):
            if not each.type.extents or each.is_static or each.type.pointers:
                continue
            for extent in each.type.extents:
                if extent and sizes.value(extent) is None and _varies(extent, names, variables, sizes):
                    element = sizes.bytes(Type(each.type.name, each.type.arguments)) or 1
                    yield from _judged(one, function, sizes, each.statement, extent, element, each.name)
                    break
        for node in walk(function.body, into_scopes=False):
            given = arguments_of(node) if node.type == "call_expression" else []
            if len(given) == 1 and callee(function.file, node) in _ALLOCA:
                size = function.text(given[0])
                if sizes.value(size) is None and _varies(size, names, variables, sizes):
                    yield from _judged(one, function, sizes, node, size, 1, "")


def _around(function: Function) -> Iterator[Local]:
    at: Function | None = function
    while at is not None:
        yield from locals_of(at)
        at = at.outer


def _parameters(function: Function) -> set[str]:
    found, at = set(), function
    while True:
        found |= {each.name for each in at.parameters}
        if at.outer is None:
            return found
        at = at.outer


def _members(one: Look, function: Function) -> set[str]:
    cls = one.unit.class_named(function.class_name) if function.class_name is not None else None
    return {each.name for each in cls.fields if not each.is_static} if cls is not None else set()


def _varies(text: str, names: set[str], variables: dict[str, Local], sizes: Sizes) -> bool:
    """Something in the expression is a variable without a constant value."""
    for name in words(text) & names:
        local = variables.get(name)
        if local is None or local.value is None:
            return True
        value = local.file.text_of(local.value).strip()
        if re.fullmatch(r"(?:typename\s+)?[\w:<>,\s]+::\w+", value):
            continue  # a constant of a type that is not known here
        if sizes.value(value) is None and "constexpr" not in local.file.text_of(local.statement):
            return True
        if not local.type.const and _is_changed(local):
            return True
    return False


def _is_changed(local: Local) -> bool:
    around = local.statement.parent
    behind = local.file.text[local.statement.end_byte : around.end_byte].decode("utf-8", "replace") if around else ""
    return (
        re.search(
            rf"\b{local.name}\s*(?:[-+*/%&|^]|<<|>>)?=(?!=)|(?:\+\+|--){local.name}\b|\b{local.name}(?:\+\+|--)", behind
        )
        is not None
    )


def _judged(  # noqa: PLR0917 - what its caller has in hand
    one: Look, function: Function, sizes: Sizes, node: Node, size: str, element: int, name: str
) -> Iterator[CodeDefect]:
    head = re.match(r"\s*([\w.\->()]+?)\s*(?:[-+*]\s*(?:\d+|sizeof.*))?\s*$", size)
    limited, limit = most(
        function, node, head[1] if head is not None else size, sizes, lambda text: one.origins.decided(function, text)
    )
    if limited and limit is None:
        return  # something that is not known here limits it
    if limit is not None and limit * element < one.stack // SHARE:
        return
    decided = one.origins.decided(function, size)
    facts = tuple(
        CodeFact(
            claim="the size", seen=function.text(each.statement)[:160], where=f"{function.file.path}:{each.place.line}"
        )
        for each in _around(function)
        if each.name in words(size)
    )
    yield one.defect(
        "op-stack-allocation",
        "array" if name else "alloca",
        function.file.place(node),
        "declaration" if name else "call",
        function=function,
        names={"variable": name, "size": " ".join(size.split())},
        numbers={"element": element, "fit": one.stack // element} | ({"limit": limit} if limit is not None else {}),
        facts=facts[:2],
        severity="note" if not decided else "error" if limit is None else "warning",
        confidence="likely",
        stack=one.stack,
    )
