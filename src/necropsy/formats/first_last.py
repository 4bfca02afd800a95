"""The first and the last of many, for the first cause stands at the beginning and the last words at the end."""

from __future__ import annotations

from collections import Counter, deque
from itertools import chain
from typing import Generic, TypeVar

from necropsy.formats.text_reports import TextReport
from necropsy.model import Gap, Message

Found = TypeVar("Found", Message, TextReport)
_MOST_IN_ALL = 1000
"""That are kept of all kinds together."""
_TOLD = 4
"""Kinds whose numbers are told one by one."""


class FirstLast(Generic[Found]):
    """The first and the last of each kind."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._first: dict[str, list[Found]] = {}
        self._last: dict[str, deque[Found]] = {}
        self._dropped: Counter[str] = Counter()

    def add(self, kind: str, one: Found) -> None:
        """One more, in the order of the text."""
        first = self._first.setdefault(kind, [])
        if len(first) < self._most:
            first.append(one)
            return
        last = self._last.setdefault(kind, deque(maxlen=self._most))
        self._dropped[kind] += len(last) == self._most
        last.append(one)

    def all(self) -> list[Found]:
        """Those that were kept; where there are very many kinds, fewer of each."""
        most = max(1, _MOST_IN_ALL // (2 * len(self._first))) if self._first else 0
        if sum(len(ones) for ones in chain(self._first.values(), self._last.values())) <= _MOST_IN_ALL:
            most = self._most
        kept: list[Found] = []
        for kind, first in self._first.items():
            ones = list(chain(first, self._last.get(kind, ())))
            kept += ones if len(ones) <= 2 * most else ones[:most] + ones[-most:]
            self._dropped[kind] += max(0, len(ones) - 2 * most)
        return kept

    def left_out(self, name: str) -> list[Gap]:
        """What was not kept."""
        shown = [f"{count} of the kind {kind}" for kind, count in self._dropped.most_common(_TOLD) if count]
        return [Gap(part="log", why=f"{name} between the first and the last: " + ", ".join(shown))] if shown else []
