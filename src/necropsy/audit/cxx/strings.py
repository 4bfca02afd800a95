"""sprintf, strcpy and strcat into an array of fixed size: each conversion is bounded by what it writes at most."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from necropsy.audit.cxx.conditions import arguments_of, callee, is_asked, words
from necropsy.audit.cxx.declarators import locals_of, walk
from necropsy.audit.cxx.expression_types import type_of, variable
from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Function
from necropsy.audit.cxx.sizes import Sizes
from necropsy.audit.cxx.types import Type
from necropsy.model import CodeDefect, CodeFact

if TYPE_CHECKING:
    from tree_sitter import Node

_CONVERSION = re.compile(
    r"%(?P<flags>[-+ #0]*)(?P<width>\d+|\*)?(?:\.(?P<precision>\d+|\*))?(?P<length>hh|h|ll|l|z|j|t|L|q)?"
    r"(?P<what>[diouxXcsfFeEgGaAp%n])"
)
_DECIMAL = {"hh": 4, "h": 6, "": 11}
_HEX = {"hh": 2, "h": 4, "": 8}
_OCTAL = {"hh": 3, "h": 6, "": 11}
_LONG = 20
_STRING_TYPES = frozenset({"string", "tstring"})
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]+|[0-7]{1,3}|.)")
_INTTYPES = re.compile(r"\bPRI([diouxX])(?:LEAST|FAST)?(8|16|32|64|MAX|PTR)\b")
_LENGTHS = {"8": "hh", "16": "h", "64": "l", "MAX": "j", "PTR": "l"}
_COPIES = frozenset({"strcpy", "stpcpy", "strcat"})
_SPRINTF = frozenset({"sprintf", "vsprintf"})


@dataclass(frozen=True)
class _Most:
    """How many characters are written at least and at most; None: as many as the data has, named in ``unbounded``."""

    least: int
    most: int | None
    unbounded: str = ""


def look(one: Look) -> Iterator[CodeDefect]:
    """A finding for each call that may write past the end."""
    for function in one.unit.functions:
        with one.of(function):
            yield from _in(one, function)


def _in(one: Look, function: Function) -> Iterator[CodeDefect]:
    held: dict[str, int] = {}
    told: set[str] = set()
    for node in walk(function.body, into_scopes=False):
        if node.type != "call_expression":
            continue
        name, given = callee(function.file, node), arguments_of(node)
        if name not in _COPIES | _SPRINTF or len(given) < 2:
            continue
        target = re.sub(r"^&?(\w+)(?:\[0\])?$", r"\1", function.text(given[0]))
        size = _size(one, function, target)
        if size is None or target in told:
            continue
        written = _sprintf(one, function, given[1:], node) if name in _SPRINTF else _text(one, function, given[1], node)
        if written is None:
            held.pop(target, None)
            continue
        before = held.get(target, 0) if name == "strcat" else 0
        least = before + written.least
        if written.most is not None:
            held[target] = before + written.most
        if (written.most is not None and before + written.most + 1 <= size) or (
            written.most is None and not written.unbounded
        ):
            continue
        told.add(target)
        yield one.defect(
            "op-string-overflow",
            "fixed" if least + 1 > size else "number" if written.most is not None else "data",
            function.file.place(node),
            "call",
            function=function,
            names={"call": name, "buffer": target, "text": written.unbounded},
            numbers={"size": size, "least": least + 1}
            | ({"most": before + written.most + 1} if written.most is not None else {}),
            facts=(
                CodeFact(
                    claim="the buffer",
                    seen=f"{target}: {size} bytes",
                    where=f"{function.file.path}:{_line(function, target)}",
                ),
            ),
            severity="error"
            if least + 1 > size or (written.most is None and one.origins.decided(function, written.unbounded))
            else "warning",
            confidence="certain" if least + 1 > size else "likely",
        )


def _line(function: Function, name: str) -> int:
    return next((each.place.line for each in locals_of(function) if each.name == name), function.place.line)


def _size(one: Look, function: Function, name: str) -> int | None:
    """The size of an array of characters; None where it is something else."""
    type_ = variable(one.unit, function, name) if re.fullmatch(r"\w+", name) else None
    if type_ is None or type_.last not in {"char", "unsigned char"} or len(type_.extents) != 1 or type_.pointers:
        return None
    if any(each.name == name for each in function.parameters):
        return None
    return Sizes(one.unit, scope=function.qualified).bytes(type_)


def _literal(text: str) -> str | None:
    text = _INTTYPES.sub(lambda found: f'"{_LENGTHS.get(found[2], "")}{found[1]}"', text)
    parts = re.findall(r'(?:u8|L)?"((?:\\.|[^"\\])*)"', text)
    rest = re.sub(r'(?:u8|L)?"(?:\\.|[^"\\])*"', "", text)
    return _ESCAPE.sub("?", "".join(parts)) if parts and not rest.strip() else None


def _text(one: Look, function: Function, node: Node, at: Node) -> _Most | None:
    """How long the string is that an expression gives; None where nothing is known of it."""
    text = function.text(node).strip()
    known = _literal(text)
    if known is not None:
        return _Most(len(known), len(known))
    if node.type == "conditional_expression":
        parts = [node.child_by_field_name(one_) for one_ in ("consequence", "alternative")]
        both = [_text(one, function, each, at) for each in parts if each is not None]
        if len(both) == 2 and all(each is not None for each in both):
            kept = [each for each in both if each is not None]
            if all(each.most is not None for each in kept):
                return _Most(min(each.least for each in kept), max(each.most or 0 for each in kept))
        return None
    if node.type == "call_expression":
        return _of_string(one, function, node, at)
    type_ = type_of(one.unit, function, node)
    if type_ is not None and type_.last == "char" and len(type_.extents) == 1:
        size = Sizes(one.unit, scope=function.qualified).bytes(type_)
        return _Most(0, size - 1) if size else None
    return None


def _of_string(one: Look, function: Function, node: Node, at: Node) -> _Most | None:
    """``name.c_str()`` of a string whose length the caller decides, unless a condition asks for it."""
    called = node.child_by_field_name("function")
    if called is None or called.type != "field_expression":
        return None
    method, held = called.child_by_field_name("field"), called.child_by_field_name("argument")
    if method is None or held is None or function.text(method) not in {"c_str", "data"}:
        return None
    name = function.text(held)
    type_ = type_of(one.unit, function, held)
    is_string = type_ is not None and type_.last in _STRING_TYPES and not type_.pointers
    if not is_string and function.text(method) != "c_str" and "tstring>" not in name.replace(" ", ""):
        return None
    if not one.origins.decided(function, name) and not _is_input(one, function, name):
        return None
    if any(
        is_asked(function, at, f"{each}{size}")
        for each in (name, *sorted(words(name)))
        for size in (".size()", ".length()", "->size()")
    ):
        return None
    return _Most(0, None, name)


def _is_input(one: Look, function: Function, name: str) -> bool:
    """It is a parameter of a helper below a kernel."""
    return one.calls.kernel_of(function) is not None and any(
        each.name == name and each.type.last in _STRING_TYPES for each in function.parameters
    )


def _sprintf(one: Look, function: Function, given: list[Node], at: Node) -> _Most | None:
    written = _literal(function.text(given[0]))
    if written is None:
        return None
    least = most = 0
    last, number, unbounded, is_known = 0, 1, "", True
    for found in _CONVERSION.finditer(written):
        least, most = least + found.start() - last, most + found.start() - last
        last = found.end()
        what, width, precision = found["what"], found["width"], found["precision"]
        if what == "%":
            least, most = least + 1, most + 1
            continue
        if "*" in {width, precision}:
            return None
        node = given[number] if number < len(given) else None
        number += 1
        wide = int(width or 0)
        if what == "s":
            part = _text(one, function, node, at) if node is not None else None
            if part is None:
                is_known = False
                least += wide
                continue
            if precision is not None:
                part = _Most(
                    min(part.least, int(precision)),
                    int(precision) if part.most is None else min(part.most, int(precision)),
                )
            least += max(wide, part.least)
            most += max(wide, part.most or 0)
            unbounded = unbounded or part.unbounded
            continue
        least += max(wide, 1)
        most += max(wide, _width(found, _type(one, function, node), int(precision) if precision is not None else None))
        if node is not None and not _is_free(one, function, node, at):
            is_known = False
    rest = len(written) - last
    if unbounded or not is_known:
        return _Most(least + rest, None, unbounded)
    return _Most(least + rest, most + rest)


def _type(one: Look, function: Function, node: Node | None) -> Type | None:
    return type_of(one.unit, function, node) if node is not None else None


def _is_free(one: Look, function: Function, node: Node, at: Node) -> bool:
    """The caller decides the number, and no condition asks for it."""
    text = function.text(node)
    return one.origins.decided(function, text) and not any(
        is_asked(function, at, each, loops=False) for each in words(text)
    )


def _width(found: re.Match[str], type_: Type | None, precision: int | None) -> int:
    """What a conversion of a number writes at most."""
    what, length = found["what"], found["length"] or ""
    if what == "c":
        return 1
    if what == "p":
        return 18
    if what in "di":
        return max(_DECIMAL.get(length, _LONG), (precision or 0) + 1)
    if what == "u":
        return max(_DECIMAL.get(length, _LONG + 1) - 1, precision or 0)
    if what in "xX":
        return _HEX.get(length, 16) + 2 * ("#" in found["flags"])
    if what == "o":
        return _OCTAL.get(length, 22) + 1
    digits = 6 if precision is None else precision
    if what in "fF":
        whole = 40 if type_ is not None and type_.name == "float" else 4933 if length == "L" else 310
        return whole + 1 + digits
    return digits + 10 if what in "eEgG" else 30
