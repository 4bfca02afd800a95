"""A parsed file -> its functions, lambdas, classes, constants and aliases."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from necropsy.audit.cxx.declarators import (
    Declared,
    all_declared,
    base_text,
    declared,
    parameters,
    template_parameters,
)
from necropsy.audit.cxx.model import Class, Field, Function, SourceFile, TemplateParameter
from necropsy.audit.cxx.types import Type, parsed

if TYPE_CHECKING:
    from tree_sitter import Node

_CLASSES = {"class_specifier": "class", "struct_specifier": "struct", "union_specifier": "union"}
_DEEPEST = 200
_CONSTANT = re.compile(r"\b(?:const|constexpr)\b")


@dataclass(frozen=True)
class _Scope:
    name: str = ""
    """Namespaces and classes, joined."""
    cls: str | None = None
    template: tuple[TemplateParameter, ...] = ()
    function: Function | None = None

    def within(self, name: str) -> str:
        return f"{self.name}::{name}" if self.name else name


@dataclass
class Collector:
    """Collects from one file after the other into the parts of a unit."""

    functions: list[Function] = field(default_factory=list)
    classes: dict[str, list[Class]] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    aliases: dict[str, tuple[Type, tuple[TemplateParameter, ...]]] = field(default_factory=dict)
    failed: list[tuple[str, int, str]] = field(default_factory=list)
    """The path and line of what could not be collected, and the error."""

    def file(self, one: SourceFile) -> None:
        """Collect all of a file."""
        self._all(one, one.tree.root_node, _Scope(), 0)

    def _all(self, file: SourceFile, parent: Node, scope: _Scope, depth: int) -> None:
        if depth > _DEEPEST:
            return
        for node in parent.named_children:
            try:
                self._one(file, node, scope, depth + 1)
            except Exception as error:  # noqa: BLE001, PERF203 - it costs only this declaration
                self.failed.append((file.path, file.place(node).line, f"{type(error).__name__}: {error}"))

    def _one(self, file: SourceFile, node: Node, scope: _Scope, depth: int) -> None:
        kind = node.type
        body = node.child_by_field_name("body")
        if kind == "namespace_definition":
            name = node.child_by_field_name("name")
            inner = scope.within(re.sub(r"\s+", "", file.text_of(name))) if name is not None else scope.name
            if body is not None:
                self._all(file, body, _Scope(inner), depth)
        elif kind == "template_declaration":
            more = template_parameters(file, node.child_by_field_name("parameters"))
            self._all(file, node, _Scope(scope.name, scope.cls, (*scope.template, *more), scope.function), depth)
        elif kind == "function_definition":
            self._function(file, node, scope, depth)
        elif kind in _CLASSES:
            self._class(file, node, scope, depth)
        elif kind == "enum_specifier":
            self._enum(file, node, scope)
        elif kind == "alias_declaration":
            name, type_ = node.child_by_field_name("name"), node.child_by_field_name("type")
            if name is not None and type_ is not None:
                self.aliases[scope.within(file.text_of(name))] = (parsed(file.text_of(type_)), scope.template)
        elif kind == "type_definition":
            self._types_in(file, node, scope, depth)
            for each in all_declared(file, node):
                if each.name and each.function is None:
                    self.aliases[scope.within(each.name)] = (_without(each.type, "typedef"), scope.template)
        elif kind in {"declaration", "field_declaration"}:
            self._types_in(file, node, scope, depth)
            self._constants(file, node, scope)
            for each in all_declared(file, node) if kind == "declaration" else ():
                if each.value is not None and scope.function is None:
                    self._lambdas(file, each.value, scope, each.name, depth)
        elif kind in {
            "linkage_specification",
            "declaration_list",
            "ERROR",
            "expression_statement",
            "compound_statement",
            "call_expression",
            "labeled_statement",
        }:
            self._all(file, node, scope, depth)
        elif kind in {"argument_list", "field_expression", "lambda_expression"} and scope.function is None:
            self._lambdas(file, node, scope, "", depth, itself=True)

    def _types_in(self, file: SourceFile, node: Node, scope: _Scope, depth: int) -> None:
        type_ = node.child_by_field_name("type")
        if type_ is not None and type_.type in {*_CLASSES, "enum_specifier"}:
            self._one(file, type_, scope, depth)

    def _constants(self, file: SourceFile, node: Node, scope: _Scope) -> None:
        if not _CONSTANT.search(base_text(file, node)):
            return
        for each in all_declared(file, node):
            value = each.value or node.child_by_field_name("default_value")
            if value is not None and each.name and not each.type.is_indirect:
                self.constants[scope.within(each.name)] = (
                    file.text_of(value).strip().removeprefix("{").removesuffix("}")
                )

    def _enum(self, file: SourceFile, node: Node, scope: _Scope) -> None:
        name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
        scoped = any(one.type in {"class", "struct"} for one in node.children)
        own = file.text_of(name) if name is not None else ""
        base = node.child_by_field_name("base")
        if own:
            self.aliases[scope.within(own)] = (parsed(file.text_of(base) if base is not None else "int"), ())
        previous = ""
        for one in body.named_children if body is not None else ():
            label = one.child_by_field_name("name") if one.type == "enumerator" else None
            if label is None:
                continue
            value = one.child_by_field_name("value")
            previous = file.text_of(value) if value is not None else f"({previous}) + 1" if previous else "0"
            text = file.text_of(label)
            if own:
                self.constants[scope.within(f"{own}::{text}")] = previous
            if not scoped:
                self.constants[scope.within(text)] = previous
            previous = scope.within(f"{own}::{text}" if own else text)

    def _function(self, file: SourceFile, node: Node, scope: _Scope, depth: int) -> None:
        body = node.child_by_field_name("body")
        base = base_text(file, node)
        one = declared(file, base, node.child_by_field_name("declarator"))
        if one.function is None or not one.name:
            if body is not None:
                self._all(file, body, scope, depth)
            return
        if body is None or body.type != "compound_statement":
            if body is not None and body.type == "try_statement":
                body = body.child_by_field_name("body")
            if body is None:
                return
        made = self._made(file, node, body, one, base, scope)
        self.functions.append(made)
        inner = _Scope(made.qualified, made.class_name, made.template, made)
        if made.initializers is not None:
            self._inside(file, made.initializers, inner, depth)
        self._inside(file, body, inner, depth)

    @staticmethod
    def _made(file: SourceFile, node: Node, body: Node, one: Declared, base: str, scope: _Scope) -> Function:  # noqa: PLR0917 - what its caller has in hand
        name = _without_arguments(one.name)
        before, _, last = name.rpartition("::")
        if "operator" in one.name:
            before, _, last = one.name.partition("operator")
            before, last = _without_arguments(before).removesuffix("::"), "operator" + last
        cls = scope.within(before) if before else scope.cls
        head = file.text[node.start_byte : body.start_byte].decode("utf-8", "replace")
        return Function(
            name=last,
            qualified=scope.within(f"{before}::{last}" if before else last),
            file=file,
            node=node,
            body=body,
            parameters=parameters(file, one.function),
            returns=one.type if node.child_by_field_name("type") is not None else None,
            class_name=cls,
            template=scope.template,
            outer=scope.function,
            is_static=re.search(r"\bstatic\b", base) is not None,
            is_virtual=re.search(r"\bvirtual\b|\boverride\b|\bfinal\b", head) is not None,
            initializers=next((each for each in node.named_children if each.type == "field_initializer_list"), None),
        )

    def _inside(self, file: SourceFile, root: Node, scope: _Scope, depth: int) -> None:
        """Lambdas and local classes of a function's body, without recursion over its statements."""
        waiting = list(reversed(root.named_children))
        while waiting:
            node = waiting.pop()
            if node.type == "lambda_expression":
                self._lambda(file, node, scope, _variable(file, node), depth)
            elif node.type in _CLASSES:
                self._class(file, node, scope, depth)
            elif node.type in {"enum_specifier", "alias_declaration", "type_definition", "function_definition"}:
                self._one(file, node, scope, depth)
            else:
                if node.type == "declaration":
                    self._constants(file, node, scope)
                waiting += reversed(node.named_children)

    def _lambdas(
        self, file: SourceFile, root: Node, scope: _Scope, name: str, depth: int, *, itself: bool = False
    ) -> None:
        if root.type == "lambda_expression" and (itself or name):
            self._lambda(file, root, scope, name, depth)
        else:
            self._inside(file, root, scope, depth)

    def _lambda(self, file: SourceFile, node: Node, scope: _Scope, name: str, depth: int) -> None:
        body = node.child_by_field_name("body")
        if body is None or depth > _DEEPEST:
            return
        captures = node.child_by_field_name("captures")
        made = Function(
            name=name,
            qualified=scope.within(name or "lambda"),
            file=file,
            node=node,
            body=body,
            parameters=parameters(file, node.child_by_field_name("declarator")),
            class_name=scope.cls,
            template=scope.template,
            is_lambda=True,
            captures=file.text_of(captures)[1:-1].strip() if captures is not None else "",
            outer=scope.function,
        )
        self.functions.append(made)
        self._inside(file, body, _Scope(made.qualified, scope.cls, scope.template, made), depth + 1)

    def _class(self, file: SourceFile, node: Node, scope: _Scope, depth: int) -> None:
        body, name = node.child_by_field_name("body"), node.child_by_field_name("name")
        if body is None:
            return
        type_ = parsed(file.text_of(name)) if name is not None else Type("")
        qualified = scope.within(type_.name or f"unnamed at line {file.place(node).line}")
        bases: list[Type] = []
        for clause in node.named_children:
            if clause.type == "base_class_clause":
                bases += [
                    parsed(file.text_of(one))
                    for one in clause.named_children
                    if one.type not in {"access_specifier", "virtual"}
                ]
        fields: list[Field] = []
        methods: list[str] = []
        defaulted: list[str] = []
        for one in body.named_children:
            self._member(file, one, fields, methods, defaulted)
        made = Class(
            name=type_.last,
            qualified=qualified,
            kind=_CLASSES[node.type],
            file=file,
            node=node,
            fields=tuple(fields),
            bases=tuple(bases),
            template=scope.template,
            arguments=type_.arguments,
            declared=tuple(methods),
            defaulted=tuple(defaulted),
        )
        self.classes.setdefault(qualified, []).append(made)
        self._all(file, body, _Scope(qualified, qualified, scope.template, scope.function), depth)

    @staticmethod
    def _member(file: SourceFile, node: Node, fields: list[Field], methods: list[str], defaulted: list[str]) -> None:
        if node.type == "template_declaration":
            node = next(
                (one for one in node.named_children if "declaration" in one.type or "definition" in one.type), node
            )
        if node.type not in {"field_declaration", "declaration", "function_definition"}:
            return
        base = base_text(file, node)
        for one in all_declared(file, node):
            if one.function is not None and not _is_pointer_to_function(one.function):
                methods.append(one.name)
                if re.search(r"=\s*default\s*;?\s*$", file.text_of(node)):
                    defaulted.append(one.name)
            elif one.name:
                value = one.value or node.child_by_field_name("default_value")
                text = file.text_of(value) if value is not None else None
                fields.append(Field(one.name, one.type, file, node, text, re.search(r"\bstatic\b", base) is not None))


def _is_pointer_to_function(function: Node) -> bool:
    inner = function.child_by_field_name("declarator")
    return inner is not None and inner.type == "parenthesized_declarator"


def _variable(file: SourceFile, node: Node) -> str:
    """The variable that a lambda initialises, or is assigned to; empty where there is none."""
    parent = node.parent
    while parent is not None and parent.type in {"initializer_list", "parenthesized_expression", "argument_list"}:
        if parent.type == "argument_list" and parent.named_child_count != 1:
            return ""
        if parent.type == "argument_list" and parent.parent is not None and parent.parent.type == "call_expression":
            return ""
        parent = parent.parent
    if parent is None:
        return ""
    if parent.type == "init_declarator":
        return declared(file, "auto", parent).name
    left = parent.child_by_field_name("left") if parent.type == "assignment_expression" else None
    return re.sub(r"\s+", "", file.text_of(left)).lstrip("*").removeprefix("this->") if left is not None else ""


def _without_arguments(name: str) -> str:
    while True:
        shorter = re.sub(r"<[^<>]*>", "", name)
        if shorter == name:
            return name
        name = shorter


def _without(type_: Type, word: str) -> Type:
    return parsed(str(type_).replace(f"{word} ", ""))
