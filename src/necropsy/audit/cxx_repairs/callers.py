"""The calls of a function as repairs need them: those of functors too, and a check in front of each."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from necropsy.audit.cxx.calls import Call
from necropsy.audit.cxx.conditions import arguments_of
from necropsy.audit.cxx.declarators import walk
from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Function
from necropsy.audit.cxx_repairs.edits import Edit, Repair
from necropsy.audit.cxx_repairs.site import NoRepairError, Site, literal

if TYPE_CHECKING:
    from tree_sitter import Node

_DATA = re.compile(r"(?s)(.+?)(\.|->)\s*(?:m?data|c_str)\s*\(\s*\)")
_MADE = frozenset({"call_expression", "compound_literal_expression"})
_NAME = re.compile(r"[A-Za-z_]\w*")


def callers(look: Look, function: Function) -> list[Call]:
    """Every call that reaches the function, ``Functor<T>()(...)`` and ``Walker(tree).Run()`` among them."""
    found = look.calls.callers(function)
    if function.is_lambda or function.class_name is None:
        return found
    name = function.class_name.rpartition("::")[2]
    made = re.compile(rf"(?s)(?:\w+\s*::\s*)*{re.escape(name)}\s*(?:<.*>)?\s*[({{].*[)}}]")
    seen = {(id(call.caller.file), call.node.start_byte, call.node.end_byte) for call in found}
    for one in look.unit.functions:
        for node in walk(one.body, into_scopes=False):
            held = _receiver(one, node, function.name)
            if held is None or not made.fullmatch(one.text(held)):
                continue
            if (id(one.file), node.start_byte, node.end_byte) not in seen:
                given = tuple(arguments_of(node))
                found = [*found, Call(one, node, function.name, receiver=held, arguments=given)]
    return found


def _receiver(function: Function, node: Node, name: str) -> Node | None:
    """The object of a method call, if it is not a variable."""
    called = node.child_by_field_name("function") if node.type == "call_expression" else None
    if called is not None and name != "operator()":
        field = called.child_by_field_name("field") if called.type == "field_expression" else None
        called = called.child_by_field_name("argument") if field is not None and function.text(field) == name else None
    return called if called is not None and called.type in _MADE else None


def check_in_callers(site: Site, bound: str, buffer: str) -> Repair:
    """``bound <= size of buffer``, where both are parameters: in front of each call, with what it gives for them."""
    names = [one.name for one in site.function.parameters]
    used = set(_NAME.findall(bound))
    if buffer not in names or not used or not used <= set(names):
        raise NoRepairError("not only of parameters")
    edits: list[Edit] = []
    told = ""
    for call in callers(site.look, site.function):
        given = dict(zip(names, call.texts, strict=False))
        own = Site(site.look, call.caller, call.node)
        data = _DATA.fullmatch(given.get(buffer, ""))
        if data is None or not used <= set(given):
            raise NoRepairError("its size is not known")
        condition = f"{_given(bound, given)} <= {data[1]}{data[2]}size()"
        told = f"checks that `{condition}` before the call"
        edits += own.before(own.statement, [own.requires(condition, literal(f"{data[1]} is too small"))])
    if not edits:
        raise NoRepairError("nothing that is known calls it")
    return Repair(tuple(dict.fromkeys(edits)), told)


def _given(text: str, given: dict[str, str]) -> str:
    return _NAME.sub(lambda one: given.get(one[0], one[0]), text)
