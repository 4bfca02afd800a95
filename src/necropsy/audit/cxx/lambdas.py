"""OP_REQUIRES in a lambda: it returns from the lambda only, and the kernel goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from necropsy.audit.cxx.conditions import arguments_of, callee, statement_of
from necropsy.audit.cxx.declarators import walk
from necropsy.audit.cxx.expression_types import variable
from necropsy.audit.cxx.looking import Look, shown, where
from necropsy.audit.cxx.model import Function
from necropsy.model import CodeDefect, CodeFact

if TYPE_CHECKING:
    from tree_sitter import Node

_MACROS = frozenset({"OP_REQUIRES", "OP_REQUIRES_OK"})
_ASKED = re.compile(r"(?:->|\.)\s*status\s*\(\s*\)|\bstatus\s*\(\s*\)")


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each lambda behind which its function goes on without a look at the status."""
    for function in one.unit.functions:
        if function.is_lambda and function.outer is not None:
            with one.of(function):
                yield from _in(one, function, function.outer)


def _in(one: Look, function: Function, outer: Function) -> Iterator[CodeDefect]:
    own = {each.name for each in function.parameters}
    for node in walk(function.body, into_scopes=False):
        if node.type != "call_expression" or callee(function.file, node) not in _MACROS:
            continue
        given = arguments_of(node)
        if not given or (function.text(given[0]) in own and not _is_called(function, outer)):
            return
        type_ = variable(one.unit, outer, function.text(given[0]))
        if type_ is not None and type_.last == "OpKernelConstruction":
            return  # the kernel is not used then
        after = _goes_on(function, outer)
        if after is None:
            return
        yield one.defect(
            "op-requires-in-lambda",
            "lambda",
            function.file.place(node),
            "check",
            function=function,
            names={
                "macro": callee(function.file, node),
                "outer": shown(outer),
                "after": function.file.line_text(function.file.place(after).line),
            },
            facts=(
                CodeFact(
                    claim="goes on with",
                    seen=function.file.line_text(function.file.place(after).line)[:160],
                    where=where(function.file.place(after)),
                ),
            ),
            severity="warning",
            confidence="certain",
        )
        return


def _goes_on(function: Function, outer: Function) -> Node | None:
    """The statement behind the one that calls the lambda; None where none follows, or one asks for the status."""
    used = _use(function, outer)
    if used is None:
        return None
    at = statement_of(used)
    behind = outer.file.text[used.end_byte : outer.body.end_byte].decode("utf-8", "replace")
    if _ASKED.search(behind):
        return None
    while at.parent is not None and at.start_byte > outer.body.start_byte:
        follows = at.next_named_sibling
        while follows is not None and follows.type == "comment":
            follows = follows.next_named_sibling
        if follows is not None:
            return None if _is_end(outer, follows) else follows
        at = statement_of(at.parent)
    return None


def _is_end(outer: Function, node: Node) -> bool:
    return node.type == "return_statement" and outer.text(node).strip(" ;") == "return"


def _is_called(function: Function, outer: Function) -> bool:
    """The outer function calls the lambda itself, as ``check(context, i);``."""
    used = _use(function, outer)
    parent = used.parent if used is not None and used != function.node else None
    return parent is not None and parent.type == "call_expression" and parent.child_by_field_name("function") == used


def _use(function: Function, outer: Function) -> Node | None:
    """Where the lambda is called, or given away; the lambda itself where it is an argument."""
    declared = function.node.parent
    if declared is None or declared.type not in {"init_declarator", "assignment_expression"}:
        return function.node
    uses = [
        node
        for node in walk(outer.body)
        if node.type == "identifier" and outer.text(node) == function.name and node.start_byte > function.node.end_byte
    ]
    return uses[-1] if uses else None
