"""Views, pointers and references to objects that no longer exist where they are used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from necropsy.audit.cxx.conditions import arguments_of, callee, words
from necropsy.audit.cxx.declarators import Local, locals_of, walk
from necropsy.audit.cxx.expression_types import variable
from necropsy.audit.cxx.looking import Look, where
from necropsy.audit.cxx.model import Function
from necropsy.audit.cxx.types import Type
from necropsy.model import CodeDefect, CodeFact

if TYPE_CHECKING:
    from tree_sitter import Node

VIEWS = frozenset({"string_view", "StringPiece", "Span", "ArraySlice"})
"""Types that show what another object owns."""
STRINGS = frozenset({"string", "tstring", "basic_string"})
_OWNERS = STRINGS | {
    "vector",
    "Tensor",
    "array",
    "deque",
    "unique_ptr",
    "InlinedVector",
    "map",
    "unordered_map",
    "Cord",
}
_MAKES_STRING = re.compile(
    r"(?:(?:absl|strings|tensorflow::strings)\s*::\s*)?(?:StrCat|StrJoin|StrReplaceAll|StrFormat|Printf|AsciiStrToLower|AsciiStrToUpper)"
    r"|std\s*::\s*(?:to_string|string)|(?:io\s*::\s*)?JoinPath|tstring|\w+(?:\.|->)(?:DebugString|ShortDebugString|SerializeAsString)"
)
_OF_ELEMENT = re.compile(r"^&?\s*(\w+)\s*(?:\[.*\]|\.\s*(?:front|back|at|data|begin|end)\s*\(.*\))$", re.DOTALL)
_GROWS = frozenset(
    {"push_back", "emplace_back", "resize", "insert", "emplace", "clear", "erase", "reserve", "shrink_to_fit", "assign"}
)
_FILLS = frozenset({"push_back", "emplace_back", "insert", "emplace", "push", "try_emplace"})
_SHOWS = re.compile(r"(?:(?:absl::|std::)?(?:string_view|StringPiece)\()?(\w+)(?:\.(?:c_str|data)\(\))?\)?")
_LOOPS = frozenset({"for_statement", "while_statement", "for_range_loop", "do_statement"})


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each view that outlives what it shows."""
    for function in one.unit.functions:
        with one.of(function):
            yield from _temporaries(one, function)
            yield from _grown(one, function)
            yield from _left_blocks(one, function)
            yield from _collected(one, function)


def _temporaries(one: Look, function: Function) -> Iterator[CodeDefect]:
    """``string_view v = MakeString();`` and ``const char* p = StrCat(a, b).c_str();``"""
    for each in locals_of(function):
        if each.value is None:
            continue
        value, type_ = each.value, each.type
        if type_.last in VIEWS and not type_.is_indirect:
            made = _is_temporary(one, function, value)
        elif (type_.pointers or type_.name == "auto") and value.type == "call_expression":
            called = value.child_by_field_name("function")
            method = (
                called.child_by_field_name("field")
                if called is not None and called.type == "field_expression"
                else None
            )
            held = called.child_by_field_name("argument") if method is not None and called is not None else None
            made = (
                held is not None
                and method is not None
                and function.text(method) in {"c_str", "data"}
                and _is_temporary(one, function, held)
            )
        else:
            made = False
        if made:
            yield told(
                one,
                function,
                each.statement,
                "temporary",
                each.name,
                " ".join(function.text(value).split())[:80],
                each.statement,
            )


def _is_temporary(one: Look, function: Function, node: Node) -> bool:
    """The expression makes a string or vector that is gone at the end of the statement."""
    if node.type in {"parenthesized_expression", "initializer_list", "argument_list"} and node.named_child_count == 1:
        return _is_temporary(one, function, node.named_children[0])
    if node.type == "binary_expression":
        sign, left = node.child_by_field_name("operator"), node.child_by_field_name("left")
        if sign is None or left is None or function.text(sign) != "+":
            return False
        type_ = variable(one.unit, function, function.text(left)) if left.type == "identifier" else None
        return (type_ is not None and type_.last in STRINGS and not type_.pointers) or _is_temporary(
            one, function, left
        )
    if node.type != "call_expression":
        return False
    called = node.child_by_field_name("function")
    if called is None:
        return False
    text = re.sub(r"\s+", "", function.text(called))
    if _MAKES_STRING.fullmatch(text):
        return True
    if called.type == "field_expression":
        held, method = called.child_by_field_name("argument"), called.child_by_field_name("field")
        type_ = (
            variable(one.unit, function, function.text(held))
            if held is not None and held.type == "identifier"
            else None
        )
        return (
            method is not None
            and function.text(method) == "substr"
            and type_ is not None
            and type_.last in {"string", "basic_string"}
        )
    for call in one.calls.calls(function):
        if call.node == node:
            targets = one.calls.targets(call)
            return bool(targets) and all(
                each.returns is not None
                and not each.returns.is_indirect
                and each.returns.last in {"string", "tstring", "vector"}
                for each in targets
            )
    return False


def _grown(one: Look, function: Function) -> Iterator[CodeDefect]:
    """A reference to an element of a vector that grows while the reference is used."""
    vectors = {
        each.name
        for each in locals_of(function)
        if each.type.last in {"vector", "string", "InlinedVector"} and not each.type.is_indirect
    }
    for each in locals_of(function):
        if each.value is None or not (
            each.type.is_indirect or each.type.name == "auto" or each.type.last == "iterator"
        ):
            continue
        text = function.text(each.value)
        match = _OF_ELEMENT.match(text)
        if match is None or match[1] not in vectors:
            continue
        points = (
            each.type.reference
            or text.lstrip().startswith("&")
            or re.search(r"\.\s*(?:data|begin|end)\s*\(\s*\)$", text)
        )
        if not points or re.search(rf"\b{match[1]}\s*\.\s*reserve\b", function.text(function.body)):
            continue
        found = _use_after_growth(function, each, match[1])
        if found is not None:
            grows, use = found
            yield told(one, function, use, "grown", each.name, match[1], grows, each.statement)


def _use_after_growth(function: Function, each: Local, vector: str) -> tuple[Node, Node] | None:
    block = each.statement.parent
    if block is None:
        return None
    uses = [
        node
        for node in walk(block)
        if node.type == "identifier" and function.text(node) == each.name and node.start_byte > each.statement.end_byte
    ]
    if any(_is_assigned(function, node) for node in uses):
        return None
    for node in walk(block, into_scopes=False):
        if (
            node.type != "call_expression"
            or node.start_byte < each.statement.end_byte
            or callee(function.file, node) not in _GROWS
        ):
            continue
        called = node.child_by_field_name("function")
        held = (
            called.child_by_field_name("argument") if called is not None and called.type == "field_expression" else None
        )
        if held is None or function.text(held) != vector:
            continue
        loop = _loop(node, block)
        after = [use for use in uses if use.start_byte > node.end_byte and not _is_other_branch(node, use)]
        again = [use for use in uses if loop is not None and loop.start_byte <= use.start_byte < loop.end_byte]
        for use in (*after, *again):
            if not _leaves_after(node):
                return node, use
    return None


def _is_assigned(function: Function, node: Node) -> bool:
    """``p = v.data()`` again."""
    parent = node.parent
    return (
        parent is not None
        and parent.type == "assignment_expression"
        and parent.child_by_field_name("left") == node
        and re.search(
            r"\.\s*(?:data|begin|end|insert|erase)\s*\(|^&|\[",
            function.text(parent.child_by_field_name("right") or parent),
        )
        is not None
    )


def _loop(node: Node, block: Node) -> Node | None:
    at = node.parent
    while at is not None and at.start_byte > block.start_byte:
        if at.type in _LOOPS:
            return at
        at = at.parent
    return None


def _leaves_after(node: Node) -> bool:
    """``v.push_back(x); return;``"""
    at = node.parent
    while at is not None and at.type != "compound_statement":
        if at.type == "expression_statement":
            after = at.next_named_sibling
            return after is not None and after.type in {"return_statement", "break_statement", "continue_statement"}
        at = at.parent
    return False


def _is_other_branch(first: Node, second: Node) -> bool:
    """One stands in an ``if``, the other in its ``else``."""
    at = first.parent
    while at is not None:
        if at.type == "if_statement" and at.start_byte <= second.start_byte < at.end_byte:
            then = at.child_by_field_name("consequence")
            return (
                then is not None
                and then.start_byte <= first.start_byte < then.end_byte
                and second.start_byte >= then.end_byte
            )
        at = at.parent
    return False


def _left_blocks(one: Look, function: Function) -> Iterator[CodeDefect]:
    """A pointer that is set to a local of an inner block, and used behind the block."""
    every = list(locals_of(function))
    pointers = {each.name: each for each in every if each.type.pointers or each.type.last in VIEWS}
    if not pointers:
        return
    for node in walk(function.body, into_scopes=False):
        if node.type != "assignment_expression":
            continue
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None or function.text(left) not in pointers:
            continue
        outer = pointers[function.text(left)]
        owner = _owner(function, every, node, function.text(right))
        block = owner.statement.parent if owner is not None else None
        if owner is None or block is None or block.type != "compound_statement" or block == function.body:
            continue
        if block.start_byte <= outer.statement.start_byte or any(
            each.name == owner.name and each is not owner for each in every
        ):
            continue
        for use in walk(function.body):
            if use.type == "identifier" and use.start_byte > block.end_byte and function.text(use) == outer.name:
                if not _is_plain_target(use):
                    yield told(one, function, use, "block", outer.name, owner.name, node, owner.statement)
                break


def _is_plain_target(node: Node) -> bool:
    parent = node.parent
    return parent is not None and parent.type == "assignment_expression" and parent.child_by_field_name("left") == node


def _owner(function: Function, every: list[Local], at: Node, text: str, depth: int = 0) -> Local | None:
    """The local object into which an expression points: of ``&a``, ``a.data()``, or a pointer made of these."""
    if depth > 2:
        return None
    plain = re.sub(r"\s+", "", text)
    match = re.fullmatch(
        r"&(\w+)(?:\[.*\])?|(\w+)\.(?:data|c_str|begin)\(\)|(\w+)\.(?:flat|vec|matrix|tensor|scalar)<.*>\(\)\.data\(\)",
        plain,
    )
    name = next((each for each in match.groups() if each), None) if match is not None else None
    by_name = [each for each in every if each.statement.start_byte < at.start_byte and each.name == (name or plain)]
    if not by_name:
        return None
    found = by_name[-1]
    if name is not None:
        kept = not found.type.is_indirect and not found.is_static
        is_owner = found.type.last in _OWNERS or bool(found.type.extents) or plain.startswith("&")
        return found if kept and is_owner and found.type.last not in VIEWS else None
    if re.fullmatch(r"\w+", plain) and found.type.pointers and found.value is not None:
        return _owner(function, every, found.statement, function.text(found.value), depth + 1)
    return None


def _collected(one: Look, function: Function) -> Iterator[CodeDefect]:
    """``views.push_back(text)`` where the string is gone at the end of the block, and the container is not."""
    every = list(locals_of(function))
    containers = {each.name: each for each in every if _keeps_views(each.type)}
    own = {each.name for each in every} | {each.name for each in function.parameters}
    members = _members_with_views(one, function) - own
    for node in walk(function.body, into_scopes=False) if containers or members else ():
        called = node.child_by_field_name("function") if node.type == "call_expression" else None
        held = (
            called.child_by_field_name("argument") if called is not None and called.type == "field_expression" else None
        )
        name = function.text(held) if held is not None else ""
        if name not in {*containers, *members} or callee(function.file, node) not in _FILLS:
            continue
        for given in arguments_of(node)[-1:]:
            owner = _string_behind(function, every, function.text(given))
            block = owner.statement.parent if owner is not None else None
            if owner is None or block is None:
                continue
            if name in members:
                if not re.search(rf"\b{name}\s*\.\s*clear\b|swap\s*\(\s*{name}\b", function.text(function.body)):
                    yield told(one, function, node, "kept", name, owner.name, owner.statement)
                continue
            outer = containers[name].statement.parent
            if outer is not None and outer.start_byte < block.start_byte and block.end_byte < outer.end_byte:
                yield told(one, function, node, "block", name, owner.name, owner.statement)


def _keeps_views(type_: Type) -> bool:
    """A container of views."""
    return not type_.is_indirect and any(
        re.search(r"string_view|StringPiece|const char\s*\*", each) for each in type_.arguments
    )


def _members_with_views(one: Look, function: Function) -> set[str]:
    """The members that are containers of views, and that other methods use too."""
    cls = one.unit.class_named(function.class_name) if function.class_name is not None else None
    if cls is None or function.is_lambda:
        return set()
    others = [each for each in one.unit.methods(cls) if each is not function]
    found = {each.name for each in cls.fields if _keeps_views(each.type)}
    return {name for name in found if any(name in words(each.text(each.body)) for each in others)}


def _string_behind(function: Function, every: list[Local], text: str, depth: int = 0) -> Local | None:
    """The local string that an expression shows: ``text``, ``text.c_str()``, or a part of ``StrSplit(text, ...)``."""
    match = _SHOWS.fullmatch(re.sub(r"\s+", "", text))
    found = [each for each in every if match is not None and each.name == match[1]]
    if len(found) != 1 or found[0].is_static or depth > 2:
        return None
    if found[0].type.last in STRINGS:
        return found[0] if not found[0].type.is_indirect else None
    source = found[0].value
    if found[0].type.last not in VIEWS or found[0].type.is_indirect:
        return None
    if source is None and found[0].statement.type == "for_range_loop":
        source = found[0].statement.child_by_field_name("right")
        if source is None or source.type != "call_expression" or callee(function.file, source) != "StrSplit":
            return None
        source = next(iter(arguments_of(source)), None)
    return _string_behind(function, every, function.text(source), depth + 1) if source is not None else None


def told(  # noqa: PLR0917 - what its callers have in hand
    one: Look, function: Function, node: Node, case: str, name: str, of: str, *others: Node
) -> CodeDefect:
    """A view that outlives its object; ``others`` are where the object begins or ends."""
    file = function.file
    places = [file.place(each) for each in others]
    return one.defect(
        "op-dangling-view",
        case,
        file.place(node),
        "declaration" if case == "temporary" else "access",
        function=function,
        others=tuple(one.place(each, "lifetime") for each in places if case != "temporary"),
        names={"view": name, "of": of},
        facts=tuple(
            CodeFact(claim="its object", seen=file.line_text(each.line)[:160], where=where(each)) for each in places[:2]
        ),
        severity="warning",
        confidence="likely",
    )
