"""Which names in a function hold what the caller of the op decides: inputs, their sizes and values, and attributes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from necropsy.audit.cxx.calls import CallGraph
from necropsy.audit.cxx.conditions import arguments_of, callee, words
from necropsy.audit.cxx.declarators import locals_of, walk
from necropsy.audit.cxx.model import Function, Unit
from necropsy.audit.cxx.types import parsed

if TYPE_CHECKING:
    from tree_sitter import Node

SOURCE = re.compile(
    r"(?:->|\.)\s*(?:input|mutable_input|input_list|mutable_input_list)\s*\(|\bGetAttr\s*(?:<[^>]*>)?\s*\("
)
_INTO = frozenset({"input", "input_list", "GetAttr", "GetNodeAttr", "mutable_input_list"})
"""Calls that write what the caller decides to the variables whose address they get."""
_KEEPING = frozenset({"assign", "append", "push_back", "emplace_back"})
"""Methods after which an object holds what they get."""
_ROUNDS = 5


@dataclass
class Origins:
    """Of one unit. A name counts as decided by the caller once something in it comes from the caller."""

    unit: Unit
    calls: CallGraph
    _parameters: dict[int, set[str]] = field(default_factory=dict)
    _members: dict[str, set[str]] = field(default_factory=dict)

    @cached_property
    def _found(self) -> dict[int, frozenset[str]]:
        found: dict[int, frozenset[str]] = {}
        below = [one for one in self.unit.functions if self.calls.kernel_of(one) is not None]
        for _ in range(_ROUNDS):
            before = {key: len(one) for key, one in found.items()}, sum(map(len, self._members.values()))
            for one in below:
                found[id(one)] = self._names(one, found)
                self._pass_on(one, found[id(one)])
                self._construct(one, found[id(one)])
            if before == ({key: len(one) for key, one in found.items()}, sum(map(len, self._members.values()))):
                break
        return found

    def names(self, function: Function) -> frozenset[str]:
        """The names in a function below a kernel that hold what the caller decides."""
        return self._found.get(id(function), frozenset())

    def decided(self, function: Function, text: str) -> bool:
        """The caller decides the value of the expression, or part of it."""
        return SOURCE.search(text) is not None or bool(words(text) & self.names(function))

    def _names(self, function: Function, found: dict[int, frozenset[str]]) -> frozenset[str]:
        names = set(self._parameters.get(id(function), ()))
        names |= self._members.get(function.class_name or "", set())
        if function.outer is not None:
            names |= found.get(id(function.outer), frozenset())
        own = {one.name for one in locals_of(function)} | {one.name for one in function.parameters}
        text = function.text
        given = list(walk(function.body, into_scopes=False))
        for _ in range(3):
            size = len(names)
            for one in locals_of(function):
                value = one.value
                if value is None and one.statement.type == "for_range_loop":
                    value = one.statement.child_by_field_name("right")
                if value is not None and self._comes(text(value), names):
                    names.add(one.name)
            for node in given:
                if node.type == "assignment_expression":
                    self._assigned(function, node, names)
                elif node.type == "call_expression" and callee(function.file, node) in _KEEPING:
                    self._kept(function, node, names)
                elif node.type == "call_expression" and callee(function.file, node) in _INTO:
                    written = [text(each) for each in arguments_of(node)[1:]]
                    names.update(re.sub(r"\W", "", each) for each in written if each.startswith("&"))
            if len(names) == size:
                break
        if function.class_name is not None:
            self._members.setdefault(function.class_name, set()).update(
                one for one in names if one not in own and (one.endswith("_") or self._is_member(function, one))
            )
        return frozenset(names)

    def _is_member(self, function: Function, name: str) -> bool:
        cls = self.unit.class_named(function.class_name or "")
        return cls is not None and any(one.name == name for one in cls.fields)

    @staticmethod
    def _comes(text: str, names: set[str]) -> bool:
        return SOURCE.search(text) is not None or not words(text).isdisjoint(names)

    def _assigned(self, function: Function, node: Node, names: set[str]) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None:
            return
        name = function.text(left).removeprefix("this->")
        if re.fullmatch(r"\w+", name) and self._comes(function.text(right), names):
            names.add(name)

    def _kept(self, function: Function, node: Node, names: set[str]) -> None:
        called = node.child_by_field_name("function")
        held = called.child_by_field_name("argument") if called is not None else None
        if held is None or held.type != "identifier":
            return
        if any(self._comes(function.text(each), names) for each in arguments_of(node)):
            names.add(function.text(held))

    def _construct(self, function: Function, names: frozenset[str]) -> None:
        """``new Formatter(name, 3)``: members that the constructor sets to what it gets."""
        for type_, given in _made_in(function):
            cls = self.unit.class_named(parsed(type_).name, function.qualified)
            for made in self.unit.methods(cls) if cls is not None else ():
                if made.is_constructor and made.initializers is not None and made.least <= len(given):
                    own = [
                        one.name
                        for one, text in zip(made.parameters, given, strict=False)
                        if self._comes(text, set(names))
                    ]
                    for each in made.initializers.named_children:
                        if each.type == "field_initializer" and words(made.text(each.named_children[-1])) & set(own):
                            kept = self._members.setdefault(made.class_name or "", set())
                            kept.add(made.text(each.named_children[0]))

    def _pass_on(self, function: Function, names: frozenset[str]) -> None:
        for call, target in self.calls.edges[id(function)]:
            for text, one in zip(call.texts, target.parameters, strict=False):
                if one.name and not text.startswith("&") and self._comes(text, set(names)):
                    self._parameters.setdefault(id(target), set()).add(one.name)


def _made_in(function: Function) -> Iterator[tuple[str, list[str]]]:
    """The objects with arguments that a function makes: their type and the arguments, as text."""
    for node in walk(function.body, into_scopes=False):
        held = node.child_by_field_name("arguments")
        type_ = node.child_by_field_name("type")
        if node.type == "new_expression" and held is not None and type_ is not None:
            yield function.text(type_), [function.text(one) for one in held.named_children]
        elif node.type == "call_expression" and callee(function.file, node) in {"make_unique", "make_shared"}:
            made = re.search(r"<(.*)>", function.text(node).partition("(")[0], re.DOTALL)
            if made is not None:
                yield made[1], [function.text(one) for one in arguments_of(node)]
    for local in locals_of(function):
        if local.value is not None and local.value.type in {"argument_list", "initializer_list"}:
            yield local.type.name, [function.text(one) for one in local.value.named_children]
