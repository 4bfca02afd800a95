"""Functions, lambdas and groups of functions that call themselves: what decides the depth, and how many levels fit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from necropsy.audit.cxx.calls import Call
from necropsy.audit.cxx.declarators import locals_of, walk
from necropsy.audit.cxx.looking import Look, shown, where
from necropsy.audit.cxx.model import Function
from necropsy.audit.cxx.sizes import Sizes
from necropsy.model import CodeDefect, CodeFact

if TYPE_CHECKING:
    from tree_sitter import Node

_HALVED = re.compile(r"/\s*2\b|>>\s*1\b|\*\s*0\.5|\bmid(?:dle|point)?\w*\b|\bhalf\w*\b", re.IGNORECASE)
_DECIDES = frozenset(
    {"if_statement", "conditional_expression", "switch_statement", "for_statement", "for_range_loop", "while_statement"}
    | {"do_statement", "case_statement"}
)
_STEP = re.compile(r"(?:\+\+|--)?(\w+)\s*(?:([-+])\s*(\w+))?")


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each group that is not known to stay shallow."""
    for group in one.calls.cycles:
        first = min(group, key=lambda each: (each.is_lambda, each.place.path, each.place.line))
        with one.of(first):
            found = _judged(one, group, first)
            if found is not None:
                yield found


def _judged(one: Look, group: tuple[Function, ...], first: Function) -> CodeDefect | None:
    inner = {id(each) for each in group}
    calls = [(call, to) for each in group for call, to in one.calls.edges[id(each)] if id(to) in inner]
    if any(each.is_destructor for each in group) or all(_is_halved(call, to) for call, to in calls):
        return None
    bytes_ = sum(one.calls.frame(each) for each in group)
    levels = one.stack // bytes_
    has_base = any(_may_not_happen(call) for call, _ in calls)
    most = _most_levels(one, calls, inner)
    if most is not None and most <= levels:
        return None
    grows = None if not has_base else _depends(calls)
    facts = [
        CodeFact(claim="calls", seen=_line(call), where=where(call.caller.file.place(call.node)))
        for call, _ in calls[:4]
    ]
    order = sorted(group, key=lambda each: each is not first)
    numbers = {"bytes": bytes_, "levels": levels} | ({"deepest": most} if most is not None else {})
    return one.defect(
        "op-recursion",
        "endless" if not has_base else "fixed" if most is not None else "data",
        first.place,
        "function",
        function=first,
        others=tuple(one.place(call.caller.file.place(call.node), "call") for call, _ in calls[:4]),
        names={"through": ", ".join(shown(each) for each in order[1:]), "depends": grows or ""},
        numbers=numbers,
        facts=tuple(facts),
        severity="error" if not has_base or most is not None else "warning",
        confidence="certain" if most is not None else "likely",
        stack=one.stack,
    )


def _line(call: Call) -> str:
    return " ".join(call.caller.text(call.node).split())[:160]


def _is_halved(call: Call, to: Function) -> bool:
    """It passes half of what it was given: a depth of some 30 levels at most."""
    made = {each.name: each for each in locals_of(call.caller)}
    for text, parameter in zip(call.texts, to.parameters, strict=False):
        if text == parameter.name:
            continue
        names = re.findall(r"[A-Za-z_]\w*", text)
        values = [made[name].value for name in names if name in made]
        if _HALVED.search(text) or any(
            value is not None and _HALVED.search(call.caller.text(value)) for value in values
        ):
            return True
    return False


def _may_not_happen(call: Call) -> bool:
    """Something decides whether the call is reached: a condition around it, or a return before it."""
    node = call.node.parent
    body = call.caller.body
    while node is not None and node.start_byte > body.start_byte:
        if node.type in _DECIDES or (
            node.type == "binary_expression" and re.search(r"&&|\|\|", call.caller.text(node))
        ):
            return True
        node = node.parent
    return any(
        each.start_byte < call.node.start_byte and _leaves(call.caller, each) for each in walk(body, into_scopes=False)
    )


def _leaves(function: Function, node: Node) -> bool:
    if node.type in {"return_statement", "throw_statement"}:
        return _is_conditional(function, node)
    return (
        node.type == "call_expression"
        and re.match(r"(?:OP_REQUIRES|TF_RETURN_IF|TF_ASSIGN|RETURN_IF|CHECK|DCHECK)", function.text(node)) is not None
    )


def _is_conditional(function: Function, node: Node) -> bool:
    parent = node.parent
    while parent is not None and parent.start_byte > function.body.start_byte:
        if parent.type in _DECIDES:
            return True
        parent = parent.parent
    return False


def _depends(calls: list[tuple[Call, Function]]) -> str:
    """What changes from level to level: ``node->left`` or ``n - 1``."""
    found = []
    for call, to in calls:
        if call.receiver is not None and call.receiver.type != "this":
            found.append(call.caller.text(call.receiver))
        found += [text for text, one in zip(call.texts, to.parameters, strict=False) if _varies(text, one.name)]
    return ", ".join(dict.fromkeys(" ".join(text.split())[:60] for text in found[:3]))


def _varies(text: str, name: str) -> bool:
    return text != name and re.fullmatch(r"[&*]?\w+", text) is None


def _most_levels(one: Look, calls: list[tuple[Call, Function]], inner: set[int]) -> int | None:
    """How deep it gets at most, where constants decide that: a counter with a limit, or constant arguments."""
    found = []
    for call, to in calls:
        limit = next(
            (
                most
                for text, parameter in zip(call.texts, to.parameters, strict=False)
                if (most := _limit(one, call.caller, to, text, parameter.name, inner)) is not None
            ),
            None,
        )
        if limit is None:
            if len(inner) > 1:
                continue  # another call of the circle may count
            return None
        found.append(limit)
    return max(found) * len(inner) if found else None


def _limit(one: Look, caller: Function, to: Function, text: str, name: str, inner: set[int]) -> int | None:  # noqa: PLR0917 - what its caller has in hand
    match = _STEP.fullmatch(text.strip())
    if match is None or not (match[2] or text.startswith(("++", "--"))):
        return None
    sizes = Sizes(one.unit, scope=caller.qualified)
    step = sizes.value(match[3]) if match[3] else 1
    own = {each.name for each in caller.parameters}
    if not step or match[1] not in own:
        return None
    upwards = match[2] == "+" or text.startswith("++")
    starts = [_start(one, call, to, name) for call in one.calls.callers(to) if id(call.caller) not in inner]
    known = [start for start in starts if start is not None]
    if upwards:
        code = caller.text(caller.body)
        ends = [sizes.value(each) for each in re.findall(rf"\b{re.escape(match[1])}\s*(?:<=?|>=?|==)\s*([\w:]+)", code)]
        return next((abs(end) // step + 1 for end in ends if end is not None and end > 0), None)
    return max(known) // step + 1 if known and len(known) == len(starts) else None


def _start(one: Look, call: Call, to: Function, name: str) -> int | None:
    """What an outside caller passes at most for the parameter ``name``: a constant, or what it has checked before."""
    number = next((at for at, each in enumerate(to.parameters) if each.name == name), None)
    if number is None or number >= len(call.texts):
        return None
    sizes = Sizes(one.unit, scope=call.caller.qualified)
    value = sizes.value(call.texts[number])
    if value is not None:
        return value
    before = call.caller.file.text[call.caller.body.start_byte : call.node.start_byte].decode("utf-8", "replace")
    code, given = re.sub(r"\s+", "", before), re.sub(r"\s+", "", call.texts[number])
    checked = re.search(
        rf"(?:OP_REQUIRES(?:_ASYNC)?\([^;]*(?<![\w.]){re.escape(given)}<=?|\bif\([^;]*(?<![\w.]){re.escape(given)}>=?)([\w:']+)",
        code,
    )
    return sizes.value(checked[1]) if checked is not None else None
