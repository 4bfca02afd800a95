"""The conditions that are decided before a place in a function is reached, or around it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from necropsy.audit.cxx.declarators import walk
from necropsy.audit.cxx.model import Function, SourceFile
from necropsy.audit.cxx.sizes import Sizes

if TYPE_CHECKING:
    from tree_sitter import Node

REQUIRES = re.compile(r"OP_REQUIRES(?:_ASYNC|_VALUE)?|(?:D|Q)?CHECK(?:_[A-Z]{2})?|assert|RET_CHECK")
"""Macros and functions whose condition holds behind them."""
RETURNS_ERROR = re.compile(
    r"(?:OP_REQUIRES_OK\w*|OP_REQUIRES_VALUE|TF_RETURN_\w+|RETURN_IF_ERROR|TF_ASSIGN_OR_RETURN|ASSIGN_OR_RETURN|TF_CHECK_OK|CHECK_OK)"
)
"""Macros that return where the status in them is not OK."""
_COMPARED = {"EQ": "==", "NE": "!=", "LT": "<", "LE": "<=", "GT": ">", "GE": ">="}
_NOT = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "==": "==", "!=": "!="}
_FILLS = re.compile(
    r"\b(?:allocate_\w+|forward_input\w*|GetAttr|input|input_list|mutable_output)\s*(?:<[^>]*>)?\s*\(\s*[\"\w]"
)
"""Calls that fill something, and check nothing that they are given."""
_LEAVING = frozenset({"return_statement", "throw_statement", "continue_statement", "break_statement", "goto_statement"})
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Compared:
    """A comparison that holds: ``left < right``, without blanks."""

    left: str
    sign: str
    right: str


def words(text: str) -> frozenset[str]:
    """All identifiers in a piece of code."""
    return frozenset(_WORD.findall(text))


def plain(text: str) -> str:
    """Without blanks."""
    return re.sub(r"\s+", "", text)


def callee(file: SourceFile, node: Node) -> str:
    """The last name of what a call calls; empty where it has none."""
    called = node.child_by_field_name("function")
    found = re.search(r"([A-Za-z_]\w*)\s*(?:<[^()]*>)?\s*$", file.text_of(called)) if called is not None else None
    return found[1] if found is not None else ""


def arguments_of(node: Node) -> list[Node]:
    """The arguments of a call."""
    held = node.child_by_field_name("arguments")
    return [one for one in held.named_children if one.type != "comment"] if held is not None else []


def statement_of(node: Node) -> Node:
    """The statement directly in a block that the node is in."""
    at = node
    while at.parent is not None and at.parent.type not in {
        "compound_statement",
        "case_statement",
        "function_definition",
    }:
        at = at.parent
    return at


def leaves(statement: Node | None) -> bool:
    """The last thing that it does is to leave the function or the round of the loop."""
    at = statement
    while at is not None and at.type == "compound_statement":
        at = next((one for one in reversed(at.named_children) if one.type != "comment"), None)
    return at is not None and at.type in _LEAVING


def condition(node: Node) -> Node | None:
    """The expression that an ``if`` or a loop decides by."""
    held = node.child_by_field_name("condition")
    if held is not None and held.type == "condition_clause":
        held = held.child_by_field_name("value")
    return held


def known_at(function: Function, node: Node) -> list[Compared]:
    """The comparisons that hold where the node is reached."""
    file, at = function.file, node
    found: list[Compared] = []
    while at.parent is not None and at.type != "function_definition":
        above = at.parent
        if above.type in {"compound_statement", "case_statement"}:
            for one in above.named_children:
                if one.start_byte >= at.start_byte:
                    break
                found += _left_behind(file, one)
        elif above.type in {"if_statement", "conditional_expression", "while_statement", "for_statement"}:
            asked = condition(above)
            if asked is not None and at != asked and at.start_byte > asked.start_byte:
                otherwise = above.child_by_field_name("alternative")
                found += _compared(file, asked, holds=at != otherwise)
        elif above.type == "binary_expression" and at == above.child_by_field_name("right"):
            left, sign = above.child_by_field_name("left"), above.child_by_field_name("operator")
            if left is not None and sign is not None and file.text_of(sign) in {"&&", "||"}:
                found += _compared(file, left, holds=file.text_of(sign) == "&&")
        at = above
    return found


def _left_behind(file: SourceFile, statement: Node) -> Iterator[Compared]:
    """What holds behind a statement because it leaves otherwise."""
    if statement.type == "if_statement":
        asked = condition(statement)
        if asked is not None and leaves(statement.child_by_field_name("consequence")):
            yield from _compared(file, asked, holds=False)
        return
    call = (
        statement.named_children[0] if statement.type == "expression_statement" and statement.named_children else None
    )
    while call is not None and call.type == "binary_expression":  # CHECK(...) << ...
        call = call.child_by_field_name("left")
    if call is None or call.type != "call_expression":
        return
    name, given = callee(file, call), arguments_of(call)
    if not REQUIRES.fullmatch(name):
        return
    if name[-3:-2] == "_" and name[-2:] in _COMPARED and len(given) > 1:
        yield from _pair(plain(file.text_of(given[0])), _COMPARED[name[-2:]], plain(file.text_of(given[1])))
    elif given:
        asked = given[1] if name.startswith("OP_REQUIRES") and len(given) > 1 else given[0]
        yield from _compared(file, asked, holds=True)


def _pair(left: str, sign: str, right: str) -> Iterator[Compared]:
    yield Compared(left, sign, right)
    yield Compared(right, _TURNED[sign], left)


def _compared(file: SourceFile, node: Node, *, holds: bool) -> Iterator[Compared]:
    waiting = [(node, holds)]
    while waiting:
        one, true = waiting.pop()
        if one.type == "parenthesized_expression" and one.named_child_count == 1:
            waiting.append((one.named_children[0], true))
        elif one.type == "unary_expression" and file.text_of(one).startswith("!"):
            waiting.append((one.named_children[0], not true))
        elif one.type == "binary_expression":
            left, right = one.child_by_field_name("left"), one.child_by_field_name("right")
            sign = one.child_by_field_name("operator")
            text = file.text_of(sign) if sign is not None else ""
            if left is None or right is None:
                continue
            if text == ("&&" if true else "||"):
                waiting += [(left, true), (right, true)]
            elif text in _NOT:
                yield from _pair(plain(file.text_of(left)), text if true else _NOT[text], plain(file.text_of(right)))


_DECIDING = frozenset({"if_statement", "conditional_expression", "switch_statement"})
_LOOPS = frozenset({"while_statement", "for_statement", "do_statement"})


@lru_cache(maxsize=256)
def asked_in(function: Function, *, loops: bool = True) -> tuple[tuple[int, str], ...]:
    """All conditions in a function and its lambdas as text, with where each begins; calls that check count too."""
    file, found = function.file, []
    kinds = _DECIDING | _LOOPS if loops else _DECIDING
    for node in walk(function.body):
        if node.type in kinds:
            asked = condition(node)
            if asked is not None:
                found.append((asked.start_byte, file.text_of(asked)))
        elif node.type == "call_expression":
            name = callee(file, node)
            text = file.text_of(node)
            if REQUIRES.fullmatch(name) or (RETURNS_ERROR.fullmatch(name) and not _FILLS.search(text)):
                found.append((node.start_byte, text))
    return tuple(found)


def outermost(function: Function) -> Function:
    """The function around a lambda."""
    at = function
    while at.outer is not None:
        at = at.outer
    return at


def is_asked(function: Function, node: Node, text: str, *, loops: bool = True) -> bool:
    """A condition before the node, or around it, has the same text in it: a name, or ``text.size()``."""
    wanted = plain(text)
    pattern = re.compile(rf"(?<![\w.>]){re.escape(wanted)}(?!\w)")
    return any(
        at < node.start_byte and pattern.search(plain(one)) is not None
        for at, one in asked_in(outermost(function), loops=loops)
    )


def most(
    function: Function, node: Node, text: str, sizes: Sizes, is_free: Callable[[str], bool]
) -> tuple[bool, int | None]:
    """Whether something limits the expression from above where the node is reached; to what, if that is constant.

    A limit that ``is_free`` says that the caller decides is none.
    """
    wanted = plain(text)
    capped = re.match(r"(?:std::)?min(?:<[^>]*>)?\((.*)\)$", wanted)
    if capped is not None:
        known = [sizes.value(one) for one in capped[1].split(",")]
        return True, min((one for one in known if one is not None), default=None)
    limited, limit = False, None
    for one in known_at(function, node):
        if one.left != wanted or one.sign not in {"<", "<=", "=="}:
            continue
        value = sizes.value(one.right)
        if value is None and is_free(one.right):
            continue
        limited = True
        if value is not None:
            value -= one.sign == "<"
            limit = value if limit is None else min(limit, value)
    return limited, limit
