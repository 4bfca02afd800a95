"""Where a value ends that begins at a place of a text: quoted, escaped, listed, or bare."""

from __future__ import annotations

import re

from necropsy.lazy_re import regex

_OPENING = regex(r"(?:[bBrRuUfF]{0,2}|\$|@)(?P<open>(?P<slashes>\\*)(?P<quote>[\"'`]))")
_CLOSING = {quote: regex(rf"(\\*){quote}|\n") for quote in "\"'`"}
_STOP = regex(r"[\s\"'`,;&)\]}<\x1b]")
_KEY_AHEAD = regex(r"[\w.-]{1,64}[\"']?[=:]")
_FOLLOWING = regex(r"[^\S\n]{1,16}[^\s\"'`,;]+")
_AUTH_SCHEMES = frozenset({"bearer", "basic", "token", "digest", "negotiate", "apikey"})


def opening(text: str, at: int) -> re.Match[str] | None:
    """The quote that begins a string at ``at``, with its prefix (``b``, ``f``) and the backslashes before it."""
    return _OPENING.match(text, at)


def quoted(text: str, first: re.Match[str], limit: int | None = None) -> tuple[int, int]:
    """What stands between quotes, which may themselves be escaped; to the end of the line where they are not closed."""
    return first.end(), closing(text, first.end(), first["quote"], len(first["slashes"]), limit)


def closing(text: str, start: int, quote: str, depth: int, limit: int | None = None) -> int:
    """Where a string ends whose quotes have ``depth`` backslashes; the end of its line where nothing closes it."""
    end = len(text) if limit is None else limit
    for match in _CLOSING[quote].finditer(text, start, end):
        if match[1] is None:
            return match.start()
        slashes = len(match[1])
        if slashes <= depth if depth else slashes % 2 == 0:
            return match.end() - 1 - min(depth, slashes)
    return end


_QUOTED_FIRST = regex(r"\s{0,8}[bru]?\\*[\"']")
_BRACKETS = {"[": "]", "{": "}", "(": ")"}


def listed(text: str, at: int, limit: int) -> tuple[int, int] | None:
    """Several values in brackets, to the end of the line where they are not closed."""
    last = _BRACKETS.get(text[at : at + 1])
    if last is None or not _QUOTED_FIRST.match(text, at + 1):
        return None
    line = text.find("\n", at, limit)
    line = limit if line < 0 else line
    end = text.find(last, at, line)
    return at + 1, line if end < 0 else end


def unquoted(text: str, at: int, limit: int) -> tuple[int, int]:
    """A value that ends at a space, or at what ends it in a list, a call, an address or a string."""
    place = at
    while (stop := _STOP.search(text, place, limit)) is not None:
        end = stop.start()
        char, after = text[end], text[end + 1 : end + 2]
        if char.isspace() or char == "\x1b" or not after or after.isspace():
            break
        if not _goes_on(text, end, char, after):
            break
        place = end + 1
    else:
        return at, limit
    end = stop.start()
    word = text[at:end].lower()
    if word in _AUTH_SCHEMES and text[end] in " \t":
        following = _FOLLOWING.match(text, end, limit)
        if following is not None:
            return at, following.end()
    return at, end


def _goes_on(text: str, at: int, char: str, after: str) -> bool:
    """What follows ``char`` shows that the value continues."""
    if char == "<":
        return after != "/"
    if char in "\"'`":
        return after.isalnum() or after == "_"
    if char in ",;&":
        return after not in ",;&)]}\"'`" and not _KEY_AHEAD.match(text, at + 1)
    return after.isalnum() or after in "_!#%@$*"
