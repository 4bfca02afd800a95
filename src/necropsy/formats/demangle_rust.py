"""Demangled Rust names: ``_RNvNtCs1234_7mycrate3foo3bar`` becomes ``mycrate::foo::bar``.

RFC 2603, *Rust Symbol Mangling v0* (https://rust-lang.github.io/rfcs/2603-rust-symbol-name-mangling-v0.html), an option
of rustc since 1.59 (``-C symbol-mangling-version=v0``). Only the path is read, without generic arguments, crate hashes
and the instantiating crate. ``<Foo as Drop>::drop`` is shown as ``Foo::drop``, a method of its type; the method of a
type without a path (``[T]``, ``usize``) by the path of its trait or implementation.
Legacy names end in a hash and are otherwise C++ names: ``core::panicking::panic::h0123456789abcdef``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

LONGEST = 4096
"""Characters of a symbol that are looked at."""
_DEEPEST = 64
"""Paths within paths: lying back references could go round for ever."""
_MOST_STEPS = 4096

_LEGACY_HASH = re.compile(r"::h[0-9a-f]{16}$")
_BASE_62 = re.compile(r"[0-9a-zA-Z]*_")
_DECIMAL = re.compile(r"0|[1-9][0-9]*")
_CONSTANT = re.compile(r"n?[0-9a-f]*_")
_BASIC = frozenset("abcdefhijlmnopstuvxyz")
_LOWER = frozenset("abcdefghijklmnopqrstuvwxyz")
_Path = tuple[str, ...]
Part = TypeVar("Part")


def readable(symbol: str) -> str | None:
    """The path that a mangled symbol of Rust names; None where it is none, or cannot be read."""
    if not symbol.startswith(("_R", "__R")) or len(symbol) > LONGEST:
        return None
    text = symbol[symbol.index("R") + 1 :].split(".", 1)[0].split("@", 1)[0]
    version = _DECIMAL.match(text)
    if version is not None:
        return None  # a later encoding than the only one that there is
    try:
        path = _Reader(text).path()
    except (IndexError, ValueError, RecursionError):
        return None
    return "::".join(path) or None


def without_hash(name: str) -> str:
    """A demangled name without the hash that rustc put behind it before it had a mangling of its own."""
    return _LEGACY_HASH.sub("", name)


class _Reader:
    """Reads from left to right; IndexError or ValueError means that the symbol is cut off or not one."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth, self.steps = text, 0, 0, 0

    def path(self) -> _Path:
        self.steps += 1
        if self.depth >= _DEEPEST or self.steps > _MOST_STEPS:
            raise ValueError(self.text)
        self.depth += 1
        try:
            return self._path(self._next())
        finally:
            self.depth -= 1

    def _path(self, kind: str) -> _Path:
        if kind == "C":
            return self._identifier()
        if kind == "N":
            space = self._next()
            outer, name = self.path(), self._identifier()
            if space in _LOWER:
                return (*outer, *name)
            return (*outer, "{closure}" if space == "C" else "{shim}")
        if kind == "I":
            path = self.path()
            while not self._passed("E"):
                self._argument()
            return path
        if kind in "MX":
            self._disambiguator()
            implemented = self.path()
            own = self._type()
            trait = self.path() if kind == "X" else implemented
            return own or trait
        if kind == "Y":
            own = self._type()
            trait = self.path()
            return own or trait
        if kind == "B":
            return self._back(self.path)
        raise ValueError(self.text)

    def _type(self) -> _Path | None:
        """Path of a type, or None where it has none of its own."""
        self.steps += 1
        if self.depth >= _DEEPEST or self.steps > _MOST_STEPS:
            raise ValueError(self.text)
        self.depth += 1
        try:
            return self._of_kind(self.text[self.at])
        finally:
            self.depth -= 1

    def _of_kind(self, kind: str) -> _Path | None:
        if kind in "CNIMXY":
            return self.path()
        self.at += 1
        if kind == "B":
            return self._back(self._type)
        if kind in _BASIC:
            return None
        if kind in "RQ":
            if self._passed("L"):
                self._number()
            return self._type()
        if kind in "POS":
            self._type()
        elif kind == "A":
            self._type()
            self._constant()
        elif kind == "T":
            while not self._passed("E"):
                self._type()
        elif kind == "F":
            self._function()
        elif kind == "D":
            return self._dynamic()
        else:
            raise ValueError(self.text)
        return None

    def _function(self) -> None:
        if self._passed("G"):
            self._number()
        self._passed("U")
        if self._passed("K") and not self._passed("C"):
            self._word()
        while not self._passed("E"):
            self._type()
        self._type()

    def _dynamic(self) -> _Path | None:
        """``dyn Trait + Other``: the first trait's path."""
        if self._passed("G"):
            self._number()
        first: _Path | None = None
        while not self._passed("E"):
            trait = self.path()
            first = first or trait
            while self._passed("p"):
                self._word()
                self._type()
        if not self._passed("L"):
            raise ValueError(self.text)
        self._number()
        return first

    def _argument(self) -> None:
        if self._passed("L"):
            self._number()
        elif self._passed("K"):
            self._constant()
        else:
            self._type()

    def _constant(self) -> None:
        kind = self._next()
        if kind == "p":
            return
        if kind == "B":
            self._back(self._constant)
            return
        found = _CONSTANT.match(self.text, self.at)
        if kind not in _BASIC or found is None:
            raise ValueError(self.text)
        self.at = found.end()

    def _back(self, read: Callable[[], Part]) -> Part:
        """A back reference: the text at an earlier place of the symbol."""
        place = self._number()
        if place >= self.at - 1:
            raise ValueError(self.text)
        here, self.at = self.at, place
        try:
            return read()
        finally:
            self.at = here

    def _identifier(self) -> _Path:
        self._disambiguator()
        name = self._word()
        return (name,) if name else ()

    def _disambiguator(self) -> None:
        if self._passed("s"):
            self._number()

    def _word(self) -> str:
        self._passed("u")  # Punycode stays as it is
        length = _DECIMAL.match(self.text, self.at)
        if length is None:
            raise ValueError(self.text)
        self.at = length.end()
        self._passed("_")
        start, self.at = self.at, self.at + int(length[0])
        if self.at > len(self.text):
            raise IndexError(self.text)
        return self.text[start : self.at]

    def _number(self) -> int:
        """``_`` is 0, ``0_`` is 1, and so on, in base 62."""
        found = _BASE_62.match(self.text, self.at)
        if found is None:
            raise ValueError(self.text)
        self.at = found.end()
        value = 0
        for digit in found[0][:-1]:
            value = value * 62 + _DIGITS.index(digit)
        return value + 1 if len(found[0]) > 1 else 0

    def _next(self) -> str:
        character = self.text[self.at]
        self.at += 1
        return character

    def _passed(self, character: str) -> bool:
        if self.at < len(self.text) and self.text[self.at] == character:
            self.at += 1
            return True
        return False


_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
