"""Secrets that are recognised by their form: tokens, addresses that let everybody in, private keys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache

from necropsy.data import table
from necropsy.lazy_re import regex

MASK = "***"

# Escapes that end in a letter or a digit: what follows them begins anew.
_ESCAPES = (r"%[0-9A-Fa-f]{2}", r"\\[nrtbfv0]", r"\\x[0-9A-Fa-f]{2}", r"\\u[0-9A-Fa-f]{4}")
_COLOURS = tuple(rf"\x1b\[[0-9;]{{{count}}}m" for count in range(10))
_APART = rf"(?:(?<![A-Za-z0-9])|{'|'.join(f'(?<={one})' for one in (*_ESCAPES, *_COLOURS))})"


_SHORT = 1 << 14
"""Characters of a text in which hostile runs cost the search without look-behind little."""


@dataclass(frozen=True)
class Form:
    """A token, or an address: ``literals``, of which one is in the text where ``spelled``, the pattern, can match."""

    literals: tuple[str, ...]
    spelled: str
    needs: str | None = None
    """Required after the readable part."""
    begins: bool = False
    """Every match begins with a literal, so only those places are tried."""
    apart: bool = False
    """It does not follow a letter or a digit."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled where it is first needed: most texts need none."""
        return re.compile((_APART if self.apart else "") + self.spelled)

    @cached_property
    def _anywhere(self) -> re.Pattern[str]:
        """Without the look-behind, which costs most: no match here means no match at all."""
        return re.compile(self.spelled)

    def masked(self, text: str) -> str:
        """The text without the secrets of this form; what ``keep`` matched stays."""
        for one in self.literals:
            if one in text:
                break
        else:
            return text
        if self.begins:
            return self._masked_at(text)
        if self.apart and len(text) <= _SHORT and self._anywhere.search(text) is None:
            return text
        return self.pattern.sub(self._kept, text)

    def _masked_at(self, text: str) -> str:
        """Same as ``sub``, which would try every place of the text."""
        pieces, done = [], 0
        for at in self._starts(text):
            match = self.pattern.match(text, at) if at >= done else None
            if match is not None:
                pieces += [text[done:at], self._kept(match)]
                done = match.end()
        return "".join((*pieces, text[done:])) if pieces else text

    def _starts(self, text: str) -> list[int]:
        found = []
        for one in self.literals:
            at = text.find(one)
            while at >= 0:
                found.append(at)
                at = text.find(one, at + 1)
        return sorted(found)

    def _kept(self, match: re.Match[str]) -> str:
        keep = match["keep"] if "keep" in match.re.groupindex else ""
        if self.needs is not None and not re.search(self.needs, match.group()[len(keep) :]):
            return match.group()
        return keep + MASK


RUN = regex(r"[A-Za-z0-9_~+=%-]{16}")
"""Every token in the table has a stretch of this length."""


@lru_cache(maxsize=1)
def forms() -> tuple[tuple[Form, ...], tuple[Form, ...]]:
    """The links and the tokens of the table; links first, because they may hold what looks like a token."""
    data = table("secrets.toml")
    links = tuple(Form(tuple(row["contains"]), row["pattern"]) for row in data["link"])
    found = []
    for row in data["token"]:
        apart = bool(row.get("apart"))
        if "pattern" in row:
            found.append(Form(tuple(row["contains"]), row["pattern"], apart=apart))
            continue
        literals = tuple(row["starts"])
        keep = "|".join(map(re.escape, sorted(literals, key=len, reverse=True)))
        spelled = rf"(?P<keep>{keep}){row.get('rest', '[A-Za-z0-9_-]{20,}')}"
        found.append(Form(literals, spelled, row.get("needs"), begins=True, apart=apart))
    return links, tuple(found)


# ---------------------------------------------------------------- private keys

_BEGIN = regex(r"-----? ?BEGIN [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)? ?-----?|Private-Lines: [0-9]{1,4}")
_END = regex(r"-----? ?END [A-Z0-9 ]{0,60}PRIVATE KEY(?: BLOCK)? ?-----?|Private-MAC: [0-9a-f]{1,64}")
_MOST_OF_KEY = 16_384
# What can follow the beginning of a key whose end is missing: lines of base64, and the headers of old forms.
_BODY = regex(r"(?:(?:\\[nr]|\s){1,8}(?:[A-Za-z0-9+/=]{16,}|(?:Proc-Type|DEK-Info|Version|Comment): ?[^\n\\]{0,100}))*")
# The same before the end of one whose beginning is missing, read backwards.
_BODY_REVERSED = regex(r"(?:(?:[nr]\\|\s){1,8}[A-Za-z0-9+/=]+)*")


def without_private_keys(text: str) -> str:
    """A key in PEM, of PGP or of PuTTY goes, also one whose beginning or end was cut off; its lines stay lines."""
    if "PRIVATE KEY" not in text and "Private-" not in text:
        return text
    pieces, done = [], 0
    ends = [match.span() for match in _END.finditer(text)]
    place = 0
    for match in _BEGIN.finditer(text):
        if match.start() < done:
            continue
        while place < len(ends) and ends[place][0] < match.end():
            pieces += _before(text, done, ends[place][0])
            done = max(done, ends[place][0])
            place += 1
        if place < len(ends) and ends[place][0] - match.end() <= _MOST_OF_KEY:
            stop = ends[place][1]
            place += 1
        else:
            body = _BODY.match(text, match.end())
            stop = body.end() if body is not None else match.end()
        pieces += [text[done : match.end()], _blank(text[match.end() : stop])]
        done = stop
    for start, _ in ends[place:]:
        pieces += _before(text, done, start)
        done = max(done, start)
    return "".join((*pieces, text[done:]))


def _before(text: str, done: int, end: int) -> list[str]:
    """``text[done:end]`` without a key's body at its end."""
    if end <= done:
        return []
    window = text[max(done, end - _MOST_OF_KEY) : end]
    body = _BODY_REVERSED.match(window[::-1])
    start = end - (body.end() if body is not None else 0)
    return [text[done:start], _blank(text[start:end])] if end - start >= 16 else [text[done:end]]


def _blank(text: str) -> str:
    return MASK + "\n" * text.count("\n") if text.strip("\n*") else text
