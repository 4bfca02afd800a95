"""Constant expressions of whole numbers: of ``#if``, of array extents and of template arguments.

The value is None where it is not known; ``0 && unknown`` and ``1 || unknown`` are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from necropsy.audit.cxx.tokens import TOKEN

Resolve = Callable[[str], "int | None"]
"""The value of a name, such as ``kBlock`` or ``Shape::kRank``."""
Measure = Callable[[str], "int | None"]
"""The size in bytes of a type, given as text."""
_LARGEST = 1 << 64
_DEEPEST = 60
_LEVELS = (
    ("||",),
    ("&&",),
    ("|",),
    ("^",),
    ("&",),
    ("==", "!="),
    ("<", ">", "<=", ">="),
    ("<<", ">>"),
    ("+", "-"),
    ("*", "/", "%"),
)
_CASTS = frozenset({"static_cast", "reinterpret_cast", "const_cast"})
_NUMBERS = frozenset(
    {
        "int",
        "long",
        "short",
        "unsigned",
        "signed",
        "char",
        "bool",
        "size_t",
        "int64",
        "int32",
        "uint32",
        "uint64",
        "auto",
    }
    | {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    | {"ptrdiff_t", "std", "tensorflow", "const", "Index"}
)
_ESCAPES = {"n": 10, "t": 9, "r": 13, "0": 0, "a": 7, "b": 8, "f": 12, "v": 11}


class _UnreadableError(Exception):
    """Not an expression of whole numbers."""


def _nothing(_: str) -> int | None:
    return None


def number(text: str) -> int | None:
    """The value of a literal: ``0x10``, ``1'000'000ll``, ``1e6``."""
    plain = text.replace("'", "").lower()
    match = re.fullmatch(r"(0x[0-9a-f]+|0b[01]+|0[0-7]*|[1-9]\d*)[ul]*z?[ul]*", plain)
    if match is None:
        if re.fullmatch(r"\d+\.?\d*(?:e\+?\d{1,2})?f?", plain) is None:
            return None
        value = float(plain.rstrip("f"))
        return int(value) if value.is_integer() else None
    digits = match[1]
    if digits.startswith(("0x", "0b")):
        return int(digits, 0)
    return int(digits, 8) if len(digits) > 1 and digits[0] == "0" else int(digits)


def evaluate(text: str, resolve: Resolve = _nothing, measure: Measure = _nothing) -> int | None:
    """The value of the expression, or None where it is not known or no expression of whole numbers."""
    plain = number(text.strip())
    if plain is not None:
        return plain
    try:
        words = [one[0] for one in TOKEN.finditer(text) if one["space"] is None]
        if not words or len(words) > 2000:
            return None
        reader = _Reader(words, resolve, measure)
        value = reader.choice(0)
        return value if reader.at == len(words) else None
    except (_UnreadableError, RecursionError, OverflowError):
        return None


@dataclass
class _Reader:
    words: list[str]
    resolve: Resolve
    measure: Measure
    at: int = 0

    def peek(self) -> str:
        return self.words[self.at] if self.at < len(self.words) else ""

    def take(self, wanted: str | None = None) -> str:
        word = self.peek()
        if not word or (wanted is not None and word != wanted):
            raise _UnreadableError
        self.at += 1
        return word

    def choice(self, depth: int) -> int | None:
        if depth > _DEEPEST:
            raise _UnreadableError
        asked = self.level(0, depth + 1)
        if self.peek() != "?":
            return asked
        self.take()
        yes = self.choice(depth + 1)
        self.take(":")
        no = self.choice(depth + 1)
        return None if asked is None else yes if asked else no

    def level(self, rank: int, depth: int) -> int | None:
        if rank == len(_LEVELS):
            return self.unary(depth)
        value = self.level(rank + 1, depth)
        while self.peek() in _LEVELS[rank]:
            sign = self.take()
            value = _applied(sign, value, self.level(rank + 1, depth))
        return value

    def unary(self, depth: int) -> int | None:
        if depth > _DEEPEST:
            raise _UnreadableError
        word = self.peek()
        if word in {"-", "+", "!", "~"}:
            self.take()
            value = self.unary(depth + 1)
            if value is None:
                return None
            return {"-": -value, "+": value, "!": int(not value), "~": ~value}[word]
        return self.primary(depth + 1)

    def primary(self, depth: int) -> int | None:
        word = self.take()
        if word == "(":
            inner = self.until(")")
            if inner and all(re.fullmatch(r"[A-Za-z_]\w*|::", one) for one in inner) and inner[-1] in _NUMBERS:
                return self.unary(depth + 1)
            return evaluate(" ".join(inner), self.resolve, self.measure)
        if word in {"sizeof", "alignof"}:
            if self.peek() != "(":
                raise _UnreadableError
            self.take()
            return self.measure("".join(_spaced(self.until(")"))))
        if word in _CASTS:
            self.take("<")
            self.until(">")
            self.take("(")
            return evaluate(" ".join(self.until(")")), self.resolve, self.measure)
        if word == "defined":
            bracketed = self.peek() == "("
            name = "".join(self.until(")")) if bracketed and self.take() else self.take()
            return self.resolve(f"defined {name}")
        if word in {"true", "false"}:
            return int(word == "true")
        if word[0] == "'":
            return _character(word)
        if word[0].isdigit() or word[0] == ".":
            return number(word)
        if word[0].isalpha() or word[0] == "_" or word == "::":
            return self.named(word)
        raise _UnreadableError

    def named(self, word: str) -> int | None:
        name = word if word != "::" else self.take()
        while self.peek() in {"::", "<"}:
            if self.peek() == "::":
                self.take()
                name += "::" + self.take()
                continue
            rest = self.words[self.at :]
            if "::" not in rest or ">" not in rest or not _closes_before_scope(rest):
                break
            self.take()
            name += "<" + "".join(_spaced(self.until(">"))) + ">"
        if self.peek() in {"(", "{"}:
            inner = self.until({"(": ")", "{": "}"}[self.take()])
            if name.rpartition("::")[2] in _NUMBERS:
                return evaluate(" ".join(inner), self.resolve, self.measure)
            values = [evaluate(one, self.resolve, self.measure) for one in " ".join(inner).split(",")]
            if name in {"std::max", "std::min"} and len(values) == 2:
                first, second = values
                if first is None or second is None:
                    return None
                return max(first, second) if name == "std::max" else min(first, second)
            return self.resolve(f"{name}({' '.join(inner)})")
        return self.resolve(name)

    def until(self, closing: str) -> list[str]:
        """What stands before the bracket that closes the one just taken, which is taken too."""
        opening = {")": "(", "]": "[", "}": "{", ">": "<"}[closing]
        depth, start = 1, self.at
        while depth:
            word = self.take()
            depth += (word == opening) - (word == closing)
            if closing == ">" and word == ">>":
                depth -= 2
                if depth < 0:
                    raise _UnreadableError
        return self.words[start : self.at - 1]


def _closes_before_scope(rest: list[str]) -> bool:
    """``<N>::value`` rather than ``< n``."""
    depth = 0
    for at, word in enumerate(rest):
        depth += (word == "<") - (word == ">")
        if depth == 0:
            return rest[at + 1 : at + 2] == ["::"]
    return False


def _spaced(words: list[str]) -> list[str]:
    """With a blank between two words, so that ``unsigned char`` stays two."""
    return [
        word
        + (" " if (word[-1].isalnum() or word[-1] == "_") and after and (after[0].isalnum() or after[0] == "_") else "")
        for word, after in zip(words, [*words[1:], ""], strict=True)
    ]


def _character(word: str) -> int | None:
    inner = word[1:-1]
    if inner.startswith("\\"):
        return _ESCAPES.get(inner[1:], ord(inner[1]) if len(inner) == 2 else None)
    return ord(inner) if len(inner) == 1 else None


def _applied(sign: str, left: int | None, right: int | None) -> int | None:
    if sign == "&&":
        return 0 if 0 in {left, right} else None if None in {left, right} else 1
    if sign == "||":
        return 1 if left or right else None if None in {left, right} else 0
    if left is None or right is None:
        return None
    if sign in {"/", "%"}:
        if right == 0:
            return None
        whole = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return whole if sign == "/" else left - whole * right
    if sign in {"<<", ">>"}:
        if not 0 <= right < 64:
            return None
        value = left << right if sign == "<<" else left >> right
    else:
        value = {
            "|": left | right,
            "^": left ^ right,
            "&": left & right,
            "==": int(left == right),
            "!=": int(left != right),
            "<": int(left < right),
            ">": int(left > right),
            "<=": int(left <= right),
            ">=": int(left >= right),
            "+": left + right,
            "-": left - right,
            "*": left * right,
        }[sign]
    return value if abs(value) < _LARGEST else None
