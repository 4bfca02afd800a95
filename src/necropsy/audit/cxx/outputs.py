"""Outputs that a path through Compute leaves unset, or that a loop fills in part only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from necropsy.audit.cxx.conditions import arguments_of, callee, statement_of
from necropsy.audit.cxx.declarators import locals_of, walk
from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Function, Kernel
from necropsy.model import CodeDefect

if TYPE_CHECKING:
    from tree_sitter import Node

_SETS = re.compile(
    r"allocate_output|set_output\w*|forward_\w+|mutable_output|output_list|set_output_ref|MaybeSet\w*|SetOutput\w*"
)
_FAILS = re.compile(
    r"SetStatus|CtxFailure\w*|OP_REQUIRES\w*|\bthrow\b|errors::|Status\b|status\b|\bok\(\)|cancel", re.IGNORECASE
)
_LOOPS = frozenset({"for_statement", "while_statement", "for_range_loop", "do_statement"})
_SIZES = re.compile(r"\.\s*(?:size|dimension|dimensions|rank)\s*\(")


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each return before any output is set, each output that nothing sets, and each filled in part."""
    told: set[int] = set()
    for kernel in one.unit.kernels:
        compute = kernel.compute
        if compute is None or kernel.is_async or kernel.op is None or not kernel.op.outputs or id(compute) in told:
            continue
        told.add(id(compute))
        with one.of(compute):
            if any(each.is_ref for each in kernel.op.outputs):
                continue
            yield from _early(one, kernel, compute)
            yield from _sometimes(one, kernel, compute)
            yield from _in_part(one, compute)


def _context(function: Function) -> str:
    return function.parameters[0].name if function.parameters else ""


def _early(one: Look, kernel: Kernel, function: Function) -> Iterator[CodeDefect]:
    op = kernel.op
    if op is None or any(each.number is not None or _is_list(kernel, each.type) for each in op.outputs):
        return
    names = [each.name for each in op.outputs]
    calls = [node for node in walk(function.body) if node.type == "call_expression"]
    for node in walk(function.body, into_scopes=False):
        if node.type != "return_statement" or function.text(node).strip() != "return;" or _fails(function, node):
            continue
        left = set(range(len(names)))
        for call in calls:
            if call.start_byte > node.start_byte:
                continue
            name, given = callee(function.file, call), [function.text(each) for each in arguments_of(call)]
            if _SETS.fullmatch(name):
                number = _number(name, given, names)
                left = left - {number} if number is not None else set()
            elif _context(function) in given and not name.startswith("OP_REQUIRES"):
                left = set()
        if left:
            yield _told(one, function, node, "return", ", ".join(names[each] for each in sorted(left)))
            return


def _sometimes(one: Look, kernel: Kernel, function: Function) -> Iterator[CodeDefect]:
    """An output that is set nowhere, or only in one ``if`` without ``else``; where all others are set by number."""
    op = kernel.op
    if op is None or any(each.number is not None or _is_list(kernel, each.type) for each in op.outputs):
        return
    sets: dict[int, list[Node]] = {}
    names = [each.name for each in op.outputs]
    for node in walk(function.body):
        if node.type != "call_expression":
            continue
        name, given = callee(function.file, node), [function.text(each) for each in arguments_of(node)]
        if _SETS.fullmatch(name):
            number = _number(name, given, names)
            if number is None:
                return
            sets.setdefault(number, []).append(node)
        elif _context(function) in given and not name.startswith("OP_REQUIRES"):
            return
    for number, each in enumerate(names):
        several = sets.get(number, [])
        if not several and sets:
            yield _told(one, function, function.node, "never", each)
        elif len(several) == 1:
            branch = _branch(function, several[0])
            if branch is not None:
                yield _told(one, function, branch, "sometimes", each, several[0])


def _number(name: str, given: list[str], names: list[str]) -> int | None:
    """Which output a call sets; None where that is not a constant."""
    at = given[0] if given else ""
    if name.startswith("forward_input_or_allocate_output") and len(given) >= 3:
        at = given[-3]
    if at.isdigit():
        return int(at)
    plain = at.strip('"')
    return names.index(plain) if plain in names and at.startswith('"') else None


def _branch(function: Function, node: Node) -> Node | None:
    """The ``if`` without ``else`` that a call stands in, unless it is about a failure, or the function ends in it."""
    at = node.parent
    while at is not None and at.start_byte > function.body.start_byte:
        if at.type in {"lambda_expression", "case_statement", "switch_statement", "else_clause", *_LOOPS}:
            return None
        if at.type == "if_statement":
            asked, text = at.child_by_field_name("condition"), function.text(at)
            if at.child_by_field_name("alternative") is not None or asked is None:
                return None
            return None if _FAILS.search(function.text(asked)) or re.search(r"\breturn\b", text) else at
        at = at.parent
    return None


def _is_list(kernel: Kernel, type_: str) -> bool:
    attribute = kernel.op.attribute(type_) if kernel.op is not None else None
    return attribute is not None and attribute.type.startswith("list")


def _fails(function: Function, node: Node) -> bool:
    """The return belongs to a failure: its block, or the condition above it, is about a status."""
    at = statement_of(node)
    parent = at.parent
    around = function.text(parent) if parent is not None and parent != function.body else function.text(at)
    if _FAILS.search(around):
        return True
    above = parent.parent if parent is not None and parent != function.body else parent
    while above is not None and above != function.body and above.type != "function_definition":
        if above.type == "if_statement":
            asked = above.child_by_field_name("condition")
            if asked is not None and _FAILS.search(function.text(asked)):
                return True
        above = above.parent
    return False


def _in_part(one: Look, function: Function) -> Iterator[CodeDefect]:
    """``if (x(i) > limit) y(i) = x(i);`` in a loop, as the only write to an output that was just allocated."""
    for node in walk(function.body, into_scopes=False):
        if node.type != "call_expression" or callee(function.file, node) != "allocate_output":
            continue
        given = [function.text(each) for each in arguments_of(node)]
        tensor = re.fullmatch(r"&\s*(\w+)", given[-1]) if given else None
        if tensor is None:
            continue
        views = [
            each
            for each in locals_of(function)
            if each.value is not None
            and re.match(
                rf"{re.escape(tensor[1])}\s*->\s*(?:template\s+)?(?:flat|vec|matrix|tensor)\b",
                function.text(each.value),
            )
        ]
        uses = [each for each in _mentions(function, tensor[1]) if each.start_byte > node.end_byte]
        if len(views) != 1 or len(uses) != 1:
            continue
        writes = _writes(function, views[0].name, views[0].statement.end_byte)
        if writes and all(_is_conditional(function, each) for each in writes) and len(writes) == 1:
            yield _told(one, function, node, "part", tensor[1], writes[0])


def _mentions(function: Function, name: str) -> list[Node]:
    return [each for each in walk(function.body) if each.type == "identifier" and function.text(each) == name]


def _writes(function: Function, view: str, after: int) -> list[Node]:
    """The assignments to elements of a view; nothing where it is used in another way too."""
    found = []
    for node in _mentions(function, view):
        if node.start_byte < after:
            continue
        parent = node.parent
        if (
            parent is not None
            and parent.type == "field_expression"
            and _SIZES.match(function.text(parent)[len(view) :] + "(")
        ):
            continue
        assigned = (
            parent.parent if parent is not None and parent.type in {"call_expression", "subscript_expression"} else None
        )
        if (
            assigned is None
            or assigned.type != "assignment_expression"
            or assigned.child_by_field_name("left") != parent
        ):
            return []
        sign = assigned.child_by_field_name("operator")
        if sign is None or function.text(sign) != "=":
            return []
        found.append(assigned)
    return found


def _is_conditional(function: Function, node: Node) -> bool:
    """An ``if`` without ``else`` decides about it in each round of a loop over elements."""
    at, conditional = node.parent, False
    while at is not None and at.start_byte > function.body.start_byte:
        if at.type == "lambda_expression":
            return False
        if at.type == "if_statement":
            if at.child_by_field_name("alternative") is not None:
                return False
            conditional = True
        if at.type in _LOOPS:
            return conditional
        at = at.parent
    return False


def _told(one: Look, function: Function, node: Node, case: str, what: str, write: Node | None = None) -> CodeDefect:  # noqa: PLR0917 - what its callers have in hand
    file = function.file
    return one.defect(
        "op-output-unset",
        case,
        function.place if case == "never" else file.place(node),
        "return" if case == "return" else "function" if case == "never" else "call",
        function=function,
        others=(one.place(file.place(write), "write"),) if write is not None else (),
        names={"outputs": what},
        severity="warning",
        confidence="likely",
    )
