"""What leaves a function while it refers to its locals: returned views and pointers, and lambdas that run later."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from necropsy.audit.cxx.conditions import callee, words
from necropsy.audit.cxx.declarators import Local, locals_of, walk
from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Function
from necropsy.audit.cxx.types import Type
from necropsy.audit.cxx.views import STRINGS, VIEWS, told
from necropsy.model import CodeDefect

if TYPE_CHECKING:
    from tree_sitter import Node

_LATER = frozenset({"Schedule", "ScheduleWithHint", "SchedClosure", "RunAsync"})
_WAITS = re.compile(r"[Ww]ait|\bjoin\b|BlockingCounter|Notification|Barrier|\bblock\b", re.IGNORECASE)


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each view of a local that is used after the function has returned."""
    for function in one.unit.functions:
        with one.of(function):
            yield from _returned(one, function)
            yield from _scheduled(one, function)


def _returned(one: Look, function: Function) -> Iterator[CodeDefect]:
    """A function that returns a view of, or pointer to, a local of its own."""
    type_ = function.returns
    if type_ is None or not (type_.is_indirect or type_.last in VIEWS):
        return
    every = [
        each
        for each in locals_of(function)
        if not (each.is_static or each.type.is_indirect or "thread_local" in words(function.text(each.statement)))
    ]
    owners = {each.name: each for each in every}
    for node in walk(function.body, into_scopes=False):
        if node.type != "return_statement" or not node.named_children:
            continue
        text = re.sub(r"\s+", "", function.text(node.named_children[0]))
        name = _shown(text, type_, owners)
        if name is not None:
            yield told(one, function, node, "returned", name, text[:80], owners[name].statement)
            return


def _shown(text: str, type_: Type, owners: dict[str, Local]) -> str | None:
    match = re.fullmatch(
        r"(\w+)\.(?:c_str|data)\(\)|&(\w+)|(?:absl::string_view|StringPiece|std::string_view)[({](\w+)[)}]", text
    )
    name = next((each for each in match.groups() if each), None) if match is not None else None
    if name is not None and name in owners:
        owner = owners[name]
        return name if text.startswith("&") or owner.type.last in STRINGS | {"vector"} or owner.type.extents else None
    if text in owners:
        owner = owners[text]
        as_view = type_.last in VIEWS and not type_.is_indirect and owner.type.last in STRINGS | {"vector"}
        as_array = bool(type_.pointers and owner.type.extents)
        if as_view or as_array or (type_.reference == "&" and not owner.type.extents and owner.type.name != "auto"):
            return text
    return None


def _scheduled(one: Look, function: Function) -> Iterator[CodeDefect]:
    """A lambda with references to locals that another thread runs after the function has returned."""
    text = function.text(function.body)
    if function.is_lambda or _WAITS.search(text):
        return
    names = {each.name for each in locals_of(function) if not each.is_static and not each.type.is_indirect}
    for each in one.unit.lambdas(function):
        parent = each.node.parent
        call = parent.parent if parent is not None and parent.type == "argument_list" else None
        if call is None or call.type != "call_expression" or callee(function.file, call) not in _LATER:
            continue
        captured = re.findall(r"&\s*(\w+)", each.captures)
        if re.search(r"&\s*(?:,|$)", each.captures):
            own = {one_.name for one_ in locals_of(each)} | {one_.name for one_ in each.parameters}
            captured += sorted(words(each.text(each.body)) & names - own)
        pool = _local_pool(function, call)
        used = [one_ for one_ in captured if one_ in names and not _outlives(function, one_, pool)]
        if used:
            yield told(one, function, each.node, "scheduled", used[0], callee(function.file, call), call)


def _local_pool(function: Function, call: Node) -> Local | None:
    """The local thread pool that the lambda is given to; its destructor waits for all that it was given."""
    called = call.child_by_field_name("function")
    receiver = called.child_by_field_name("argument") if called is not None else None
    if receiver is None:
        return None
    for one in locals_of(function):
        made = f"{one.type} {function.text(one.value)}" if one.value is not None else str(one.type)
        if one.name == function.text(receiver) and "ThreadPool" in made and not one.is_static:
            is_owned = not one.type.is_indirect and (one.type.name != "auto" or "make_unique" in made)
            return one if is_owned else None
    return None


def _outlives(function: Function, name: str, pool: Local | None) -> bool:
    """A local that was declared before the pool is destroyed after it."""
    at = next((one.statement.start_byte for one in locals_of(function) if one.name == name), None)
    return pool is not None and at is not None and at < pool.statement.start_byte
