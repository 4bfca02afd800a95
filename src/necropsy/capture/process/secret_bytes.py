"""Secrets in a process's memory, which a core of it must not show.

A program that prints a token, or reads a password, has it on its stack as well. The beginnings of tokens and the words
of telling names are searched for in one pass; only the text around a hit is then masked like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from necropsy import redact

_AROUND = 4096
"""Bytes of text before a hit, and behind it, that are looked at with it."""
_MOST = 5000
"""So many texts are looked at closely; the others around a hit are hidden as a whole, which costs nothing."""
_SHORTEST_START = 3
_WORDS = (
    *("password", "passwd", "passphrase", "secret", "token", "api_key", "apikey", "api-key", "access_key", "accesskey"),
    *(
        "private_key",
        "auth_key",
        "account_key",
        "accountkey",
        "credential",
        "authorization",
        "cookie",
        "bearer ",
        "basic ",
    ),
    *("bearer ", "basic ", "_key=", "_pass=", "_pwd=", "pwd=", "webhook", "sig=", "signature="),
)
_TEXT = re.compile(rb"[\t\n\r\x1b\x20-\x7e\x80-\xff]+")
_ASCII = re.compile(rb"[\x20-\x7e]+")


@lru_cache(maxsize=1)
def literals() -> tuple[bytes, ...]:
    """What stands in or before every secret that has a form or a name, as bytes."""
    from necropsy.secrets.forms import forms

    links, tokens = forms()
    starts = {one for form in (*links, *tokens) for one in form.literals if len(one) >= _SHORTEST_START}
    named = {spelled for word in _WORDS for spelled in (word, word.upper(), word.title())}
    return tuple(sorted(one.encode() for one in (*starts, *named, "://", "PRIVATE KEY")))


_MOST_HEARD = 256
_BESIDE = 4
"""How many characters beside a secret are hidden with it. A vector register that is saved on the stack can hold what
stood before it and its first bytes: too few of them to be told for a part of it by themselves.
"""
_heard: dict[bytes, None] = {}


def masked_log(text: str) -> str:
    """The log of a program, masked; what was hidden in it is ``heard``, because buffers of it are in its memory."""
    masked = redact.text(text)
    if masked == text:
        return text
    for before, after in zip(text.split("\n"), masked.split("\n"), strict=True):
        if before != after:
            _heard.update(dict.fromkeys(one.encode("utf-8", "replace") for one in _hidden_of(before, after)))
    for word in list(_heard)[:-_MOST_HEARD]:
        del _heard[word]
    return masked


def _hidden_of(before: str, after: str) -> Iterator[str]:
    """What the masks in a line replaced, with a few characters beside it."""
    first, *others = after.split(redact.MASK)
    at = len(first)
    for place, piece in enumerate(others, 1):
        end = before.find(piece, at) if place < len(others) and piece else len(before) - len(piece)
        end = end if end >= at else len(before)
        yield before[max(0, at - _BESIDE) : end + _BESIDE]
        at = end + len(piece)


def heard() -> list[bytes]:
    """The last secrets that stood in a log of this run, each with a few characters beside it."""
    return list(_heard)


class SecretBytes:
    """Masks the text around hits; one for each core, because it counts how much it has looked at."""

    def __init__(self) -> None:
        self._looked_at = 0

    def places(self, data: bytes, hits: list[int]) -> list[tuple[int, int]]:
        """Where in ``data`` secrets stand, for places of literals in ascending order."""
        found: list[tuple[int, int]] = []
        done = 0
        for hit in hits:
            if hit < done:
                continue
            start, end = _text_around(data, hit, done)
            done = end
            self._looked_at += 1
            if self._looked_at > _MOST:
                found.append((start, end))
                continue
            before = data[start:end].decode("latin-1")
            span = _difference(before, redact.text(before))
            if span is not None:
                found.append((start + span[0], start + span[1]))
        return found


def _text_around(data: bytes, hit: int, done: int) -> tuple[int, int]:
    low = max(done, hit - _AROUND)
    before = _TEXT.match(data[low:hit][::-1])
    start = hit - before.end() if before is not None else hit
    match = _TEXT.match(data, hit, min(len(data), hit + _AROUND))
    end = match.end() if match is not None else hit + 1
    # What is left of a text on the stack can end where a saved pointer begins. Its low bytes may look like more text,
    # and without them a debugger loses the callers.
    words = range(hit + 7 & ~7, end, 8)
    return start, next((at for at in words if _is_pointer(data[at : at + 8])), end)


def _is_pointer(word: bytes) -> bool:
    """An address of x86-64's user space: programs and heaps begin with 0x55 or 0x56, libraries and stacks with 0x7e."""
    is_address = len(word) == 8 and word[6:] == b"\0\0" and word[5] in {0x55, 0x56, 0x7E, 0x7F}
    return is_address and not _ASCII.fullmatch(word[:5])


def _difference(before: str, after: str) -> tuple[int, int] | None:
    """From the first to the last character that was masked."""
    if before == after:
        return None
    low = 0
    while low < len(before) and low < len(after) and before[low] == after[low]:
        low += 1
    high = 0
    while high < min(len(before), len(after)) - low and before[-1 - high] == after[-1 - high]:
        high += 1
    return low, len(before) - high
