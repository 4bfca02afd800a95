"""The type of an expression in a function, where declarations say it: of variables, members, elements and pointees."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from necropsy.audit.cxx.declarators import locals_of
from necropsy.audit.cxx.model import Class, Function, Unit
from necropsy.audit.cxx.types import Type, parsed

if TYPE_CHECKING:
    from tree_sitter import Node

_POINTERS = frozenset({"unique_ptr", "shared_ptr", "weak_ptr", "RefCountPtr", "optional", "reference_wrapper"})
_CONTAINERS = frozenset(
    {"vector", "array", "deque", "list", "set", "InlinedVector", "Span", "ArraySlice", "gtl::ArraySlice"}
)
_DEEPEST = 12


@lru_cache(maxsize=512)
def _variables(function: Function) -> dict[str, Type]:
    found = {one.name: one.type for one in function.parameters if one.name}
    for one in locals_of(function):
        found.setdefault(one.name, one.type)
    return found


def variable(unit: Unit, function: Function, name: str) -> Type | None:
    """The type of a parameter, local variable or member that ``name`` means in the function; None for ``auto``."""
    at: Function | None = function
    while at is not None:
        found = _variables(at).get(name)
        if found is not None:
            return found if found.name != "auto" else None
        at = at.outer
    cls = unit.class_named(function.class_name) if function.class_name is not None else None
    return member(unit, cls, name) if cls is not None else None


def member(unit: Unit, cls: Class, name: str, depth: int = 0) -> Type | None:
    """The type of a data member of the class or of its bases."""
    for one in cls.fields:
        if one.name == name:
            return one.type
    for each in cls.bases if depth < _DEEPEST else ():
        base = unit.class_named(each.name, cls.qualified)
        found = member(unit, base, name, depth + 1) if base is not None and base is not cls else None
        if found is not None:
            return found
    return None


def pointee(type_: Type) -> Type:
    """What a pointer, owning pointer or iterator points to; other types as they are."""
    if type_.pointers:
        return replace(type_, pointers=type_.pointers - 1, reference="")
    if type_.last in _POINTERS and type_.arguments:
        return parsed(type_.arguments[0])
    return replace(type_, reference="")


def element(type_: Type) -> Type | None:
    """What ``[]`` gives; None where that is not known."""
    if type_.extents:
        return replace(type_, extents=type_.extents[1:])
    if type_.pointers:
        return pointee(type_)
    if type_.last in _CONTAINERS and type_.arguments:
        return parsed(type_.arguments[0])
    if type_.last in {"map", "unordered_map", "flat_hash_map"} and len(type_.arguments) > 1:
        return parsed(type_.arguments[1])
    return None


def type_of(unit: Unit, function: Function, node: Node, depth: int = 0) -> Type | None:
    """The type of an expression; None where the declarations that were read do not say it."""
    if depth > _DEEPEST:
        return None
    kind = node.type
    if kind in {"identifier", "field_identifier"}:
        return variable(unit, function, function.text(node))
    if kind == "this":
        return Type(function.class_name, pointers=1) if function.class_name else None
    if kind == "parenthesized_expression" and node.named_child_count == 1:
        return type_of(unit, function, node.named_children[0], depth + 1)
    if kind == "field_expression":
        cls = class_of(unit, function, node.child_by_field_name("argument"), depth)
        name = node.child_by_field_name("field")
        return member(unit, cls, function.text(name)) if cls is not None and name is not None else None
    if kind == "pointer_expression":
        argument = node.child_by_field_name("argument")
        inner = type_of(unit, function, argument, depth + 1) if argument is not None else None
        if inner is None:
            return None
        if function.text(node).startswith("&"):
            return replace(inner, pointers=inner.pointers + 1, reference="")
        return pointee(inner)
    if kind == "subscript_expression":
        argument = node.child_by_field_name("argument")
        inner = type_of(unit, function, argument, depth + 1) if argument is not None else None
        return element(inner) if inner is not None else None
    if kind == "call_expression":
        called = node.child_by_field_name("function")
        if called is not None and called.type == "field_expression":
            field, held = called.child_by_field_name("field"), called.child_by_field_name("argument")
            method = function.text(field) if field is not None else ""
            inner = type_of(unit, function, held, depth + 1) if held is not None else None
            if inner is not None and method == "get" and inner.last in _POINTERS:
                return replace(pointee(inner), pointers=1)
            if inner is not None and method in {"back", "front", "at"}:
                return element(inner)
    return None


def class_of(unit: Unit, function: Function, node: Node | None, depth: int = 0) -> Class | None:
    """The class whose members ``node.`` and ``node->`` name."""
    if node is None:
        return None
    type_ = type_of(unit, function, node, depth + 1)
    if type_ is None:
        return None
    return unit.class_named(pointee(type_).name, function.qualified)
