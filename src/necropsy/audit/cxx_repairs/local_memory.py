"""Large locals, arrays of variable length and ``alloca``: their memory moves to the heap."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from necropsy.audit.cxx.declarators import Local, locals_of
from necropsy.audit.cxx.sizes import Sizes
from necropsy.audit.cxx_repairs.edits import Edit, Repair
from necropsy.audit.cxx_repairs.includes import included
from necropsy.audit.cxx_repairs.site import NoRepairError, Site, uses
from necropsy.model import CodeDefect

if TYPE_CHECKING:
    from tree_sitter import Node

_LARGE = 64 << 10
"""Bytes; smaller variables stay on the stack."""
_ZERO = re.compile(r"\{\s*(?:0(?:\.0?f?)?)?\s*\}")


def large_frame(site: Site, defect: CodeDefect) -> Repair:
    """Arrays become vectors; of other objects, a ``unique_ptr`` holds the memory and a reference has their name."""
    names = defect.names["variables"].split(", ")
    found = [each for each in locals_of(site.function) if each.name in names]
    edits: list[Edit] = []
    for each in found:
        edits += as_vector(site, each) if each.type.extents else _as_reference(site, each)
    if not edits:
        raise NoRepairError("no such variable")
    shown = " and ".join(f"`{each.name}`" for each in found)
    return Repair(tuple(edits), f"moves {shown} to the heap")


def stack_allocation(site: Site, defect: CodeDefect) -> Repair:
    """A vector of the same length."""
    name = defect.names["variable"]
    if not name:
        return _instead_of_alloca(site)
    local = next((each for each in locals_of(site.function) if each.name == name), None)
    if local is None or len(local.type.extents) != 1:
        raise NoRepairError("not an array of one dimension")
    return Repair(tuple(as_vector(site, local)), f"declares `{name}` as a std::vector")


def deep_path(site: Site, defect: CodeDefect) -> Repair:
    """The largest locals of each function on the path move to the heap."""
    edits: list[Edit] = []
    names: list[str] = []
    lines = {(one.path, one.line) for one in defect.others}
    lines |= {(path, int(line)) for each in defect.facts for path, _, line in [(each.where or ":0").rpartition(":")]}
    for function in site.look.unit.functions:
        if not any(
            path == function.file.path and function.place.line <= line <= function.place.end_line
            for path, line in lines
        ):
            continue
        sizes = Sizes(site.look.unit, scope=function.qualified)
        for each in locals_of(function):
            if (sizes.bytes(each.type) or 0) < _LARGE or each.is_static or each.type.is_indirect:
                continue
            own = Site(site.look, function, each.statement)
            edits += as_vector(own, each) if each.type.extents else _as_reference(own, each)
            names.append(each.name)
    if not edits:
        raise NoRepairError("no large variable is seen")
    return Repair(
        tuple(dict.fromkeys(edits)), f"moves {' and '.join(f'`{one}`' for one in dict.fromkeys(names))} to the heap"
    )


def as_vector(site: Site, local: Local) -> list[Edit]:
    """``float a[n];`` -> ``std::vector<float> a(n);``, with all uses of its name."""
    element = _element(site, local)
    if local.value is not None and not _ZERO.fullmatch(site.text(local.value).strip()):
        raise NoRepairError("it has values from the beginning")
    extents = _extents(site, local)
    is_bool = element == "bool"
    if is_bool and len(extents) > 1:
        raise NoRepairError("bool in several dimensions")
    inner = element
    for one in reversed(extents[1:]):
        inner = f"std::array<{inner}, {one}>"
    name = local.name
    text = (
        f"auto {name} = std::make_unique<bool[]>({extents[0]});"
        if is_bool
        else f"std::vector<{inner}> {name}({extents[0]});"
    )
    begin = "get()" if is_bool else "data()"
    edits = [site.replace(local.statement, text)]
    for node in uses(site, name):
        if not local.statement.start_byte <= node.start_byte < local.statement.end_byte:
            edits += _use(site, node, begin, is_flat=len(extents) == 1, is_bool=is_bool)
    return [*edits, *included(site, *(["memory"] if is_bool else ["vector"]), *(["array"] if len(extents) > 1 else []))]


def _element(site: Site, local: Local) -> str:
    declarators = local.statement.children_by_field_name("declarator")
    if len(declarators) != 1:
        raise NoRepairError("several variables in one declaration")
    base = site.source(local.statement.start_byte, declarators[0].start_byte).strip()
    if re.search(r"\b(?:static|constexpr|const|volatile|alignas|thread_local)\b", base) or local.type.pointers:
        raise NoRepairError("not a plain array")
    return base


def _extents(site: Site, local: Local) -> list[str]:
    found: list[str] = []
    at: Node | None = local.node
    while at is not None:
        if at.type == "array_declarator":
            size = at.child_by_field_name("size")
            if size is None:
                raise NoRepairError("no length")
            found.insert(0, site.macro_call(size))
        at = at.child_by_field_name("declarator")
    if not found:
        raise NoRepairError("no length")
    return found


def _use(site: Site, node: Node, begin: str, *, is_flat: bool, is_bool: bool) -> list[Edit]:
    parent = node.parent
    name = site.text(node)
    if parent is None or (parent.type == "field_expression" and parent.child_by_field_name("field") == node):
        return []
    if parent.type == "subscript_expression" and parent.child_by_field_name("argument") == node:
        return []
    if parent.type == "for_range_loop" and not is_bool:
        return []
    if parent.type == "parenthesized_expression" and parent.parent is not None:
        parent = parent.parent
    if parent.type == "sizeof_expression":
        if is_bool:
            raise NoRepairError("sizeof")
        return [site.replace(parent, f"({name}.size() * sizeof({name}[0]))")]
    if parent.type in {"pointer_expression", "reference_declarator", "lambda_capture_specifier", "unary_expression"}:
        raise NoRepairError("its address is taken")
    called = parent.parent.child_by_field_name("function") if parent.parent is not None else None
    callee = site.text(called).rpartition("::")[2] if called is not None and parent.type == "argument_list" else ""
    if not is_flat and callee not in {"memset", "memcpy", "memmove"}:
        raise NoRepairError("it is passed on as an array of arrays")
    if callee in {"begin", "end", "size"} and not is_bool:
        return []
    return [site.insert(node.end_byte, f".{begin}")]


def _as_reference(site: Site, local: Local) -> list[Edit]:
    """``Table t;`` -> ``auto t_memory = std::make_unique<Table>(); Table& t = *t_memory;``"""
    declarators = local.statement.children_by_field_name("declarator")
    if len(declarators) != 1 or local.statement.type != "declaration":
        raise NoRepairError("several variables in one declaration")
    base = " ".join(site.source(local.statement.start_byte, declarators[0].start_byte).split())
    if re.search(r"\b(?:static|constexpr|auto|thread_local|alignas)\b", base) or not base:
        raise NoRepairError("not a plain object")
    type_ = re.sub(r"\bconst\b", "", base).strip()
    given = ""
    if local.value is not None:
        given = site.original(local.value).strip()
        if local.value.type == "initializer_list" or given.startswith("{"):
            if not re.fullmatch(r"\{\s*\}", given):
                raise NoRepairError("it has values from the beginning")
            given = ""
        elif local.value.type == "argument_list":
            given = given[1:-1]
        elif re.match(rf"{re.escape(type_)}\s*[({{]", given):
            raise NoRepairError("it has values from the beginning")
    name = f"{local.name}_memory"
    if uses(site, name):
        raise NoRepairError("the name is taken")
    indent = site.indent(site.insert(local.statement.start_byte, "").start)
    first = f"const auto {name} = std::make_unique<{type_}>({given});"
    return [
        site.replace(local.statement, f"{first}{site.eol}{indent}{base}& {local.name} = *{name};"),
        *included(site, "memory"),
    ]


def _instead_of_alloca(site: Site) -> Repair:
    """``char* a = static_cast<char*>(alloca(n));`` -> a vector in front of it, and its ``data()``."""
    statement = site.enclosing("declaration")
    call = site.enclosing("call_expression")
    while call is not None and "alloca" not in site.text(call).partition("(")[0]:
        call = next((each for each in _calls(call) if "alloca" in site.text(each).partition("(")[0]), None)
    if statement is None or call is None or statement.parent is None or statement.parent.type != "compound_statement":
        raise NoRepairError("not the value of a variable")
    local = next((each for each in locals_of(site.function) if each.statement == statement), None)
    if local is None or not local.type.pointers:
        raise NoRepairError("not the value of a pointer")
    rest = site.text(site.function.body)
    if re.search(rf"(?:=|\breturn)\s*(?:&\s*)?{re.escape(local.name)}\s*[;,)]", rest):
        raise NoRepairError("the pointer may live longer")
    held = call.child_by_field_name("arguments")
    size = site.original(held)[1:-1] if held is not None else ""
    name = f"{local.name}_memory"
    if not size or uses(site, name):
        raise NoRepairError("the name is taken")
    edits = site.before(statement, [f"std::vector<char> {name}({size});"])
    edits.append(site.replace(call, f"{name}.data()"))
    value = site.text(local.value) if local.value is not None else ""
    if value.startswith("static_cast") and "char" not in value.partition("(")[0]:
        edits.append(site.exchange(local.value.start_byte, local.value.start_byte + 11, "reinterpret_cast"))  # type: ignore[union-attr]
    return Repair((*edits, *included(site, "vector")), f"takes the memory of `{local.name}` from a std::vector")


def _calls(node: Node) -> list[Node]:
    held = node.child_by_field_name("arguments")
    return [one for one in held.named_children if one.type == "call_expression"] if held is not None else []
