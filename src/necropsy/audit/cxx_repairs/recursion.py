"""Functions that call themselves: they count their depth, and report an error where it gets too deep for the stack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from necropsy.audit.cxx.declarators import locals_of
from necropsy.audit.cxx.model import Function
from necropsy.audit.cxx_repairs.context import Passing
from necropsy.audit.cxx_repairs.edits import Edit, Repair
from necropsy.audit.cxx_repairs.site import NoRepairError, Site, uses
from necropsy.model import CodeDefect

if TYPE_CHECKING:
    from tree_sitter import Node

_SAFETY = 8
"""Factor for a level's stack use, which is a lower bound and larger without optimisation."""
_MOST_LEVELS = 10_000


def recursion(site: Site, defect: CodeDefect) -> Repair:  # noqa: ARG001 - as all repairs
    """A parameter ``depth`` with a limit; the error goes to the op's context."""
    look = site.look
    group = next((one for one in look.calls.cycles if site.function in one), None)
    if group is None:
        raise NoRepairError("no circle of calls is seen")
    size = sum(look.calls.frame(one) for one in group) // len(group)
    limit = max(16, min(_MOST_LEVELS, look.stack // (size * _SAFETY)))
    first = _first_statement(site.function)
    at = Site(look, site.function, first)
    message = f'"nested deeper than ", {limit}, " levels"'
    if any(one.is_lambda for one in group):
        if len(group) > 1:
            raise NoRepairError("a lambda and others")
        return _of_lambda(at, limit, message)
    passing = Passing(at, group)
    for one in group:
        passing.deepen(one)
    edits = at.before(first, passing.limits(f"depth >= {limit}", message))
    return Repair((*edits, *passing.edits()), f"limits the depth to {limit:,} levels, with an error beyond it")


def _first_statement(function: Function) -> Node:
    return next((one for one in function.body.named_children if one.type != "comment"), function.body)


def _of_lambda(at: Site, limit: int, message: str) -> Repair:
    """Its ``std::function`` type gets the parameter too; the first call passes 0."""
    lambda_, outer = at.function, at.function.outer
    local = next((one for one in locals_of(outer) if one.name == lambda_.name), None) if outer is not None else None
    if outer is None or local is None or local.type.last != "function" or local.value is None:
        raise NoRepairError("not in a std::function")
    around = Site(at.look, outer, lambda_.node)
    base = around.text(local.statement)
    end = base.find(")>")
    held = lambda_.node.child_by_field_name("declarator")
    parameters = held.child_by_field_name("parameters") if held is not None else None
    if end < 0 or parameters is None or not lambda_.parameters:
        raise NoRepairError("another form of lambda")
    passing = Passing(at)
    edits: list[Edit] = [
        around.insert(local.statement.start_byte + end, ", int"),
        around.insert(parameters.end_byte - 1, ", int depth"),
        *at.before(at.node, passing.limits(f"depth >= {limit}", message)),
    ]
    seen = 0
    for function in (lambda_, outer):
        for call in at.look.calls.calls(function):
            if call.name == lambda_.name and call.receiver is None:
                given = call.node.child_by_field_name("arguments")
                if given is None:
                    raise NoRepairError("a call without brackets")
                edits.append(around.insert(given.end_byte - 1, ", depth + 1" if function is lambda_ else ", 0"))
                seen += 1
    if seen < 2 or len(uses(around, lambda_.name)) > seen + 1:
        raise NoRepairError("something else uses it")
    return Repair((*edits, *passing.edits()), f"limits the depth to {limit:,} levels, with an error beyond it")
