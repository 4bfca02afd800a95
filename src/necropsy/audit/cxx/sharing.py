"""Shards and threads that write to the same location."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from necropsy.audit.cxx.conditions import arguments_of, callee, known_at, plain, words
from necropsy.audit.cxx.declarators import locals_of, walk
from necropsy.audit.cxx.expression_types import variable
from necropsy.audit.cxx.locks import is_held
from necropsy.audit.cxx.looking import Look, where
from necropsy.audit.cxx.model import Function
from necropsy.model import CodeDefect, CodeFact

if TYPE_CHECKING:
    from tree_sitter import Node

_SHARDS = frozenset(
    {
        "Shard",
        "parallelFor",
        "ParallelFor",
        "ParallelForWithWorkerId",
        "ParallelForFixedBlockSizeScheduling",
        "parallel_for",
    }
    | {"TransformRangeConcurrently", "ParallelForWithAdaptiveShardSize"}
)
_SCHEDULES = frozenset({"Schedule", "ScheduleWithHint"})
_LOOPS = frozenset({"for_statement", "while_statement", "for_range_loop", "do_statement"})
_CHANGES = frozenset(
    {"push_back", "emplace_back", "insert", "emplace", "erase", "clear", "resize", "append", "pop_back"}
)
_SAFE = re.compile(r"atomic|thread_local|mutex|per_thread|PerThread|Counter\b", re.IGNORECASE)
WRITES = frozenset({"assignment_expression", "update_expression", "call_expression"})


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each location that several shards write."""
    for function in one.unit.functions:
        if function.is_lambda and function.outer is not None:
            with one.of(function):
                runner = _runner(function, function.outer)
                if runner is not None and not _SAFE.search(function.captures):
                    yield from _in(one, function, runner)


def _runner(function: Function, outer: Function) -> Node | None:
    """The call that runs the lambda several times at once."""
    for node in walk(outer.body, into_scopes=False):
        if node.type != "call_expression":
            continue
        name = callee(outer.file, node)
        if name not in _SHARDS and not (name in _SCHEDULES and _is_repeated(outer, node)):
            continue
        for one in arguments_of(node):
            if one == function.node or (
                function.name
                and re.search(rf"\b{re.escape(function.name)}\b", outer.text(one))
                and one.type != "lambda_expression"
            ):
                return node
    return None


def _is_repeated(outer: Function, node: Node) -> bool:
    at = node.parent
    while at is not None and at.start_byte > outer.body.start_byte:
        if at.type in _LOOPS:
            return True
        at = at.parent
    return False


def _in(one: Look, function: Function, runner: Node) -> Iterator[CodeDefect]:
    own = {each.name for each in function.parameters} | {each.name for each in locals_of(function)}
    told: set[str] = set()
    for node in walk(function.body, into_scopes=False):
        target, sign, index = written(function, node)
        if not target or target in own or target in told or is_held(function, node):
            continue
        if _is_safe(one, function, target, node):
            continue
        case = _case(one, function, sign, index, own)
        if not case or (case == "scattered" and _is_own_share(function, node, index)):
            continue
        told.add(target)
        file = function.file
        yield one.defect(
            "op-shared-write",
            case,
            file.place(node),
            "write",
            function=function,
            others=(one.place(file.place(runner), "call"),),
            names={
                "location": " ".join(function.text(node).split())[:100],
                "variable": target,
                "runner": callee(file, runner),
            },
            facts=(
                CodeFact(
                    claim="run several times at once by",
                    seen=file.line_text(file.place(runner).line)[:160],
                    where=where(file.place(runner)),
                ),
            ),
            severity="warning",
            confidence="likely",
        )


def written(function: Function, node: Node) -> tuple[str, str, str]:
    """The variable that a node writes, how (``=``, ``+=``, ``++``, ``push_back``), and the index in it."""
    if node.type == "assignment_expression":
        left, sign = node.child_by_field_name("left"), node.child_by_field_name("operator")
        target, index = _target(function, left)
        return target, function.text(sign) if sign is not None else "=", index
    if node.type == "update_expression":
        held = node.child_by_field_name("argument")
        target, index = _target(function, held)
        return target, "++", index
    if node.type == "call_expression" and callee(function.file, node) in _CHANGES:
        called = node.child_by_field_name("function")
        if called is not None and called.type == "field_expression":
            target, index = _target(function, called.child_by_field_name("argument"))
            return target, callee(function.file, node), index
    return "", "", ""


def _target(function: Function, node: Node | None) -> tuple[str, str]:
    """``out`` and ``segments(i)`` of ``out(segments(i))``; of ``*total`` no index."""
    index, at = [], node
    while at is not None and at.type not in {"identifier", "this"}:
        if at.type == "subscript_expression":
            indices = at.child_by_field_name("indices")
            index.append(function.text(indices) if indices is not None else "")
            at = at.child_by_field_name("argument")
        elif at.type == "call_expression":
            index += [function.text(each) for each in arguments_of(at)]
            at = at.child_by_field_name("function")
        elif at.type in {"field_expression", "pointer_expression"}:
            if at.type == "field_expression" and index and "(" in function.text(at):
                return "", ""
            at = at.child_by_field_name("argument")
        elif at.type == "parenthesized_expression" and at.named_child_count == 1:
            at = at.named_children[0]
        elif at.type == "binary_expression":  # *(out + i)
            right = at.child_by_field_name("right")
            index.append(function.text(right) if right is not None else "")
            at = at.child_by_field_name("left")
        else:
            return "", ""
    return (
        (function.text(at), ", ".join(each for each in index if each))
        if at is not None and at.type == "identifier"
        else ("", "")
    )


def _is_safe(one: Look, function: Function, target: str, node: Node) -> bool:
    """It is atomic, a copy of the lambda's own, or only one of the shards gets there."""
    type_ = variable(one.unit, function, target)
    if type_ is not None and _SAFE.search(str(type_)):
        return True
    outer = function.outer
    declared = [each for each in locals_of(outer) if each.name == target] if outer is not None else []
    for each in declared:
        if _SAFE.search(each.file.text_of(each.statement)):
            return True
    if _SAFE.search(target) or re.search(r"\batomic|AtomicAdd|__sync|fetch_add", function.text(node)):
        return True
    if "&" not in function.captures and not re.search(rf"&\s*{re.escape(target)}\b", function.captures):
        held = type_ is not None and (type_.pointers or type_.last in {"flat", "TensorMap", "Tensor", "Flat"})
        by_name = function.text(node).lstrip("(").startswith("*") or "->" in function.text(node)
        return not (held or by_name)
    if re.search(rf"(?:^|,)\s*{re.escape(target)}\s*(?:,|$)", function.captures):
        return not function.text(node).lstrip("(").startswith("*")
    return False


def _case(one: Look, function: Function, sign: str, index: str, own: set[str]) -> str:
    """``same`` (every shard writes the same place), ``scattered`` (data decides the place), or nothing."""
    text = function.text(function.body)
    if not index:
        if sign == "=":
            return ""  # a flag that all of them set to the same value, as a rule
        return "" if _once(function, text) else "same"
    inner = words(index) & own
    if not inner:
        return "same" if sign != "=" and not _once(function, text) else ""
    if sign in {"=", *_CHANGES}:
        return ""
    return "scattered" if _is_scattered(one, function, index, own) else ""


def _is_own_share(function: Function, node: Node, index: str) -> bool:
    """A condition around the write asks whether the place belongs to this shard."""
    return any(
        any(part == one.left for part in plain(index).split(","))
        for one in known_at(function, node)
        if one.right in {each.name for each in function.parameters}
    )


def _once(function: Function, text: str) -> bool:
    """``if (begin == 0)``: only the first shard gets there."""
    first = function.parameters[0].name if function.parameters else ""
    return bool(first) and re.search(rf"\bif\s*\(\s*{re.escape(first)}\s*==", text) is not None


def _of_range(function: Function) -> set[str]:
    """The parameters of the shard, and the counters that run from one of them on."""
    own = {each.name for each in function.parameters if each.name}
    return own | {
        each.name for each in locals_of(function) if each.value is not None and function.text(each.value) in own
    }


def _is_scattered(one: Look, function: Function, index: str, own: set[str]) -> bool:
    """The index is the value of an input, not a counter of the shard: ``segments(i)``."""
    if {each.strip() for each in index.split(",")} & _of_range(function):
        return False  # each shard has rows of its own
    outside = one.origins.names(function.outer) if function.outer is not None else frozenset()
    pattern = re.compile(r"\b(\w+)\s*[(\[]\s*([^()\[\]]+)[)\]]")
    looked = index
    for each in locals_of(function):
        if each.name in words(index) and each.value is not None and each.statement.type == "declaration":
            looked += "; " + function.text(each.value)
    for found in pattern.finditer(looked):
        if found[1] in outside and found[1] not in own and words(found[2]) & own:
            return True
    return False
