"""tree-sitter's declarations -> names with types: declarators, parameters, template parameters, local variables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from necropsy.audit.cxx.model import Function, Parameter, Place, SourceFile, TemplateParameter
from necropsy.audit.cxx.types import Type, parsed

if TYPE_CHECKING:
    from tree_sitter import Node

NAMES = frozenset(
    {"identifier", "field_identifier", "qualified_identifier", "destructor_name", "operator_name", "template_function"}
    | {"operator_cast", "type_identifier", "template_method"}
)
_SCOPES = frozenset(
    {"lambda_expression", "function_definition", "class_specifier", "struct_specifier", "union_specifier"}
)


@dataclass(frozen=True, eq=False)
class Declared:
    """One declarator: its name and type; ``function`` is its ``function_declarator`` where it declares a function."""

    name: str
    type: Type
    node: Node | None
    function: Node | None = None
    value: Node | None = None


def declared(file: SourceFile, base: str, declarator: Node | None) -> Declared:
    """What a declarator makes of the base type ``base``."""
    type_ = parsed(base)
    extents: list[str] = []
    function = value = None
    node = declarator
    while node is not None and node.type not in NAMES:
        if node.type == "init_declarator":
            value = node.child_by_field_name("value")
        elif "pointer" in node.type:
            type_ = replace(type_, pointers=type_.pointers + 1)
        elif "reference" in node.type:
            sign = "&&" if any(one.type == "&&" for one in node.children) else "&"
            type_ = replace(type_, reference=sign)
        elif "array" in node.type:
            size = node.child_by_field_name("size")
            extents.insert(0, file.text_of(size) if size is not None else "")
        elif "function_declarator" in node.type:
            function = node
        elif node.type in {"parameter_list", "structured_binding_declarator"}:
            break
        inner = node.child_by_field_name("declarator")
        if inner is None:
            inner = next(
                (one for one in node.named_children if one.type in NAMES or one.type.endswith("declarator")), None
            )
        node = inner
    if extents:
        type_ = replace(type_, extents=(*extents, *type_.extents))
    name = re.sub(r"\s+", "", file.text_of(node)) if node is not None and node.type in NAMES else ""
    if node is not None and node.type in {"operator_name", "operator_cast"}:
        name = file.text_of(node).strip()
    return Declared(name, type_, declarator, function, value)


def base_text(file: SourceFile, node: Node) -> str:
    """The specifiers of a declaration: all before its first declarator."""
    first = node.child_by_field_name("declarator")
    end = first.start_byte if first is not None else node.end_byte
    type_ = node.child_by_field_name("type")
    if type_ is not None and type_.child_by_field_name("body") is not None:  # struct {...} name;
        name = type_.child_by_field_name("name")
        return file.text_of(name) if name is not None else ""
    return file.text[node.start_byte : end].decode("utf-8", "replace").rstrip(" ;")


def all_declared(file: SourceFile, node: Node) -> list[Declared]:
    """All that a ``declaration`` or ``field_declaration`` declares."""
    base = base_text(file, node)
    return [declared(file, base, one) for one in node.children_by_field_name("declarator")]


def parameters(file: SourceFile, function: Node | None) -> tuple[Parameter, ...]:
    """The parameters of a ``function_declarator``."""
    held = function.child_by_field_name("parameters") if function is not None else None
    found = []
    for one in held.named_children if held is not None else ():
        if one.type not in {
            "parameter_declaration",
            "optional_parameter_declaration",
            "variadic_parameter_declaration",
        }:
            if one.type == "variadic_parameter":
                found.append(Parameter("", Type("..."), is_pack=True))
            continue
        each = declared(file, base_text(file, one), one.child_by_field_name("declarator"))
        default = one.child_by_field_name("default_value")
        is_pack = one.type == "variadic_parameter_declaration"
        name = each.name.removeprefix("...") if is_pack else each.name
        if is_pack and not name:
            name = file.text_of(one).rpartition("...")[2].strip()
        found.append(Parameter(name, each.type, file.text_of(default) if default is not None else None, is_pack))
    if len(found) == 1 and found[0].type == Type("void") and not found[0].name:
        return ()
    return tuple(found)


def template_parameters(file: SourceFile, held: Node | None) -> tuple[TemplateParameter, ...]:
    """Those of a ``template_parameter_list``."""
    found = []
    for one in held.named_children if held is not None else ():
        is_pack = one.type.startswith("variadic")
        if "type_parameter" in one.type or "template_template" in one.type:
            name = one.child_by_field_name("name") or next(
                (each for each in one.named_children if each.type == "type_identifier"), None
            )
            default = one.child_by_field_name("default_type")
            type_ = None
            text = file.text_of(name) if name is not None else ""
        else:
            each = declared(file, base_text(file, one), one.child_by_field_name("declarator"))
            default, type_, text = one.child_by_field_name("default_value"), each.type, each.name
        found.append(TemplateParameter(text, type_, file.text_of(default) if default is not None else None, is_pack))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Local:
    """A local variable of a function. ``node`` is its declarator, ``statement`` the whole declaration."""

    name: str
    type: Type
    file: SourceFile
    node: Node
    statement: Node
    value: Node | None = None
    is_static: bool = False

    @cached_property
    def place(self) -> Place:
        """Of the whole declaration."""
        return self.file.place(self.statement)


def walk(root: Node, *, into_scopes: bool = True) -> Iterator[Node]:
    """All named nodes below ``root`` in the order of the text, without recursion.

    ``into_scopes=False``: lambdas, local functions and classes are given themselves, but not what is in them.
    """
    waiting = list(reversed(root.named_children))
    while waiting:
        node = waiting.pop()
        yield node
        if into_scopes or node.type not in _SCOPES:
            waiting += reversed(node.named_children)


def _has_parts(function: Node) -> bool:
    """``Parser parser(text);`` in a function: what looks like parameters are arguments."""
    held = function.child_by_field_name("parameters")
    return held is not None and held.named_child_count > 0


def locals_of(function: Function) -> Iterator[Local]:
    """The local variables in the order of the text; those of lambdas in it belong to the lambdas."""
    file = function.file
    for node in walk(function.body, into_scopes=False):
        if node.type == "declaration":
            base = base_text(file, node)
            for one in node.children_by_field_name("declarator"):
                each = declared(file, base, one)
                if each.name and (each.function is None or each.value is not None or _has_parts(each.function)):
                    yield Local(
                        each.name, each.type, file, one, node, each.value, re.search(r"\bstatic\b", base) is not None
                    )
        elif node.type == "for_range_loop":
            one_ = node.child_by_field_name("declarator")
            each = declared(file, base_text(file, node).rpartition("(")[2], one_)
            if one_ is not None and each.name:
                yield Local(each.name, each.type, file, one_, node, None)
