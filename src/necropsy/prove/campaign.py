"""The calls of one op: accepted ones are looked for first, then each finding's predictions are tried on them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from necropsy.prove import predictions, valid_calls
from necropsy.prove.outcomes import CallDeath, Survived
from necropsy.prove.session import Session
from necropsy.prove.values import Call

_AT_ONCE = 25
_BASES = 4
_MOST_DEATHS = 25
"""Per search: each costs an AddressSanitizer report."""


@dataclass
class Campaign:
    """What the calls of one op have shown so far; each call is made once."""

    session: Session
    name: str
    until: float
    """Monotonic time after which no call begins."""
    deaths: list[CallDeath] = field(default_factory=list)
    bases: list[Call] = field(default_factory=list)
    ended: dict[str, Survived | CallDeath] = field(default_factory=dict)
    tried: dict[str, bool] = field(default_factory=dict)
    """Kinds of variations made, and whether each is complete."""
    was_cut: bool = False
    """A limit was reached, so calls were left out."""

    @property
    def is_over(self) -> bool:
        """The time is up."""
        return time.monotonic() >= self.until

    def search(self, fits: Callable[[CallDeath], bool]) -> None:
        """Find enough accepted calls of different shapes, unless a death fits; raises ``NecropsyError``."""
        while len(self.bases) < _BASES and not self.is_over and len(self.deaths) < _MOST_DEATHS:
            wanted = list(itertools.islice(self._candidates, _AT_ONCE))
            self._make(wanted)
            for one in wanted:
                end = self.ended.get(str(one))
                if isinstance(end, Survived) and end.is_value and len(self.bases) < _BASES:
                    self.bases.append(one)
            if not wanted or any(map(fits, self.deaths)):
                return

    @cached_property
    def _candidates(self) -> Iterator[Call]:
        return valid_calls.candidates(self.name, self.session.ops[self.name])

    def vary(self, kind: str, fits: Callable[[CallDeath], bool]) -> None:
        """Make the variations of one kind until a death fits; raises ``NecropsyError`` if the process ended."""
        if self.tried.get(kind):
            return
        op, deaths = self.session.ops[self.name], len(self.deaths)
        for base in self._starts():
            several = list(predictions.calls(kind, base, op))
            for at in range(0, len(several), _AT_ONCE):
                if self.is_over or len(self.deaths) - deaths >= _MOST_DEATHS:
                    self.tried[kind] = False
                    return
                self._make(several[at : at + _AT_ONCE])
                if any(map(fits, self.deaths)):
                    self.tried[kind] = False
                    return
        self.tried[kind] = bool(self.bases)

    def _starts(self) -> list[Call]:
        """Accepted calls, or else calls rejected for different reasons."""
        if self.bases:
            return self.bases
        refused: dict[str, Call] = {}
        for one in valid_calls.candidates(self.name, self.session.ops[self.name]):
            end = self.ended.get(str(one))
            if isinstance(end, Survived):
                refused.setdefault(end.said, one)
        return list(refused.values())[-_BASES:]

    def again(self, one: CallDeath) -> Survived | CallDeath:
        """Repeat the call alone in a process; raises ``NecropsyError`` if the process ended."""
        return next(iter(self.session.run([one.call])))

    def _make(self, several: Iterable[Call]) -> None:
        texts = [text for text in dict.fromkeys(map(str, several)) if text not in self.ended]
        ends = self.session.run(texts) if texts else []
        self.was_cut |= len(ends) < len(texts)
        for end in ends:
            self.ended[end.call] = end
            if isinstance(end, CallDeath):
                self.deaths.append(end)
