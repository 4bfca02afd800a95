"""Loops that may never end: what ends them is computed from input, and no count limits the rounds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from necropsy.audit.cxx.conditions import callee, condition, words
from necropsy.audit.cxx.declarators import walk
from necropsy.audit.cxx.expression_types import variable
from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Function
from necropsy.model import CodeDefect

if TYPE_CHECKING:
    from tree_sitter import Node

_LEAVES = frozenset({"return_statement", "break_statement", "throw_statement", "goto_statement"})
_FLOATS = frozenset({"float", "double", "T", "Scalar", "half", "bfloat16"})
_WAITS = re.compile(r"[Ww]ait|sleep|Sleep|\bpop\b|[Nn]ext|[Rr]ead|\bget\w*\s*\(|compare_exchange")


def look(one: Look) -> Iterator[CodeDefect]:
    """A note for each such loop below a kernel."""
    for function in one.unit.functions:
        with one.of(function):
            if one.calls.kernel_of(function) is None:
                continue
            for node in walk(function.body, into_scopes=False):
                if node.type in {"while_statement", "do_statement", "for_statement"}:
                    case, name = _case(one, function, node)
                    if case:
                        yield one.defect(
                            "op-unbounded-loop",
                            case,
                            function.file.place(node),
                            "loop",
                            function=function,
                            names={"variable": name, "condition": _asked(function, node)},
                            severity="note",
                            confidence="possible",
                        )


def _asked(function: Function, node: Node) -> str:
    held = condition(node)
    if held is None or node.type == "for_statement":
        return " ".join(function.text(held).split())[:80] if held is not None else ""
    return " ".join(function.text(held).split()).strip("()")[:80]


def _case(one: Look, function: Function, node: Node) -> tuple[str, str]:
    """``endless``: nothing in it leaves it; ``converges``: a floating-point value has to get past a limit."""
    body = node.child_by_field_name("body")
    if body is None or any(each.type in _LEAVES for each in walk(body, into_scopes=False)) or _requires(function, body):
        return "", ""
    asked, text = _asked(function, node), function.text(node)
    if _WAITS.search(text):
        return "", ""
    if asked in {"", "true", "1"}:
        return ("endless", "") if not re.search(r"\bco_|\bexit\s*\(|\babort\s*\(", text) else ("", "")
    if node.type == "for_statement" or re.search(r"&&", asked):
        return "", ""
    for name in sorted(words(asked)):
        type_ = variable(one.unit, function, name)
        if type_ is None or type_.last not in _FLOATS or type_.is_indirect:
            continue
        if not re.search(r"[<>]=?|!=|==", asked) or not one.origins.decided(function, asked):
            continue
        if re.search(rf"\b{name}\s*(?:[*/+-]=|=(?!=))", function.text(body)):
            return "converges", name
    return "", ""


def _requires(function: Function, body: Node) -> bool:
    return any(
        each.type == "call_expression"
        and callee(function.file, each).startswith(("OP_REQUIRES", "TF_RETURN", "RETURN_IF"))
        for each in walk(body, into_scopes=False)
    )
