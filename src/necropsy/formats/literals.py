"""Where any of several hundred literals stands in a block of bytes, in one pass.

The automaton of Aho and Corasick does it whatever the number of literals: 100 MB in 0.2 s, where one ``bytes.find``
for each of 180 literals takes 3.6 s and one regular expression of them all 13 s (measured). Where its library is not
installed (it has no wheel for musl), the expression is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

Hit = tuple[int, int, int]
"""Index of the literal, and where it begins and ends."""


Finder = Callable[[bytes], list[Hit]]
"""Finds every occurrence of every literal, overlapping ones too, in the order of their ends."""


@lru_cache(maxsize=4)
def finder(words: tuple[bytes, ...]) -> Finder:
    """For the literals of all logs: the automaton that is quickest in the search. It takes megabytes, and is kept."""
    return _finder(words, "DFA")


def passing_finder(words: tuple[bytes, ...]) -> Finder:
    """For a selection that will soon be another: the automaton that is made in a millisecond."""
    return _finder(words, "ContiguousNFA")


def _finder(words: tuple[bytes, ...], kind: str) -> Finder:
    if not words:
        return lambda _block: []
    try:
        from ahocorasick_rs import BytesAhoCorasick, Implementation
    except ImportError:
        return by_expression(words)
    automaton = BytesAhoCorasick(words, implementation=getattr(Implementation, kind))
    return lambda block: automaton.find_matches_as_indexes(block, overlapping=True)


def by_expression(words: Sequence[bytes]) -> Finder:
    """The same by the standard library, in about fifty times the time."""
    index = {word: position for position, word in enumerate(words)}
    # At one place the expression finds the longest literal: those that it begins with are there too.
    heads = {word: [one for one in words if word.startswith(one)] for word in words}
    longest_first = sorted(words, key=len, reverse=True)
    expression = re.compile(b"(?=(" + b"|".join(re.escape(word) for word in longest_first) + b"))")

    def find(block: bytes) -> list[Hit]:
        hits = [
            (index[word], match.start(), match.start() + len(word))
            for match in expression.finditer(block)
            for word in heads[match[1]]
        ]
        return sorted(hits, key=lambda hit: hit[2])

    return find
