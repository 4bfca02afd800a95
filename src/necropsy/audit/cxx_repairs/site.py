"""Where a defect is: its node and function, what is in scope there, and how to change the text around it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from necropsy.audit.cxx.conditions import plain
from necropsy.audit.cxx.declarators import walk
from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Function, SourceFile
from necropsy.audit.cxx_repairs.edits import Edit
from necropsy.model import CodeDefect

if TYPE_CHECKING:
    from tree_sitter import Node

_CONTEXTS = frozenset({"OpKernelContext", "OpKernelConstruction"})
_BLOCKS = frozenset({"compound_statement", "case_statement"})
_BODIES = frozenset(
    {"if_statement", "else_clause", "for_statement", "for_range_loop", "while_statement", "do_statement"}
)
_WIDTH = 100
_USING = re.compile(rb"\busing\s+namespace\s+(?:::)?tensorflow\s*;")


class NoRepairError(Exception):
    """It cannot be done here: the text lies in a macro, or something that is needed is not in scope."""


@dataclass(frozen=True, eq=False)
class Site:
    """A place in a function of a unit."""

    look: Look
    function: Function
    node: Node

    @property
    def file(self) -> SourceFile:
        """The file that it is in."""
        return self.function.file

    def at(self, node: Node) -> Site:
        """Another place in the same function."""
        return Site(self.look, self.function, node)

    def text(self, node: Node) -> str:
        """The preprocessed text, a character for each byte."""
        return self.file.text[node.start_byte : node.end_byte].decode("latin-1")

    def enclosing(self, *types: str) -> Node | None:
        """The nearest node of one of these types: this one, or one around it in the function."""
        at: Node | None = self.node
        while at is not None and at.start_byte >= self.function.node.start_byte:
            if at.type in types:
                return at
            if at == self.function.node:
                return None
            at = at.parent
        return None

    @cached_property
    def statement(self) -> Node:
        """The innermost statement that it is in: one of a block, or the body of an ``if`` or a loop without braces."""
        at = self.node
        while at.parent is not None and at.parent.type not in _BLOCKS:
            if at.parent.type in _BODIES and _is_body(at.parent, at):
                break
            at = at.parent
        if at.type == "compound_statement" and at.named_children:
            at = next((one for one in at.named_children if one.type != "comment"), at)
        return at

    # Text

    @cached_property
    def eol(self) -> str:
        """The line end of the file."""
        first = self.file.original.find(b"\n")
        return "\r\n" if first > 0 and self.file.original[first - 1 : first] == b"\r" else "\n"

    def indent(self, offset: int) -> str:
        """The blanks at the beginning of the line that has this offset of the original."""
        begin = self.file.original.rfind(b"\n", 0, offset) + 1
        match = re.match(rb"[ \t]*", self.file.original[begin:])
        return match[0].decode("latin-1") if match is not None else ""

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Map offsets in ``text`` to the original; raises ``NoRepairError`` if a macro wrote one or all of it."""
        for one in self.file.spans:
            is_cut = one.start < start < one.end or one.start < end < one.end
            if is_cut or (start < end and one.start <= start and end <= one.end):
                raise NoRepairError("in a macro")
        first = self.file.source_offset(start)
        return first, self.file.source_offset(end, is_end=True) if end > start else first

    def replace(self, node: Node, text: str) -> Edit:
        """Another text for a node."""
        return self.exchange(node.start_byte, node.end_byte, text)

    def exchange(self, start: int, end: int, text: str) -> Edit:
        """As ``replace``, for offsets in the preprocessed text."""
        first, last = self.span(start, end)
        return Edit(self.file.path, first, last, self._bytes(text))

    def insert(self, offset: int, text: str) -> Edit:
        """At an offset of the preprocessed text."""
        return self.exchange(offset, offset, text)

    def original(self, node: Node) -> str:
        """The text as it stands in the file: with comments, and with macros by their names."""
        return self.source(node.start_byte, node.end_byte)

    def macro_call(self, node: Node) -> str:
        """As ``original``; where a macro wrote all of the node, its call."""
        place = self.file.place(node)
        return self.file.original[place.start : place.end].decode("latin-1")

    def source(self, start: int, end: int) -> str:
        """As ``original``, for offsets in the preprocessed text."""
        first, last = self.span(start, end)
        return self.file.original[first:last].decode("latin-1")

    def before(self, statement: Node, lines: list[str]) -> list[Edit]:
        """Lines in front of a statement; braces where it is the body of an ``if`` or a loop."""
        at = self.insert(statement.start_byte, "")
        indent = self.indent(at.start)
        lines = [_wrapped(one, indent, self.eol) for one in lines]
        if statement.parent is not None and statement.parent.type in _BLOCKS:
            return [self.insert(statement.start_byte, "".join(f"{one}{self.eol}{indent}" for one in lines))]
        inner = indent + "  "
        head = "{" + self.eol + "".join(f"{inner}{one}{self.eol}" for one in lines) + inner
        return [
            self.insert(statement.start_byte, head),
            self.after_text(statement, f"{self.eol}{indent}}}"),
        ]

    def after(self, statement: Node, lines: list[str]) -> Edit:
        """Lines behind a statement of a block."""
        if statement.parent is None or statement.parent.type not in _BLOCKS:
            raise NoRepairError("not in a block")
        indent = self.indent(self.insert(statement.start_byte, "").start)
        return self.after_text(statement, "".join(f"{self.eol}{indent}{one}" for one in lines))

    def after_text(self, node: Node, text: str) -> Edit:
        """Text directly behind a node, and behind a comment that ends its line."""
        last = self.span(node.start_byte, node.end_byte)[1]
        if text.startswith(self.eol):
            rest = re.match(rb"[ \t]*//[^\r\n]*", self.file.original[last:])
            last += rest.end() if rest is not None else 0
        return Edit(self.file.path, last, last, self._bytes(text))

    def _bytes(self, text: str) -> bytes:
        return text.replace("\r\n", "\n").replace("\n", self.eol).encode("latin-1")

    # Scope

    @cached_property
    def around(self) -> list[Function]:
        """The function, and for a lambda those around it."""
        found = [self.function]
        while found[-1].outer is not None:
            found.append(found[-1].outer)
        return found

    @cached_property
    def context(self) -> str | None:
        """The name of the op's context, where it is a parameter of this function; a lambda has none of its own."""
        return next((one.name for one in self.function.parameters if one.type.last in _CONTEXTS and one.name), None)

    @cached_property
    def done(self) -> str | None:
        """The callback of ComputeAsync."""
        return next((one.name for one in self.function.parameters if one.type.last == "DoneCallback"), None)

    @property
    def is_void(self) -> bool:
        """``return;`` leaves it."""
        returns = self.function.returns
        return self.function.is_constructor or (returns is not None and returns.last == "void" and not returns.pointers)

    @cached_property
    def errors(self) -> str:
        """How the namespace of TensorFlow's errors is written here."""
        return f"{self.tensorflow}errors::"

    @cached_property
    def tensorflow(self) -> str:
        """What has to stand before TensorFlow's own names here: nothing, or ``tensorflow::``."""
        is_used = any(_USING.search(one.text) for one in self.look.unit.files)
        return "" if is_used or self.function.qualified.startswith("tensorflow::") else "tensorflow::"

    def requires(self, condition: str, message: str) -> str:
        """``OP_REQUIRES(...)``, ``message`` in C++; raises ``NoRepairError`` without a context or a void result."""
        if self.context is None or not self.is_void:
            raise NoRepairError("no context")
        error = f"{self.errors}InvalidArgument({message})"
        if self.done is not None:
            return f"OP_REQUIRES_ASYNC({self.context}, {condition}, {error}, {self.done});"
        return f"OP_REQUIRES({self.context}, {condition}, {error});"

    def is_asked(self, condition: str) -> bool:
        """The same check stands in the function already."""
        return plain(condition) in plain(self.text(self.function.body))


def _wrapped(line: str, indent: str, eol: str) -> str:
    """Put the error of a long ``OP_REQUIRES`` on its own line."""
    head = line.partition("(")[0]
    match = re.search(r", (?=(?:tensorflow::)?errors::)", line)
    if len(indent) + len(line) <= _WIDTH or not head.startswith("OP_REQUIRES") or match is None:
        return line
    return f"{line[: match.start()]},{eol}{indent}{' ' * (len(head) + 1)}{line[match.end() :]}"


def _is_body(parent: Node, node: Node) -> bool:
    names = ("body", "consequence", "alternative")
    if parent.type == "else_clause":
        return True
    return node.type != "else_clause" and any(parent.child_by_field_name(one) == node for one in names)


def site_of(look: Look, defect: CodeDefect) -> Site | None:
    """The innermost node at the defect's place; None where it is in no function."""
    file = next((one for one in look.unit.files if one.path == defect.place.path), None)
    if file is None:
        return None
    offset = _offset(file, defect.place.line, defect.place.column)
    if offset is None:
        return None
    node = file.tree.root_node.named_descendant_for_byte_range(offset, offset + 1)
    if node is None:
        return None
    around = [
        one for one in look.unit.functions if one.file is file and one.node.start_byte <= offset < one.node.end_byte
    ]
    if not around:
        return None
    return Site(look, min(around, key=lambda one: one.node.end_byte - one.node.start_byte), node)


def _offset(file: SourceFile, line: int, column: int) -> int | None:
    """The offset in ``text`` of a place in the original, which has the same lines."""
    begin = 0
    for _ in range(line - 1):
        begin = file.text.find(b"\n", begin) + 1
        if begin == 0:
            return None
    end = file.text.find(b"\n", begin)
    for offset in range(begin, len(file.text) if end < 0 else end):
        place = file.place_of(offset, offset + 1)
        if (place.line, place.column) == (line, column):
            return offset
    return None


def uses(site: Site, name: str) -> list[Node]:
    """All identifiers with this name in the outermost function around the place."""
    body = site.around[-1].body
    return [
        node
        for node in walk(body)
        if node.type in {"identifier", "field_identifier", "type_identifier"} and site.text(node) == name
    ]


def literal(text: str) -> str:
    """A C++ string literal of one line."""
    plain_text = " ".join(text.split())
    return '"' + plain_text.replace("\\", "\\\\").replace('"', '\\"') + '"'
