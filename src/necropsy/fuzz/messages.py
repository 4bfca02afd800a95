"""Hints in an op's error messages about valid calls: words, numbers, and the ranks and shapes of its inputs."""

from __future__ import annotations

import re
from collections.abc import Iterator

_QUOTED = re.compile(r"['\"`]([^'\"`\s]{1,40})['\"`]")
_LISTED = re.compile(r"one of:? *[\[{(]([^\])}]{3,300})[\])}]")
_SEPARATOR = re.compile(r"[\s,|'\"`]+(?:or )?")
_NUMBER = re.compile(r"(?<![\w.])-?\d{1,18}(?![\w.])")
_RANK = r"(?:(?:exactly )?(\d)[ -]?(?:d\b|dim)|(?:of )?rank[ -]?(?:of )?(\d)|(scalar)|(vec)|(matri))"
_MUST = r"(?:must|should|needs? to|has to)"
_NAME = r"[`'\"]?\b(\w+)[`'\"]?(?: tensor| input| shape)?"
_INPUT_FIRST = re.compile(rf"{_NAME} {_MUST} (?:be|have)(?: an?)? {_RANK}", re.IGNORECASE)
_EXPECTED = re.compile(rf"expected {_NAME} to be(?: an?)? {_RANK}", re.IGNORECASE)
_RANK_FIRST = re.compile(rf"rank of (?:the )?{_NAME} {_MUST} be (?:exactly )?(\d)\b", re.IGNORECASE)

_SIZE = r"[\w?*.+-]{1,30}"
_FIXED = re.compile(r"[0-9]{1,4}")
_SHAPE = re.compile(
    rf"{_NAME} {_MUST} (?:be|have)(?: an?| the)?(?: of)?(?: shape)?:? [\[(]({_SIZE}(?:, ?{_SIZE}){{0,7}})[\])]",
    re.IGNORECASE,
)


def words(text: str) -> Iterator[str]:
    """Quoted words, and those of a list of what is allowed."""
    yield from _QUOTED.findall(text)
    for listed in _LISTED.findall(text):
        yield from (one for one in _SEPARATOR.split(listed) if 0 < len(one) <= 40)


def numbers(text: str) -> list[int]:
    """Whole numbers."""
    return [int(one) for one in _NUMBER.findall(text)]


def ranks(text: str) -> Iterator[tuple[str, int]]:
    """Names of inputs, as far as a message names them, with the rank that it demands: ``("boxes", 2)``."""
    for pattern in (_INPUT_FIRST, _EXPECTED):
        for name, *digits, scalar, vector, _ in pattern.findall(text):
            digit = "".join(digits)
            yield _plain(name), int(digit) if digit else 0 if scalar else 1 if vector else 2
    for name, digit in _RANK_FIRST.findall(text):
        yield _plain(name), int(digit)


def shapes(text: str) -> Iterator[tuple[str, tuple[int | None, ...]]]:
    """Names of inputs, with the shape that a message demands: ``boxes must be [n, 4]`` is ``("boxes", (None, 4))``."""
    for name, sizes in _SHAPE.findall(text):
        yield _plain(name), tuple(int(one) if _FIXED.fullmatch(one) else None for one in re.split(", ?", sizes))


def _plain(name: str) -> str:
    return name.removesuffix("_tensor")
