"""The text of a Python file with its syntax tree, and edits of the text by places of the tree."""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
import warnings
from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\r|\n")


Placed = ast.expr | ast.stmt | ast.excepthandler | ast.pattern | ast.keyword | ast.arg | ast.alias
"""Nodes that know their place."""


class Edit(NamedTuple):
    """The bytes from ``start`` to ``end`` become ``text``. Offsets count bytes of the text in UTF-8."""

    start: int
    end: int
    text: bytes = b""


class Source:
    """A Python file. Positions are offsets in ``text``, which is in UTF-8 whatever the file's encoding is.

    Raises:
        SyntaxError: it is no Python, or none that this interpreter understands.

    """

    def __init__(self, data: bytes) -> None:
        self.encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        self._mark = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
        if self._mark:
            self.encoding = "utf-8"
            data = data[len(self._mark) :]
        try:
            text = data.decode(self.encoding)
            self.text = text.encode()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # such as invalid escapes: the program's own business
                self.tree = ast.parse(text)
        except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes, bad encodings, deep nesting
            raise SyntaxError(str(error)) from error
        self._starts = [0, *(found.end() for found in _LINE_END.finditer(self.text))]

    def offset(self, line: int, column: int) -> int:
        """The offset of a place of the tree: ``line`` from 1, ``column`` in bytes."""
        return self._starts[line - 1] + column

    def start(self, node: Placed) -> int:
        """Where a node begins; a decorated one with its first decorator's ``@``."""
        decorators: list[ast.expr] = getattr(node, "decorator_list", [])
        if decorators:
            return self.text.rindex(b"@", 0, self.offset(decorators[0].lineno, decorators[0].col_offset))
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: Placed) -> int:
        """Where a node ends."""
        if node.end_lineno is None or node.end_col_offset is None:
            raise ValueError("a node that was not parsed")
        return self.offset(node.end_lineno, node.end_col_offset)

    def segment(self, node: Placed) -> bytes:
        """The text of a node."""
        return self.text[self.start(node) : self.end(node)]

    def line_start(self, offset: int) -> int:
        """Where the line of an offset begins."""
        at = max(self.text.rfind(b"\n", 0, offset), self.text.rfind(b"\r", 0, offset))
        return at + 1

    def line_end(self, offset: int) -> int:
        """Where the line of an offset ends, behind its line end."""
        found = _LINE_END.search(self.text, offset)
        return found.end() if found else len(self.text)

    @cached_property
    def eol(self) -> bytes:
        """The line end of the file: that of its first line."""
        found = _LINE_END.search(self.text)
        return found.group() if found else b"\n"

    def edited(self, edits: Iterable[Edit]) -> bytes:
        """The file after some edits, in its own encoding. An edit within another one has no effect.

        Raises UnicodeEncodeError where the encoding of the file has no such characters.
        """
        pieces: list[bytes] = []
        at = 0
        for edit in sorted(edits, key=lambda one: (one.start, -one.end)):
            if edit.start < at or (edit.start == at and edit.end == at and pieces and not edit.text):
                if edit.end > at and not edit.text:  # two removals that overlap
                    at = edit.end
                continue
            pieces += [self.text[at : edit.start], edit.text]
            at = edit.end
        pieces.append(self.text[at:])
        return self._mark + b"".join(pieces).decode().encode(self.encoding)


def source_of(data: bytes) -> Source | None:
    """The source, or None where it cannot be parsed."""
    try:
        return Source(data)
    except SyntaxError:
        return None


def compiles(data: bytes) -> bool:
    """The contents are a valid Python file."""
    try:
        source = Source(data)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Further than parsing: `return` outside a function, `nonlocal x` without an x.
            compile(source.tree, "<candidate>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
