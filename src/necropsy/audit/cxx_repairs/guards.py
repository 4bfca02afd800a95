"""``OP_REQUIRES`` in front of what needs it: ranks, elements, indices, offsets, sizes, pointers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from necropsy.audit.cxx.conditions import arguments_of, callee
from necropsy.audit.cxx.declarators import Local, locals_of
from necropsy.audit.cxx.expression_types import type_of
from necropsy.audit.cxx_repairs.callers import check_in_callers
from necropsy.audit.cxx_repairs.context import Passing
from necropsy.audit.cxx_repairs.edits import Edit, Repair
from necropsy.audit.cxx_repairs.site import NoRepairError, Site, literal
from necropsy.model import CodeDefect

if TYPE_CHECKING:
    from tree_sitter import Node

_RANKS = {"vec": 1, "matrix": 2}
_METHOD = re.compile(r"(?s)^(.*?)\s*(\.|->)\s*(?:template\s+)?(scalar|vec|matrix|tensor|dim_size)\s*(?:<(.*)>)?\s*\($")
_EFFECTS = re.compile(r"\+\+|--|(?<![<>=!])=(?!=)|[?;{\"]")
_SEQUENCES = frozenset(
    {"vector", "string", "array", "deque", "InlinedVector", "tstring", "string_view", "span", "Span"}
)


def guarded(site: Site, statement: Node, condition: str, message: str, told: str) -> Repair:
    """A check in front of a statement, and what it takes to report its error there."""
    if site.is_asked(condition):
        raise NoRepairError("it is checked already")
    at = site.at(statement)
    passing = Passing(at)
    edits: list[Edit] = at.before(statement, [passing.requires(condition, message)])
    return Repair((*edits, *passing.edits()), told)


def rank(site: Site, defect: CodeDefect) -> Repair:  # noqa: ARG001 - as all repairs
    """``OP_REQUIRES(context, a.dims() == 2, ...)``"""
    call = _outward(site, _METHOD)
    if call is None:
        raise NoRepairError("no access is seen")
    held = call.child_by_field_name("arguments")
    match = _METHOD.match(site.text(call)[: (held.start_byte if held is not None else 0) - call.start_byte + 1])
    if match is None or held is None:
        raise NoRepairError("another form of access")
    tensor, dot, method, given = match[1].strip(), match[2], match[3], match[4] or ""
    dims = f"{tensor}{dot}dims()"
    if method == "scalar":
        condition, wanted = f"{tensor}{dot}NumElements() == 1", "have one element"
    elif method == "dim_size":
        number = site.text(held)[1:-1].strip()
        if number.isdigit():
            condition, wanted = f"{dims} > {number}", f"have more than {number} dimensions"
        elif re.sub(r"\s", "", number) == re.sub(r"\s", "", f"{dims}-1"):
            condition, wanted = f"{dims} >= 1", "have at least one dimension"
        else:
            condition, wanted = f"{number} >= 0 && {number} < {dims}", f"have a dimension {number}"
    else:
        size = _RANKS.get(method) or given.rpartition(",")[2].strip()
        condition, wanted = f"{dims} == {size}", f"have {size} dimension" + ("" if size == 1 else "s")
    message = literal(f"{_shown(tensor)} must {wanted}")
    if _is_tensor(site, call, tensor):
        message = f'{message[:-1]}, but its shape is ", {tensor}{dot}shape().DebugString()'
    return guarded(site, site.statement, condition, message, f"checks that `{condition}`")


def _is_tensor(site: Site, call: Node, text: str) -> bool:
    """Not a shape, which has ranks and sizes too."""
    called = call.child_by_field_name("function")
    held = called.child_by_field_name("argument") if called is not None else None
    type_ = type_of(site.look.unit, site.function, held) if held is not None else None
    if type_ is not None:
        return type_.last == "Tensor"
    return re.search(r"(?:\.|->)\s*input\s*\([^()]*\)$", text) is not None


class Need(NamedTuple):
    """A condition for one index: ``index < size``, and ``index >= 0``."""

    at: str
    size: str
    node: Node


def access(site: Site, defect: CodeDefect) -> Repair:
    """Each index is checked that is not the counter of a loop up to the size itself."""
    node = _access(site)
    if defect.rule == "op-sizes-unrelated":
        elsewhere = _elsewhere(site, node)
        if elsewhere is not None:
            return elsewhere
    needs = _copied(site, node) if callee(site.file, node) in _COPIES else _needs(site, node)
    conditions = []
    for one in needs:
        if one.at.isdigit():
            conditions.append(f"{one.size} > {max(int(one.at), *_literals(site, node))}")
            continue
        if defect.rule != "op-buffer-overrun" and len(needs) > 1 and _counter(site, one.node) is not None:
            continue
        conditions.append(f"{one.at} >= 0 && {one.at} < {one.size}")
    hoisted = _hoisted(site, needs) if defect.rule == "op-sizes-unrelated" else None
    if hoisted is not None:
        return hoisted
    if not conditions:
        raise NoRepairError("no index is seen")
    condition = " && ".join(dict.fromkeys(conditions))
    if _EFFECTS.search(condition):
        raise NoRepairError("it has effects")
    what = site.text(node.child_by_field_name("function") or node.child_by_field_name("argument") or node)
    message = literal(f"an index into {_shown(what)} is out of range")
    return guarded(site, site.at(node).statement, condition, message, f"checks the index into `{_shown(what)}`")


def _literals(site: Site, node: Node) -> list[int]:
    """The literals with which the statement indexes the same buffer by one index; at least -1."""
    buffer = node.child_by_field_name("argument") or node.child_by_field_name("function")
    text = re.escape(site.text(buffer)) if buffer is not None else ""
    used = re.findall(rf"(?<![\w.>]){text}\s*[\[(]\s*(\d+)\s*[\])]", site.text(site.at(node).statement))
    return [-1, *map(int, used)]


_COPIES = frozenset({"memcpy", "memmove", "copy_n"})


def _access(site: Site) -> Node:
    """``x(i)``, ``x[i]`` or a call of memcpy that begins at the place."""
    at: Node | None = site.node
    while at is not None and at.start_byte == site.node.start_byte:
        if at.type == "subscript_expression":
            return at
        if at.type == "call_expression" and arguments_of(at) and callee(site.file, at) not in {"min", "max", "move"}:
            return at
        at = at.parent
    raise NoRepairError("no access is seen")


def _needs(site: Site, node: Node) -> list[Need]:
    if node.type == "subscript_expression":
        buffer = node.child_by_field_name("argument")
        held = node.child_by_field_name("indices")
        given = list(held.named_children) if held is not None else []
        if buffer is None or len(given) != 1:
            raise NoRepairError("another form of index")
        return [Need(site.text(given[0]), _size(site, buffer), given[0])]
    called = node.child_by_field_name("function")
    given = arguments_of(node)
    if called is None:
        raise NoRepairError("no buffer")
    buffer_text = site.text(called)
    if callee(site.file, node) == "dim_size":
        tensor = re.sub(r"(?:\.|->)\s*dim_size$", "", buffer_text)
        dot = buffer_text[len(tensor) :].strip()[: 2 if "->" in buffer_text[len(tensor) :] else 1]
        return [Need(site.text(given[0]), f"{tensor}{dot}dims()", given[0])]
    if called.type not in {"identifier", "field_expression", "call_expression"}:
        raise NoRepairError("no buffer")
    if called.type == "field_expression" and callee(site.file, node) in {"at", "input", "dim"}:
        raise NoRepairError("a method")
    if len(given) == 1:
        return [Need(site.text(given[0]), f"{buffer_text}.size()", given[0])]
    return [Need(site.text(one), f"{buffer_text}.dimension({at})", one) for at, one in enumerate(given)]


def _size(site: Site, buffer: Node) -> str:
    """Number of elements of a container, or where a pointer points."""
    text = site.text(buffer)
    made = re.fullmatch(r"(?s)(.+?)(\.|->)\s*(?:m?data|c_str)\s*\(\s*\)", text)
    if made is not None:
        return f"static_cast<int64_t>({made[1]}{made[2]}size())"
    type_ = type_of(site.look.unit, site.function, buffer)
    if type_ is not None and not type_.pointers and type_.last in _SEQUENCES:
        return f"static_cast<int64_t>({text}.size())"
    if type_ is not None and len(type_.extents) == 1 and type_.extents[0]:
        return type_.extents[0]
    local = next((each for each in _locals(site) if each.name == text), None)
    if local is not None and local.value is not None:
        value = re.fullmatch(r"(?s)(.+?)(\.|->)\s*(?:m?data|c_str)\s*\(\s*\)", site.text(local.value).strip())
        if value is not None:
            return f"static_cast<int64_t>({value[1]}{value[2]}size())"
    raise NoRepairError("its size is not known")


def _locals(site: Site) -> list[Local]:
    return [each for function in site.around for each in locals_of(function)]


def _copied(site: Site, node: Node) -> list[Need]:
    """``memcpy(to, from + at, n)``: ``at`` and ``n`` must fit into ``from``."""
    given = arguments_of(node)
    if len(given) != 3:
        raise NoRepairError("another form of copy")
    source = given[0] if callee(site.file, node) == "copy_n" else given[1]
    count = given[1] if callee(site.file, node) == "copy_n" else given[2]
    if source.type != "binary_expression":
        raise NoRepairError("no offset")
    left, right = source.child_by_field_name("left"), source.child_by_field_name("right")
    if left is None or right is None:
        raise NoRepairError("no offset")
    size, length = _size(site, left), site.text(count)
    if "sizeof" in length:
        raise NoRepairError("a size in bytes")
    return [Need(site.text(right), f"{size} - {length} + 1", right)]


def _counter(site: Site, node: Node) -> Node | None:
    """The ``for`` with this counter."""
    if node.type != "identifier":
        return None
    name, at = site.text(node), node.parent
    while at is not None and at.start_byte > site.function.body.start_byte:
        if at.type == "for_statement":
            begun = at.child_by_field_name("initializer")
            if begun is not None and re.search(rf"\b{re.escape(name)}\s*=", site.text(begun)):
                return at
        at = at.parent
    return None


def _hoisted(site: Site, needs: list[Need]) -> Repair | None:
    """``for (i = 0; i < n; ++i)``: check ``n`` before the loop."""
    if len(needs) != 1:
        return None
    loop = _counter(site, needs[0].node)
    asked = loop.child_by_field_name("condition") if loop is not None else None
    match = (
        re.fullmatch(rf"(?s)\s*{re.escape(needs[0].at)}\s*(<=?)\s*(.+)", site.text(asked))
        if asked is not None
        else None
    )
    if loop is None or match is None or _EFFECTS.search(match[2]) or "&&" in match[2]:
        return None
    bound = match[2] if match[1] == "<" else f"{match[2]} + 1"
    condition = f"{bound} <= {needs[0].size}"
    message = literal(f"{_shown(needs[0].size)} is too small")
    return guarded(site, site.at(loop).statement, condition, message, f"checks that `{condition}` before the loop")


def _elsewhere(site: Site, node: Node) -> Repair | None:
    """A loop over a pointer and a length, both given to a helper."""
    held = node.child_by_field_name("indices")
    buffer = node.child_by_field_name("argument")
    at = held.named_children[0] if held is not None and held.named_child_count == 1 else None
    loop = _counter(site, at) if at is not None else None
    asked = loop.child_by_field_name("condition") if loop is not None else None
    if at is None or asked is None or buffer is None or site.context is not None:
        return None
    match = re.fullmatch(rf"(?s)\s*{re.escape(site.text(at))}\s*<\s*(\w+)", site.text(asked))
    return check_in_callers(site, match[1], site.text(buffer)) if match is not None else None


def null(site: Site, defect: CodeDefect) -> Repair:  # noqa: ARG001 - as all repairs
    """``OP_REQUIRES(context, pointer != nullptr, ...)``"""
    at: Node | None = site.node
    while at is not None and at.type not in {"field_expression", "pointer_expression", "subscript_expression"}:
        at = at.parent if at.start_byte >= site.function.body.start_byte else None
    if at is None:
        raise NoRepairError("no pointer is seen")
    pointer = at.child_by_field_name("argument")
    if pointer is None or pointer.type != "identifier":
        raise NoRepairError("not a variable")
    name = site.text(pointer)
    if at.type == "subscript_expression":
        condition, message = f"{name}.size() > 0", literal(f"{name} is empty")
    else:
        condition, message = f"{name} != nullptr", literal(f"there is no {name}")
    return guarded(site, site.statement, condition, message, f"checks that `{condition}`")


def _outward(site: Site, pattern: re.Pattern[str]) -> Node | None:
    """The smallest enclosing call whose head matches."""
    at: Node | None = site.node
    while at is not None and at.start_byte >= site.function.body.start_byte:
        held = at.child_by_field_name("arguments") if at.type == "call_expression" else None
        if held is not None and pattern.match(site.text(at)[: held.start_byte - at.start_byte + 1]):
            return at
        at = at.parent
    return None


def _shown(text: str) -> str:
    return " ".join(text.split())[:60]
