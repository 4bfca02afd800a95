"""JUnit files: what each failed test printed, one text a test.

Read as a stream, in bounded memory. Entities are not expanded: a few lines of them can grow to gigabytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO
from xml.parsers import expat

import msgspec

from necropsy.errors import InputError

MOST_TEXT = 4 << 20
"""Bytes of a test's output that are kept: as many from its beginning as from its end."""
MOST_TESTS = 10_000
_PIECE = 1 << 18
_OUTPUT = frozenset({"failure", "error", "system-out", "system-err", "rerunFailure", "flakyFailure"})
_FAILED = frozenset({"failure", "error"})


class FailedTest(msgspec.Struct, frozen=True, gc=False):
    """``name`` with its class, ``text`` all that the file has of its output."""

    name: str
    text: str


class FailedTests:
    """The failed tests of a JUnit file; text outside all tests is one more, without a name.

    ``more``, at the end: failed tests beyond ``MOST_TESTS``, which are counted only.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.more = 0

    def __iter__(self) -> Iterator[FailedTest]:
        """Read them, once.

        Raises ``InputError`` where the file is not XML, or ends early.
        """
        reading = _Reading()
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = reading.start
        parser.EndElementHandler = reading.end
        parser.CharacterDataHandler = reading.text
        parser.EntityDeclHandler = _refuse
        count = 0
        try:
            while True:
                piece = self._stream.read(_PIECE)
                parser.Parse(piece, not piece)
                for one in reading.found:
                    count += 1
                    if count <= MOST_TESTS:
                        yield one
                reading.found.clear()
                if not piece:
                    break
        except expat.ExpatError as error:
            raise InputError(f"it is not well-formed XML: {error}") from None
        self.more = max(0, count - MOST_TESTS)
        if outside := reading.outside.text():
            yield FailedTest("", outside)


def _refuse(*_declared: Any) -> None:
    raise InputError("it declares entities, which no JUnit file needs")


class _Kept:
    """The beginning and the end of a text."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0
        self._end: list[str] = []
        self._end_size = 0

    def add(self, text: str) -> None:
        half = MOST_TEXT // 2
        if self._size < half:
            self._parts.append(text)
            self._size += len(text)
            return
        self._end.append(text)
        self._end_size += len(text)
        if self._end_size > MOST_TEXT:
            kept = "".join(self._end)[-half:]
            self._end, self._end_size = [kept], len(kept)

    def text(self) -> str:
        return "".join((*self._parts, *self._end)).strip()


class _Reading:
    def __init__(self) -> None:
        self.found: list[FailedTest] = []
        self.outside = _Kept()
        self._test: _Kept | None = None
        self._name, self._has_failed, self._inside = "", False, False

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "testcase":
            self._test, self._has_failed = _Kept(), False
            self._name = ".".join(filter(None, (attributes.get("classname"), attributes.get("name"))))[:500]
        elif name in _OUTPUT:
            self._inside = True
            self._has_failed = self._has_failed or name in _FAILED
            if message := attributes.get("message"):
                self._add(f"{message}\n")

    def end(self, name: str) -> None:
        if name == "testcase" and self._test is not None:
            if self._has_failed and (text := self._test.text()):
                self.found.append(FailedTest(self._name, text))
            self._test = None
        elif name in _OUTPUT:
            self._add("\n")
            self._inside = False

    def text(self, text: str) -> None:
        if self._inside:
            self._add(text)

    def _add(self, text: str) -> None:
        (self._test if self._test is not None else self.outside).add(text)
