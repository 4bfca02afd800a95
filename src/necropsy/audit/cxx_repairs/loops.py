"""Accesses past the end whose loop or size is wrong: the bound itself is put right."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from necropsy.audit.cxx.conditions import arguments_of, callee
from necropsy.audit.cxx.expression_types import type_of
from necropsy.audit.cxx_repairs.edits import Repair
from necropsy.audit.cxx_repairs.site import NoRepairError, Site
from necropsy.model import CodeDefect

if TYPE_CHECKING:
    from tree_sitter import Node

_COPIES = frozenset({"memcpy", "memmove"})


def overrun(site: Site, defect: CodeDefect) -> Repair:  # noqa: ARG001 - as all repairs
    """``i <= n`` -> ``i < n``; for ``x(i + 1)``, ``i + 1 < n``; in ``sizeof``, the type of the elements."""
    call = site.enclosing("call_expression")
    if call is not None and callee(site.file, call) in _COPIES:
        return _element_size(site, call)
    at: Node | None = site.node
    while at is not None and at.type != "for_statement":
        at = at.parent if at.start_byte > site.function.body.start_byte else None
    asked = at.child_by_field_name("condition") if at is not None else None
    if asked is None or asked.type != "binary_expression":
        raise NoRepairError("no loop")
    counter, sign = asked.child_by_field_name("left"), asked.child_by_field_name("operator")
    if counter is None or sign is None or counter.type != "identifier":
        raise NoRepairError("no counter")
    name = site.text(counter)
    used = site.text(site.at(site.node).statement)
    further = re.search(rf"[(\[,]\s*({re.escape(name)}\s*\+\s*\w+)\s*[)\],]", used)
    if site.text(sign) == "<=" and further is None:
        return Repair((site.replace(sign, "<"),), f"ends the loop over `{name}` one step earlier")
    if site.text(sign) == "<" and further is not None:
        text = " ".join(further[1].split())
        return Repair((site.replace(counter, text),), f"ends the loop where `{text}` is the last element")
    right = asked.child_by_field_name("right")
    if site.text(sign) == "<" and right is not None and right.type == "binary_expression":
        first, plus = right.child_by_field_name("left"), right.child_by_field_name("operator")
        if first is not None and plus is not None and site.text(plus) == "+":
            return Repair((site.replace(right, site.original(first)),), f"ends the loop over `{name}` at its size")
    raise NoRepairError("the bound is not obvious")


def _element_size(site: Site, call: Node) -> Repair:
    """``count * sizeof(double)`` of floats."""
    given = arguments_of(call)
    target = type_of(site.look.unit, site.function, given[0]) if len(given) == 3 else None
    if target is None or target.pointers != 1:
        raise NoRepairError("no pointer")
    match = re.search(r"sizeof\s*\(\s*([\w:]+)\s*\)", site.text(given[2]))
    if match is None or match[1] == target.name or target.name in {"void", "char"}:
        raise NoRepairError("no other type in sizeof")
    start = given[2].start_byte + match.start(1)
    return Repair((site.exchange(start, start + len(match[1]), target.name),), f"counts elements of {target.name}")
