"""What ends the process from below a kernel: CHECK on what the caller decides, and exceptions that leave it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from necropsy.audit.cxx.calls import Call
from necropsy.audit.cxx.conditions import arguments_of, asked_in, callee, is_asked, known_at, outermost, plain, words
from necropsy.audit.cxx.declarators import locals_of, walk
from necropsy.audit.cxx.expression_types import type_of
from necropsy.audit.cxx.looking import Look, shown, where
from necropsy.audit.cxx.model import Function
from necropsy.model import CodeDefect, CodeFact

if TYPE_CHECKING:
    from tree_sitter import Node

_CHECKS = re.compile(r"Q?CHECK(?:_(?:EQ|NE|LT|LE|GT|GE))?|assert")
_PARSES = frozenset({"stoi", "stol", "stoll", "stoul", "stoull", "stof", "stod", "stold"})
_CONTAINERS = frozenset(
    {"vector", "map", "unordered_map", "array", "deque", "string", "flat_hash_map", "InlinedVector"}
)
_KEYED = frozenset({"map", "unordered_map", "flat_hash_map"})
_RUNNERS = frozenset({"Shard", "parallelFor", "ParallelFor", "for_each", "transform", "sort", "Schedule"})
_DEEPEST = 4
_CANNOT_FAIL = re.compile(r"nullptr|\bNULL\b|CopyFrom|\.ok\(\)|IsInitialized|IsAligned|\bdevice\b|status")
_DATA = re.compile(r"dims\(|dim_size\(|NumElements\(|\.size\(|shape\(|dimension\(|rows\(|cols\(")


def checks(one: Look) -> Iterator[CodeDefect]:
    """A finding for each CHECK and assert on what the caller of the op decides."""
    for function in one.unit.functions:
        with one.of(function):
            if one.calls.kernel_of(function) is not None:
                yield from _checks_in(one, function)


def _checks_in(one: Look, function: Function) -> Iterator[CodeDefect]:
    for node in walk(function.body, into_scopes=False):
        if node.type != "call_expression":
            continue
        name = callee(function.file, node)
        if _CHECKS.fullmatch(name) is None:
            continue
        given = [function.text(each) for each in arguments_of(node)]
        text = ", ".join(" ".join(each.split()) for each in given)
        if not given or _CANNOT_FAIL.search(text) or not _is_about_data(one, function, given):
            continue
        if _is_own_shape(one, function, text) or _is_of_a_list(function, text):
            continue
        if (
            _is_settled(function, node, given)
            or callers_ask(one, function, words(text))
            or _validates(one, function, node)
        ):
            continue
        yield one.defect(
            "op-check-on-input",
            "assert" if name == "assert" else "check",
            function.file.place(node),
            "check",
            function=function,
            names={"macro": name, "condition": text[:120]},
            facts=tuple(_callers(one, function)),
            severity="warning",
            confidence="likely",
        )


def _validates(one: Look, function: Function, node: Node) -> bool:
    """A function that gets the context is called before, and may have checked everything."""
    names = {each.name for each in function.parameters if each.type.last in {"OpKernelContext", "OpKernelConstruction"}}
    return any(
        call.node.end_byte < node.start_byte
        and call.receiver is None
        and call.name[:1].isupper()
        and names & set(call.texts)
        for call in one.calls.calls(function)
        if not call.name.startswith(("OP_REQUIRES", "CHECK"))
    )


def _is_own_shape(one: Look, function: Function, text: str) -> bool:
    """It asks for the size of something that the kernel has made itself, such as an output."""
    shapes = {each.name for each in locals_of(function) if each.type.last == "TensorShape" and not each.type.reference}
    known = one.origins.names(function)
    own = {each.name for each in function.parameters} | {each.name for each in locals_of(function)}
    sized = re.findall(r"\b(\w+)\s*(?:\.|->)\s*(?:dimension|dim_size|size|NumElements|dims|rows|cols)\s*\(", text)
    return bool(shapes & words(text)) or any(each in own and each not in known for each in sized)


def _is_of_a_list(function: Function, text: str) -> bool:
    """It compares the number of tensors in a list, which an attribute of the op says, with that attribute."""
    lists = {each.name for each in locals_of(function) if each.type.last in {"OpInputList", "OpOutputList"}}
    sized = set(re.findall(r"\b(\w+)\.size\(\)", text))
    return bool(sized) and sized <= lists and re.search(r"\b\w+_\b", text) is not None


def _is_about_data(one: Look, function: Function, given: list[str]) -> bool:
    """The condition compares numbers that the caller decides; a bare name is a pointer or a flag."""
    text = " ".join(given)
    if not one.origins.decided(function, text):
        return False
    return (
        len(given) > 1
        or re.search(r"[<>=!]=|<|>", re.sub(r"->|<<|<\w+>", "", text)) is not None
        or _DATA.search(text) is not None
    )


def _is_settled(function: Function, node: Node, given: list[str]) -> bool:
    """A condition before it compares the same things, so that a check behind it cannot fail, or is not known to."""
    parts = [each for text in given for each in re.split(r"&&|\|\||[<>=!]=|(?<!-)>|<", plain(text))]
    is_unequal = callee(function.file, node).endswith("_NE") or any("!=" in text for text in given)
    known = {each.left for each in known_at(function, node) if each.sign != "!=" or is_unequal}
    if any(part in known and words(part) for part in parts):
        return True
    if any(re.fullmatch(r"\w+", part) and _is_clamped(function, part, given) for part in parts):
        return True
    names = {each for part in parts for each in words(part)} - _COMMON
    for at, text in asked_in(outermost(function), loops=False):
        if at >= node.start_byte:
            continue
        if re.match(r"(?:OP_REQUIRES_OK|TF_RETURN|RETURN_IF)", text) is not None and names & words(text):
            return True
        if text.startswith("OP_REQUIRES") and any(
            words(part) and (_has(plain(text), part) or _is_product_in(text, part)) for part in parts
        ):
            return True
        if text.startswith("OP_REQUIRES") and _asks_all_sizes(text) & _sized(function, parts):
            return True
    return False


def _is_product_in(text: str, part: str) -> bool:
    """``static_cast<int64_t>(n) * m * 3``, where the text has ``int64_t{3} * n * m`` or the like."""
    factors = words(part) - _CASTS
    return len(factors) > 1 and "*" in part and factors <= words(text)


_CASTS = frozenset({"static_cast", "int64_t", "int64", "int_64", "int", "long", "size_t", "std"})


def _is_clamped(function: Function, name: str, given: list[str]) -> bool:
    """``CHECK_GE(row, 0)`` of a ``row`` that is ``std::max(first, 0)``."""
    values = {plain(function.text(each.value)) for each in locals_of(function) if each.name == name and each.value}
    limits = {plain(text) for text in given if words(text) != {name}}
    return len(values) == 1 and any(
        re.fullmatch(
            rf"(?:std::)?(?:max|min)(?:<\w+>)?\((?:.*,)?(?:\w+[({{])?{re.escape(limit)}[)}}]?(?:,.*)?\)", value
        )
        for value in values
        for limit in limits
    )


def _has(text: str, part: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) is not None


_EACH_SIZE = re.compile(r"(\w+)(?:\.|->)(?:shape\(\)\.)?dim_size\(([^()]*)\)")


def _asks_all_sizes(text: str) -> set[str]:
    """The tensors of which a check in a loop asks for each dimension: ``x.dim_size(i) > 0``."""
    return {name for name, index in _EACH_SIZE.findall(plain(text)) if not index.isdigit()}


def _sized(function: Function, parts: list[str]) -> set[str]:
    """The tensors of which local variables among ``parts`` are a dimension."""
    values = {each.name: function.text(each.value) for each in locals_of(function) if each.value is not None}
    found = (_EACH_SIZE.fullmatch(plain(values[part])) for part in parts if part in values)
    return {match[1] for match in found if match is not None}


_COMMON = frozenset(
    {"size", "dims", "dim_size", "NumElements", "shape", "context", "ctx", "std", "data", "static_cast"}
)


def _callers(one: Look, function: Function) -> Iterator[CodeFact]:
    for call in one.calls.callers(function)[:2]:
        yield CodeFact(
            claim="called with",
            seen=" ".join(call.caller.text(call.node).split())[:160],
            where=where(call.caller.file.place(call.node)),
        )


def exceptions(one: Look) -> Iterator[CodeDefect]:
    """A finding for each exception that can leave a kernel."""
    for function in one.unit.functions:
        with one.of(function):
            kernel = one.calls.kernel_of(function)
            if kernel is not None and not _is_caught(one, function, frozenset()):
                yield from _thrown_in(one, function)


def _thrown_in(one: Look, function: Function) -> Iterator[CodeDefect]:
    for node in walk(function.body, into_scopes=False):
        if _in_try(node):
            continue
        if node.type == "throw_statement":
            if not node.named_children or callers_ask(one, function):
                continue
            yield _told(one, function, node, "throw", function.text(node).removeprefix("throw").strip(" ;"))
        elif node.type == "call_expression":
            name, given = callee(function.file, node), arguments_of(node)
            called = node.child_by_field_name("function")
            if called is None or not given:
                continue
            text = function.text(given[0])
            if name in _PARSES and re.fullmatch(rf"(?:std\s*::\s*)?{name}", function.text(called)):
                if one.origins.decided(function, text) and not _is_validated(function, node, text):
                    yield _told(one, function, node, "parse", f"std::{name}")
            elif name == "substr" and called.type == "field_expression" and function.text(given[0]) != "0":
                yield from _substr(one, function, node, called, text)
            elif name == "at" and called.type == "field_expression" and len(given) == 1:
                yield from _at(one, function, node, called, text)


def _at(one: Look, function: Function, node: Node, called: Node, index: str) -> Iterator[CodeDefect]:
    held = called.child_by_field_name("argument")
    type_ = type_of(one.unit, function, held) if held is not None else None
    if held is None or type_ is None or type_.last not in _CONTAINERS or type_.pointers > 1:
        return
    if not one.origins.decided(function, index) or _is_validated(function, node, index) or callers_ask(one, function):
        return
    container = function.text(held)
    if _is_made_of(function, index, container):
        return
    text = function.text(outermost(function).body)
    if type_.last in _KEYED and re.search(rf"{re.escape(container)}\s*(?:\.|->)\s*(?:find|count|contains)\s*\(", text):
        return
    yield _told(one, function, node, "key" if type_.last in _KEYED else "index", f"{container}.at({index})")


def _substr(one: Look, function: Function, node: Node, called: Node, start: str) -> Iterator[CodeDefect]:
    """``text.substr(start)`` of a string that may be shorter than ``start``."""
    held = called.child_by_field_name("argument")
    type_ = type_of(one.unit, function, held) if held is not None else None
    if held is None or type_ is None or type_.last not in {"string", "string_view"} or type_.pointers:
        return
    text = function.text(held)
    if not one.origins.decided(function, start) or _is_made_of(function, start, text) or callers_ask(one, function):
        return
    names = words(start) - _COMMON
    if any(is_asked(function, node, each, loops=False) for each in names) or re.search(
        rf"\b{re.escape(text)}\s*\.\s*find", function.text(function.body)
    ):
        return
    yield _told(one, function, node, "start", f"{text}.substr({start})")


def _is_made_of(function: Function, index: str, container: str) -> bool:
    """The index is computed from the container's own size."""
    made = {each.name: each for each in locals_of(function)}
    texts, waiting = [index], list(words(index))
    for name in waiting:
        value = made[name].value if name in made else None
        if value is not None:
            texts.append(function.text(value))
            waiting += [each for each in words(texts[-1]) if each not in waiting]
    return any(re.search(rf"\b{re.escape(container)}\s*(?:\.|->)\s*(?:size|length)\b", each) for each in texts)


def _is_validated(function: Function, node: Node, text: str) -> bool:
    """A condition before it asks for something in it, or is written about its characters."""
    from_text = [each for each in words(text) if each not in _COMMON]
    if any(is_asked(function, node, each) for each in from_text) or is_asked(function, node, text):
        return any(
            at < node.start_byte and words(asked) & set(from_text) and not _is_throwing(asked)
            for at, asked in asked_in(outermost(function))
            if not _only_below(asked, text)
        )
    return (
        re.search(
            r"\bis(?:digit|alnum)\b|find_first_not_of|regex|SimpleAtoi|safe_strto",
            function.text(outermost(function).body),
        )
        is not None
    )


def callers_ask(one: Look, function: Function, about: frozenset[str] = frozenset(), depth: int = 0) -> bool:
    """Each caller of a helper has a condition on something that it passes, or its own callers have.

    Of what it passes for the parameters in ``about``, where some of these are parameters.
    """
    callers = one.calls.callers(function)
    wanted = about & {each.name for each in function.parameters}
    callers_with = [(call, _passed(function, call, wanted)) for call in callers]
    return bool(callers) and all(
        any(is_asked(call.caller, call.node, name, loops=False) for name in names)
        or (depth < _DEEPEST and call.caller is not function and callers_ask(one, call.caller, names, depth + 1))
        for call, names in callers_with
    )


def _passed(function: Function, call: Call, wanted: frozenset[str]) -> frozenset[str]:
    """The names in what a call passes for some parameters; for all, where none is wanted."""
    texts = [
        text for text, each in zip(call.texts, function.parameters, strict=False) if not wanted or each.name in wanted
    ]
    return frozenset(name for text in texts for name in words(text)) - _COMMON


def _is_throwing(text: str) -> bool:
    return "throw" in text


def _only_below(asked: str, text: str) -> bool:
    """``id < 0`` with a throw behind it says nothing of the other end."""
    pattern = rf"{re.escape(plain(text))}(?:<0|<=-1)"
    return re.fullmatch(pattern, plain(asked)) is not None


def _in_try(node: Node) -> bool:
    at = node.parent
    below = node
    while at is not None and at.type not in {"function_definition", "lambda_expression"}:
        if at.type == "try_statement" and below == at.child_by_field_name("body"):
            return True
        below, at = at, at.parent
    return False


def _is_caught(one: Look, function: Function, seen: frozenset[int]) -> bool:
    """Whether every call of the function is in a ``try`` block; TensorFlow calls a kernel's functions outside one."""
    if id(function) in seen:
        return True
    kernel = one.calls.kernel_of(function)
    if kernel is not None and function in {kernel.compute, kernel.constructor}:
        return False
    callers = one.calls.callers(function)
    if function.outer is not None:
        if _in_try(function.node) or _is_given_away(one, function, function.outer):
            return True
        return _is_caught(one, function.outer, seen | {id(function)})
    if not callers:
        return True  # who calls it is not known
    return all(_in_try(call.node) or _is_caught(one, call.caller, seen | {id(function)}) for call in callers)


def _is_given_away(one: Look, function: Function, outer: Function) -> bool:
    """The lambda is an argument of a function that is not known, or that has a ``try`` in it."""
    for call in one.calls.calls(outer):
        if function.node not in call.arguments and (
            not function.name or function.name not in words(" ".join(call.texts))
        ):
            continue
        targets = one.calls.targets(call)
        if call.name not in _RUNNERS and (not targets or any("try" in words(each.text(each.body)) for each in targets)):
            return True
    return False


def _told(one: Look, function: Function, node: Node, case: str, what: str) -> CodeDefect:
    return one.defect(
        "op-exception",
        case,
        function.file.place(node),
        "throw" if case == "throw" else "call",
        function=function,
        names={"what": " ".join(what.split())[:100], "in": shown(function)},
        facts=tuple(_callers(one, function)),
        severity="warning",
        confidence="likely",
    )
