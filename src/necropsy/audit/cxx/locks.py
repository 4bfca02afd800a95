"""Two mutexes that are locked in both orders, also through calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from necropsy.audit.cxx.declarators import walk
from necropsy.audit.cxx.expression_types import member, pointee, variable
from necropsy.audit.cxx.looking import Look, shown, where
from necropsy.audit.cxx.model import Function, Place
from necropsy.model import CodeDefect, CodeFact

if TYPE_CHECKING:
    from tree_sitter import Node

GUARD = re.compile(
    r"^\s*(?:const\s+)?(?:(?:tensorflow|tsl|absl|std|boost)\s*::\s*)?"
    r"(mutex_lock|tf_shared_lock|lock_guard|unique_lock|shared_lock|scoped_lock|MutexLock|ReaderMutexLock|WriterMutexLock)"
    r"\s*(?:<[^;]*>)?\s+(\w+)\s*[({]\s*(.*?)\s*[)}]\s*;?\s*$",
    re.DOTALL,
)
"""A declaration that locks: the kind, the name of the guard, and the mutex."""


@dataclass(frozen=True)
class Lock:
    """A mutex is locked here, until the end of the block."""

    mutex: str
    node: Node
    guard: str


@dataclass(frozen=True)
class _Order:
    """While ``held`` is locked, ``taken`` is locked too, at ``place`` in ``function``."""

    held: str
    taken: str
    function: Function
    place: Place
    first: Place


def locks_in(one: Look, function: Function) -> list[Lock]:
    """The locks that a function takes with guards."""
    found = []
    for node in walk(function.body, into_scopes=False):
        if node.type != "declaration":
            continue
        match = GUARD.match(function.text(node))
        if match is None or re.search(r"\b(?:defer_lock|try_to_lock|adopt_lock)\b", match[3]):
            continue
        if match[1] == "scoped_lock" and "," in match[3]:
            continue  # takes both at once, without a deadlock
        mutex = _identity(one, function, match[3].split(",")[0])
        if mutex is not None:
            found.append(Lock(mutex, node, match[2]))
    return found


def _identity(one: Look, function: Function, text: str) -> str | None:
    """One name for one mutex: ``Cache::mu_``, or that of a global variable."""
    plain = re.sub(r"^[*&]+|^this->", "", text.strip()).removeprefix("this->")
    cls = one.unit.class_named(function.class_name) if function.class_name is not None else None
    if re.fullmatch(r"\w+", plain):
        if cls is not None and member(one.unit, cls, plain) is not None:
            return f"{cls.qualified}::{plain}"
        local = variable(one.unit, function, plain)
        return None if local is not None else plain
    parts = re.fullmatch(r"(\w+)(?:->|\.)(\w+)(?:\(\))?", plain)
    if parts is None:
        return None
    held = variable(one.unit, function, parts[1])
    owner = one.unit.class_named(pointee(held).name, function.qualified) if held is not None else None
    return f"{owner.qualified}::{parts[2]}" if owner is not None else None


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each pair, at the place that comes later in the file."""
    own = {}
    for function in one.unit.functions:
        with one.of(function):
            own[id(function)] = locks_in(one, function)
    below = _below(one, own)
    orders: dict[tuple[str, str], _Order] = {}
    for function in one.unit.functions:
        with one.of(function):
            for each in _orders(one, function, own.get(id(function), []), below):
                orders.setdefault((each.held, each.taken), each)
    for (held, taken), each in orders.items():
        other = orders.get((taken, held))
        if other is None or (other.place.path, other.place.line) > (each.place.path, each.place.line):
            continue
        if other is each or (
            held > taken and (other.place.path, other.place.line) == (each.place.path, each.place.line)
        ):
            continue
        yield _told(one, each, other)


def _below(one: Look, own: dict[int, list[Lock]]) -> dict[int, set[str]]:
    """All mutexes that a call of a function may lock."""
    found = {key: {each.mutex for each in locks} for key, locks in own.items()}
    changed = True
    while changed:
        changed = False
        for function in one.unit.functions:
            mine = found.setdefault(id(function), set())
            for _, target in one.calls.edges[id(function)]:
                more = found.get(id(target), set()) - mine
                if more:
                    mine |= more
                    changed = True
    return found


def _orders(one: Look, function: Function, locks: list[Lock], below: dict[int, set[str]]) -> Iterator[_Order]:
    file = function.file
    for lock in locks:
        block = lock.node.parent
        if block is None:
            continue
        end = _released(function, lock, block.end_byte)
        first = file.place(lock.node)
        for inner in locks:
            if lock.node.start_byte < inner.node.start_byte < end and inner.mutex != lock.mutex:
                yield _Order(lock.mutex, inner.mutex, function, file.place(inner.node), first)
        for call, target in one.calls.edges[id(function)]:
            if lock.node.end_byte < call.node.start_byte < end:
                for mutex in sorted(below.get(id(target), ())):
                    if mutex != lock.mutex:
                        yield _Order(lock.mutex, mutex, function, file.place(call.node), first)


def _released(function: Function, lock: Lock, end: int) -> int:
    """Where the guard gives the mutex back before its block ends."""
    for node in walk(function.body, into_scopes=False):
        if node.type == "call_expression" and lock.node.end_byte < node.start_byte < end:
            text = function.text(node)
            if re.match(rf"{re.escape(lock.guard)}\s*\.\s*(?:unlock|release|Release)\b", text):
                return node.start_byte
    return end


def is_held(function: Function, node: Node) -> bool:
    """A guard that was declared before in a block around the node locks something, or ``lock()`` was called."""
    at = node
    while at.parent is not None and at.type != "function_definition":
        above = at.parent
        if above.type == "compound_statement":
            for one in above.named_children:
                if one.start_byte >= at.start_byte:
                    break
                if GUARD.match(function.text(one)) or re.search(
                    r"(?:\.|->)\s*(?:[Ll]ock|lock_shared|WriterLock)\s*\(\s*\)\s*;\s*$", function.text(one)
                ):
                    return True
        at = above
    return False


def _told(one: Look, each: _Order, other: _Order) -> CodeDefect:
    return one.defect(
        "op-lock-order",
        "order",
        each.place,
        "lock",
        function=each.function,
        others=(one.place(each.first, "lock"), one.place(other.place, "lock"), one.place(other.first, "lock")),
        names={"held": each.held, "taken": each.taken, "other": shown(other.function)},
        facts=(
            CodeFact(
                claim=f"in {shown(each.function)}", seen=f"{each.held}, then {each.taken}", where=where(each.place)
            ),
            CodeFact(
                claim=f"in {shown(other.function)}", seen=f"{other.held}, then {other.taken}", where=where(other.place)
            ),
        ),
        severity="warning",
        confidence="likely",
    )
