"""Calls whose Status is thrown away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from necropsy.audit.cxx.calls import Call
from necropsy.audit.cxx.declarators import Local, locals_of
from necropsy.audit.cxx.expression_types import variable
from necropsy.audit.cxx.looking import Look, where
from necropsy.audit.cxx.model import Function
from necropsy.audit.cxx.registrations import string
from necropsy.model import CodeDefect, CodeFact

if TYPE_CHECKING:
    from tree_sitter import Node

_STATUS = frozenset({"Status", "StatusOr"})
_CONTEXTS = frozenset({"OpKernelContext", "OpKernelConstruction", "InferenceContext"})
_OF_CONTEXT = {
    "allocate_output": 3,
    "allocate_temp": 3,
    "allocate_persistent": 4,
    "forward_input_or_allocate_output": 4,
    "forward_input_or_allocate_temp": 4,
    "GetAttr": 2,
    "input": 2,
    "input_list": 2,
    "output_list": 2,
    "mutable_input_list": 2,
    "MatchSignature": 2,
    "WithRank": 3,
    "WithRankAtLeast": 3,
    "Merge": 3,
}
"""Methods of the contexts that return a Status, with how many arguments they have at least."""
_FREE = frozenset({"GetNodeAttr", "LookupResource", "CreateResource", "DeleteResource", "LookupOrCreateResource"})


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each call, and for each Status in a variable that nothing asks."""
    for function in one.unit.functions:
        with one.of(function):
            for call in one.calls.calls(function):
                if not function.is_destructor and _stands_alone(call.node) and _gives_status(one, call):
                    yield _told(one, function, call.node, "call", call.name, "", is_advice=_is_sure(one, call))
            yield from _unused(one, function)


def _is_sure(one: Look, call: Call) -> bool:
    """``input("x", &x)`` of an input that the op has does not fail; nor does one whose op is not known, as a rule."""
    name = string(call.texts[0]) if call.texts else None
    if call.name not in {"input", "input_list", "output_list"} or name is None:
        return False
    kernel = one.calls.kernel_of(call.caller)
    op = kernel.op if kernel is not None else None
    return op is None or any(each.name == name for each in (*op.inputs, *op.outputs))


def _stands_alone(node: Node) -> bool:
    return node.parent is not None and node.parent.type == "expression_statement"


def _gives_status(one: Look, call: Call) -> bool:
    if call.name in _OF_CONTEXT and call.receiver is not None and len(call.arguments) >= _OF_CONTEXT[call.name]:
        type_ = variable(one.unit, call.caller, call.caller.text(call.receiver))
        if type_ is not None and type_.last in _CONTEXTS:
            return True
    if call.name in _FREE and call.receiver is None and len(call.arguments) > 1:
        return True
    targets = one.calls.targets(call)
    return bool(targets) and all(
        each.returns is not None and each.returns.last in _STATUS and not each.returns.is_indirect for each in targets
    )


def _unused(one: Look, function: Function) -> Iterator[CodeDefect]:
    text = function.text(function.body)
    for each in locals_of(function):
        if (
            each.type.last != "Status"
            or each.type.is_indirect
            or each.value is None
            or each.value.type != "call_expression"
        ):
            continue
        if re.match(r"unused|ignored?|_", each.name):
            continue
        if len(re.findall(rf"\b{re.escape(each.name)}\b", text)) == 1 and "maybe_unused" not in text:
            name = re.search(r"(\w+)\s*$", function.text(each.value).partition("(")[0])
            call = name[1] if name is not None else ""
            advice = _is_told_otherwise(function, each, call)
            yield _told(one, function, each.statement, "variable", call, each.name, is_advice=advice)


def _is_told_otherwise(function: Function, each: Local, call: str) -> bool:
    """Whether later code uses what the call wrote, which can show the failure too: a short result of ``Read``, say."""
    behind = function.file.text[each.statement.end_byte : function.body.end_byte].decode("utf-8", "replace")
    written = re.findall(r"&\s*(\w+)", function.text(each.value)) if each.value is not None else []
    return call not in _OF_CONTEXT and any(re.search(rf"\b{one}\b", behind) for one in written)


def _told(  # noqa: PLR0917 - what its callers have in hand
    one: Look, function: Function, node: Node, case: str, call: str, name: str, *, is_advice: bool = False
) -> CodeDefect:
    file = function.file
    after = node.parent if case == "call" and node.parent is not None else node
    following = after.next_named_sibling
    facts = (
        (
            CodeFact(
                claim="goes on with",
                seen=file.line_text(file.place(following).line)[:160],
                where=where(file.place(following)),
            ),
        )
        if following is not None
        else ()
    )
    return one.defect(
        "op-status-ignored",
        case,
        file.place(node),
        "call",
        function=function,
        names={"call": call, "variable": name},
        facts=facts,
        severity="note" if is_advice else "warning",
        confidence="certain",
    )
