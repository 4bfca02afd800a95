"""Where the handle of a resource comes from: an op without inputs that returns one, found by the words in its name.

An OpDef says that an input is a handle, and not of what: a queue, a table or the user's own class. Ops of one resource
mostly share a word (``RingPush`` and ``RingHandle``).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.fuzz.attributes import Attribute
from necropsy.fuzz.recipes import Maker

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z][a-z]*|[a-z]+")
_SAYS_NOTHING = frozenset({"handle", "op", "resource", "v", "get", "create", "make", "anonymous"})


@dataclass(frozen=True)
class HandleMaker:
    """An op that makes a handle. ``is_own``: of the library under test, not TensorFlow's."""

    name: str
    maker: Maker
    attributes: tuple[Attribute, ...]
    is_own: bool


def maker_for(op: str, makers: Sequence[HandleMaker]) -> HandleMaker | None:
    """The one that is likeliest to make what the op takes; None where no name says so."""
    words = _words(op)

    def fit(one: HandleMaker) -> tuple[int, bool, int]:
        alike = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(op, one.name, strict=False))
        return len(words & _words(one.name)), one.is_own, len(list(alike))

    likely = [one for one in makers if words & _words(one.name)]
    if likely:
        return max(likely, key=fit)
    own = [one for one in makers if one.is_own]
    return own[0] if len(own) == 1 else None


def _words(name: str) -> frozenset[str]:
    return frozenset(one.lower() for one in _WORD.findall(name)) - _SAYS_NOTHING
