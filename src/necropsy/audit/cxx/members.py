"""Finds members that ``Compute`` changes without a lock, although several threads may run the same kernel at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from necropsy.audit.cxx.conditions import arguments_of, callee
from necropsy.audit.cxx.declarators import locals_of, walk
from necropsy.audit.cxx.expression_types import member
from necropsy.audit.cxx.locks import is_held
from necropsy.audit.cxx.looking import Look, where
from necropsy.audit.cxx.model import Class, Function, Kernel
from necropsy.audit.cxx.sharing import written
from necropsy.audit.cxx.types import Type
from necropsy.model import CodeDefect, CodeFact

if TYPE_CHECKING:
    from tree_sitter import Node

_SAFE = re.compile(
    r"atomic|mutex|once_flag|condition_variable|Notification|Counter|Sampler|Gauge|Cell|thread_local", re.IGNORECASE
)
_POINTERS = frozenset({"unique_ptr", "shared_ptr", "ResourceHandle"})
_REQUIRED = re.compile(r"(?:LOCKS?_REQUIRED|REQUIRES_LOCK|REQUIRES)\s*\(")


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for the first change of each member."""
    told: set[tuple[str, str]] = set()
    for kernel in one.unit.kernels:
        if kernel.cls is None or kernel.compute is None or kernel.device not in {"", "CPU"}:
            continue
        for function, cls in _reached(one, kernel, kernel.cls, kernel.compute):
            with one.of(function):
                for node, name, type_ in _changes(one, cls, function):
                    if (cls.qualified, name) not in told:
                        told.add((cls.qualified, name))
                        yield _told(one, cls, function, node, name, type_)


def _reached(one: Look, kernel: Kernel, cls: Class, compute: Function) -> list[tuple[Function, Class]]:
    """Compute, and what it calls of its class and of objects in its members, without a lock; with the class."""
    found: list[tuple[Function, Class]] = []
    waiting = [(compute, cls)]
    own = {kernel.class_name, compute.class_name or "", *(base.name for base in cls.bases)}
    while waiting:
        at, owner = waiting.pop(0)
        if any(at is each for each, _ in found):
            continue
        found.append((at, owner))
        for call, target in one.calls.edges[id(at)]:
            if target.is_static or target.is_constructor or is_held(at, call.node) or _REQUIRED.search(_head(target)):
                continue
            if call.receiver is None or call.receiver.type == "this":
                if target.class_name == owner.qualified or (owner is cls and target.class_name in own):
                    waiting.append((target, owner))
            elif call.receiver.type == "identifier":
                inner = _held_object(one, owner, at, call.receiver, target)
                if inner is not None:
                    waiting.append((target, inner))
        waiting += [(each, owner) for each in one.unit.lambdas(at) if not is_held(at, each.node)]
    return found


def _held_object(one: Look, cls: Class, function: Function, receiver: Node, target: Function) -> Class | None:
    """The class of an object that is itself a member, on which a method is called."""
    name = function.text(receiver)
    if name in {each.name for each in function.parameters} | {each.name for each in locals_of(function)}:
        return None
    type_ = member(one.unit, cls, name)
    if type_ is None or type_.pointers or type_.reference or type_.const or _SAFE.search(str(type_)):
        return None
    inner = one.unit.class_named(type_.name, cls.qualified)
    return inner if inner is not None and target.class_name == inner.qualified else None


def _head(function: Function) -> str:
    """Its head as it was written: the preprocessor drops annotations of locks."""
    start = function.file.source_offset(function.node.start_byte)
    end = function.file.source_offset(function.body.start_byte)
    return function.file.original[start:end].decode("utf-8", "replace")


def _changes(one: Look, cls: Class, function: Function) -> Iterator[tuple[Node, str, Type]]:
    own = {each.name for each in locals_of(function)} | {each.name for each in function.parameters}
    at = function.outer
    while at is not None:
        own |= {each.name for each in locals_of(at)} | {each.name for each in at.parameters}
        at = at.outer
    if re.search(r"\bcall_once\b", function.text(function.body)):
        return
    for node in walk(function.body, into_scopes=False):
        name, _, _ = written(function, node)
        if not name:
            name = _through(one, cls, function, node)
        if not name:
            name = _of_this(function, node)
        type_ = member(one.unit, cls, name) if name and name not in own else None
        if type_ is None or _SAFE.search(str(type_)) or (type_.last == "Tensor" and type_.pointers):
            continue
        if (type_.pointers or type_.last in _POINTERS) and re.search(r"->|^\*|\[", function.text(node)):
            continue  # what it points to may have a lock of its own
        if is_held(function, node) or _is_static(cls, name):
            continue
        yield node, name, type_


_CHANGING = frozenset({"assign", "swap", "push", "pop", "push_front", "pop_front", "fill", "setZero", "setConstant"})
_ENGINES = frozenset(
    {"mt19937", "mt19937_64", "default_random_engine", "minstd_rand", "minstd_rand0", "PhiloxRandom", "SimplePhilox"}
)


def _through(one: Look, cls: Class, function: Function, node: Node) -> str:
    """A member that a call changes: ``scratch_.assign(...)``, ``allocate_temp(..., &scratch_)``, ``dice(engine_)``."""
    if node.type != "call_expression":
        return ""
    called, name = node.child_by_field_name("function"), callee(function.file, node)
    given = [function.text(each) for each in arguments_of(node)]
    if called is not None and called.type == "field_expression" and name in _CHANGING:
        held = called.child_by_field_name("argument")
        return function.text(held) if held is not None and held.type == "identifier" else ""
    if name == "allocate_temp":
        given = given[2:3]
    if name in {"allocate_temp", "swap", "exchange"}:
        return next((re.sub(r"\W", "", each) for each in given if re.fullmatch(r"&?\w+_", each)), "")
    for each in (*given, function.text(called) if called is not None else ""):
        type_ = member(one.unit, cls, each) if re.fullmatch(r"\w+", each) else None
        if type_ is not None and type_.last in _ENGINES and not type_.is_indirect:
            return each
    return ""


def _of_this(function: Function, node: Node) -> str:
    """``this->count_ = 1``"""
    if node.type not in {"assignment_expression", "update_expression"}:
        return ""
    found = re.match(r"(?:\+\+|--)?\s*this\s*->\s*(\w+)\s*(?:[-+*/|&^%]?=(?!=)|\+\+|--|$)", function.text(node))
    return found[1] if found is not None else ""


def _is_static(cls: Class, name: str) -> bool:
    return any(each.name == name and each.type.const for each in cls.fields)


def _told(one: Look, cls: Class, function: Function, node: Node, name: str, type_: Type) -> CodeDefect:  # noqa: PLR0917 - what its caller has in hand
    fields = [each for each in cls.fields if each.name == name]
    return one.defect(
        "op-kernel-state",
        "member",
        function.file.place(node),
        "write",
        function=function,
        others=tuple(one.place(each.place, "declaration") for each in fields[:1]),
        names={"member": name, "type": str(type_)},
        facts=tuple(
            CodeFact(claim="the member", seen=each.file.line_text(each.place.line)[:160], where=where(each.place))
            for each in fields[:1]
        ),
        severity="warning",
        confidence="likely",
    )
