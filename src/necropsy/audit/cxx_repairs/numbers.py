"""Divisors, sizes of allocations, and products in 32 bits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from necropsy.audit.cxx.declarators import locals_of, walk
from necropsy.audit.cxx_repairs.edits import Edit, Repair
from necropsy.audit.cxx_repairs.guards import guarded
from necropsy.audit.cxx_repairs.site import NoRepairError, Site, literal
from necropsy.model import CodeDefect

if TYPE_CHECKING:
    from tree_sitter import Node

_NARROW = re.compile(r"\b(?:int32_t|int32|int|uint32_t|uint32|unsigned int|unsigned)\b")
_PLAIN = re.compile(r"[\w.\->()\[\]:<>, ]+")


def divisor(site: Site, defect: CodeDefect) -> Repair:
    """``OP_REQUIRES(context, n != 0, ...)``; of an attribute, ``n > 0``."""
    text = defect.names.get("divisor", "")
    node = next((one for one in _divisions(site) if site.text(one[1]).split() == text.split()), None)
    if not text or node is None or not _PLAIN.fullmatch(text):
        raise NoRepairError("no divisor is seen")
    sign = ">" if defect.rule == "op-attr-unchecked" else "!="
    condition = f"{text} {sign} 0"
    wanted = "greater than 0" if sign == ">" else "different from 0"
    return guarded(
        site, site.at(node[0]).statement, condition, literal(f"{text} must be {wanted}"), f"checks that `{condition}`"
    )


def _divisions(site: Site) -> list[tuple[Node, Node]]:
    """Divisions in the statement that begin at the place, with their divisors."""
    found = []
    for node in (site.statement, *walk(site.statement)):
        sign, right = node.child_by_field_name("operator"), node.child_by_field_name("right")
        if sign is not None and right is not None and site.text(sign) in {"/", "%", "/=", "%="}:
            found.append((node, right))
    return sorted(found, key=lambda one: one[0].start_byte != site.node.start_byte)


def size(site: Site, defect: CodeDefect) -> Repair:
    """Neither negative nor larger than what can be allocated."""
    text = defect.names.get("size", "")
    if (
        not text
        or "divisor" in defect.names
        or not re.fullmatch(r"[\w.\->()\[\]:<>, +*\-]+", text)
        or "what" not in defect.names
    ):
        raise NoRepairError("no size is seen")
    limit = "(int64_t{1} << 31)"
    product = re.fullmatch(r"(\w+)(\s*\*.+)", text)
    wide = f"static_cast<int64_t>({product[1]}){product[2]}" if product is not None else text
    condition = f"{wide} >= 0 && {wide} < {limit}"
    return guarded(site, site.statement, condition, literal(f"{text} is negative or too large"), f"limits `{text}`")


def overflow(site: Site, defect: CodeDefect) -> Repair:
    """The product in 64 bits; a product that grows in a loop gets a limit, too."""
    grown = site.enclosing("assignment_expression")
    if grown is not None and site.text(grown.child_by_field_name("operator") or grown) == "*=":
        return _grown(site, grown)
    product = _product(site, defect.names.get("expression", ""))
    left = product.child_by_field_name("left")
    if left is None:
        raise NoRepairError("no product is seen")
    edits: list[Edit] = [site.insert(left.start_byte, "static_cast<int64_t>("), site.insert(left.end_byte, ")")]
    statement = site.statement
    local = next((each for each in locals_of(site.function) if each.statement == statement), None)
    if local is not None:
        edits += _widened(site, statement, local.type.last)
    elif statement.type == "return_statement":
        returns = site.function.returns
        if returns is not None and _NARROW.fullmatch(returns.last):
            raise NoRepairError("the result has 32 bits")
    return Repair(tuple(edits), "computes the product in 64 bits")


def _product(site: Site, text: str) -> Node:
    at: Node | None = site.node
    while at is not None and at.start_byte == site.node.start_byte:
        sign = at.child_by_field_name("operator")
        is_product = at.type == "binary_expression" and sign is not None and site.text(sign) == "*"
        if is_product and (not text or site.text(at).split() == text.split()):
            return at
        at = at.parent
    raise NoRepairError("no product is seen")


def _widened(site: Site, statement: Node, name: str) -> list[Edit]:
    """Declare it ``int64_t``, unless it is wide already."""
    type_ = statement.child_by_field_name("type")
    if type_ is None:
        raise NoRepairError("no type is seen")
    if not _NARROW.fullmatch(name) and not _NARROW.fullmatch(site.text(type_)):
        return []
    return [site.replace(type_, "int64_t")]


def _grown(site: Site, node: Node) -> Repair:
    left = node.child_by_field_name("left")
    local = next((each for each in locals_of(site.function) if left is not None and each.name == site.text(left)), None)
    if left is None or local is None or local.statement.type != "declaration":
        raise NoRepairError("not a local variable")
    if len(local.statement.children_by_field_name("declarator")) != 1:
        raise NoRepairError("several variables in one declaration")
    name = local.name
    line = site.requires(f"{name} >= 0 && {name} < (int64_t{{1}} << 31)", literal(f"{name} is too large"))
    edits = [*_widened(site, local.statement, local.type.last), site.after(site.statement, [line])]
    return Repair(tuple(edits), f"computes `{name}` in 64 bits and limits it")
