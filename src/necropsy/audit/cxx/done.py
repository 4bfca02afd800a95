"""Paths of ComputeAsync that never call ``done``, or call it twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from necropsy.audit.cxx.conditions import callee
from necropsy.audit.cxx.declarators import walk
from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Function
from necropsy.model import CodeDefect

if TYPE_CHECKING:
    from tree_sitter import Node

_NO, _YES, _MAYBE, _UNSURE, _LEFT = "no", "yes", "maybe", "unsure", "left"
"""Was it called: ``maybe``, on some of the paths to here; ``unsure``, given away, or as conditions decide that may
belong together; ``left``: the end is not reached."""
_LOOPS = frozenset({"for_statement", "while_statement", "for_range_loop", "do_statement"})


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each return that leaves the caller waiting, and each second call."""
    told: set[int] = set()
    for kernel in one.unit.kernels:
        compute = kernel.compute
        if compute is None or not kernel.is_async or id(compute) in told or len(compute.parameters) < 2:
            continue
        told.add(id(compute))
        name = compute.parameters[1].name
        if not name:
            continue
        with one.of(compute):
            for function in _bodies(one, compute, name):
                walked = _Walk(function, name)
                state = walked.block(function.body, _NO)
                if state == _NO and not function.is_lambda:
                    walked.found.append(("end", function.node))
                for case, node in walked.found:
                    yield _told(one, function, case, node, name)


def _bodies(one: Look, compute: Function, name: str) -> Iterator[Function]:
    """ComputeAsync, and the lambdas that call ``done`` themselves."""
    waiting = [compute]
    while waiting:
        at = waiting.pop()
        direct = re.search(rf"\b{re.escape(name)}\s*\(\s*\)", _own_text(at)) is not None
        if not at.is_lambda or (direct and re.search(rf"&|=|\b{re.escape(name)}\b", at.captures)):
            yield at
        waiting += [
            each for each in one.unit.lambdas(at) if each.returns is None or each.returns.name in {"void", "auto"}
        ]


def _own_text(function: Function) -> str:
    return " ".join(
        function.text(node)
        for node in walk(function.body, into_scopes=False)
        if node.type == "call_expression" and not node.named_children[0].named_children
    )


@dataclass
class _Walk:
    """Statement by statement: was ``done`` called on every path, on none, or on some?"""

    function: Function
    name: str
    found: list[tuple[str, Node]] = field(default_factory=list)
    breaks: list[list[str]] = field(default_factory=list)

    def block(self, node: Node, state: str) -> str:
        for one in node.named_children:
            state = self.statement(one, state)
            if state == _LEFT:
                return _LEFT
        return state

    def statement(self, node: Node, state: str) -> str:
        kind = node.type
        if kind in {"compound_statement", "else_clause", "case_statement"}:
            return self.block(node, state)
        if kind == "return_statement":
            state = self.expression(node, state)
            if state == _NO:
                self.found.append(("return", node))
            return _LEFT
        if kind in {"break_statement", "continue_statement", "throw_statement"}:
            if kind == "break_statement" and self.breaks:
                self.breaks[-1].append(state)
            return state if kind == "continue_statement" else _LEFT
        if kind == "goto_statement":
            return _UNSURE
        if kind == "if_statement":
            return self.branch(node, state)
        if kind in _LOOPS or kind == "switch_statement":
            return self.loop(node, state)
        if kind == "try_statement":
            return _UNSURE
        return self.expression(node, state)

    def loop(self, node: Node, state: str) -> str:
        body = node.child_by_field_name("body")
        self.breaks.append([])
        inner = _UNSURE if state == _MAYBE else state
        after = self.statement(body, inner) if body is not None else inner
        for one in (after, *self.breaks.pop()):
            state = _joined(state, one)
        return state if node.type in _LOOPS or state != _MAYBE else _UNSURE

    def branch(self, node: Node, state: str) -> str:
        asked = node.child_by_field_name("condition")
        state = self.expression(asked, state) if asked is not None else state
        then, otherwise = node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
        inner = _UNSURE if state == _MAYBE else state
        first = self.statement(then, inner) if then is not None else inner
        second = self.statement(otherwise, inner) if otherwise is not None else inner
        return state if first == second == inner else _joined(first, second)

    def expression(self, node: Node, state: str) -> str:
        """A statement without others in it."""
        text = self.function.text(node)
        if not re.search(rf"\b{re.escape(self.name)}\b", text):
            self.requires(node, state)
            return state
        for one in [node, *walk(node, into_scopes=False)]:
            if one.type != "call_expression":
                continue
            name = callee(self.function.file, one)
            if name == self.name:
                if state in {_YES, _MAYBE} and self._is_plain(one):
                    self.found.append(("twice", one))
                return _YES
            if name in {"OP_REQUIRES_ASYNC", "OP_REQUIRES_OK_ASYNC"}:
                return state
        return _UNSURE

    def requires(self, node: Node, state: str) -> None:
        """``OP_REQUIRES`` returns without a call of done."""
        for one in walk(node, into_scopes=False):
            is_call = state == _NO and one.type == "call_expression"
            if is_call and callee(self.function.file, one) in {"OP_REQUIRES", "OP_REQUIRES_OK"}:
                self.found.append(("requires", one))

    @staticmethod
    def _is_plain(node: Node) -> bool:
        return node.parent is not None and node.parent.type == "expression_statement"


def _joined(first: str, second: str) -> str:
    if first == _LEFT:
        return second
    if second in {_LEFT, first}:
        return first
    return _UNSURE if _UNSURE in {first, second} else _MAYBE


def _told(one: Look, function: Function, case: str, node: Node, name: str) -> CodeDefect:
    place = function.file.place(node) if case != "end" else function.place
    return one.defect(
        "op-done-not-called",
        case,
        place,
        "function" if case == "end" else "call" if case == "twice" else "return",
        function=function,
        names={"done": name, "macro": callee(function.file, node) if case == "requires" else ""},
        severity="warning",
        confidence="likely" if function.is_lambda else "certain",
    )
