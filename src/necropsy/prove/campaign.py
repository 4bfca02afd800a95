"""The calls of one op: accepted ones are looked for first, then each finding's predictions are tried on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from necropsy.prove import predictions, valid_calls
from necropsy.prove.outcomes import Death, Survived
from necropsy.prove.session import Session
from necropsy.prove.values import Call

_AT_ONCE = 50
_BASES = 4
_MOST_DEATHS = 25
"""In one search: each costs a report of AddressSanitizer."""


@dataclass
class Campaign:
    """What the calls of one op have shown so far; each call is made once."""

    session: Session
    name: str
    until: float
    """On the monotonic clock: no call is begun after this."""
    deaths: list[Death] = field(default_factory=list)
    bases: list[Call] = field(default_factory=list)
    ended: dict[str, Survived | Death] = field(default_factory=dict)
    tried: dict[str, bool] = field(default_factory=dict)
    """The kinds of variations that were made: whether all of them were."""

    @property
    def is_over(self) -> bool:
        """The time is up."""
        return time.monotonic() >= self.until

    def find_bases(self) -> None:
        """Look for calls that the op accepts, of different shapes.

        Raises:
            NecropsyError: the process that makes the calls ended.

        """
        op = self.session.ops[self.name]
        wanted: list[Call] = []
        for one in valid_calls.candidates(self.name, op):
            wanted.append(one)
            if len(wanted) == _AT_ONCE:
                self._make(wanted)
                self._choose(wanted)
                wanted = []
                if len(self.bases) >= _BASES or self.is_over or len(self.deaths) >= _MOST_DEATHS:
                    return
        self._make(wanted)
        self._choose(wanted)

    def _choose(self, made: Iterable[Call]) -> None:
        for one in made:
            end = self.ended.get(str(one))
            if isinstance(end, Survived) and end.is_value and len(self.bases) < _BASES:
                self.bases.append(one)

    def vary(self, kind: str, fits: Callable[[Death], bool]) -> None:
        """Make the variations of one kind, until a death fits.

        Raises:
            NecropsyError: the process that makes the calls ended.

        """
        if self.tried.get(kind):
            return
        op, deaths = self.session.ops[self.name], len(self.deaths)
        for base in self.bases:
            several = list(predictions.calls(kind, base, op))
            for at in range(0, len(several), _AT_ONCE // 2):
                if self.is_over or len(self.deaths) - deaths >= _MOST_DEATHS:
                    self.tried[kind] = False
                    return
                self._make(several[at : at + _AT_ONCE // 2])
                if any(map(fits, self.deaths)):
                    self.tried[kind] = False
                    return
        self.tried[kind] = bool(self.bases)

    def again(self, one: Death) -> Survived | Death:
        """The same call alone in a process.

        Raises:
            NecropsyError: the process that makes the calls ended.

        """
        return self.session.run([one.call])[0]

    def _make(self, several: Iterable[Call]) -> None:
        texts = [text for text in dict.fromkeys(map(str, several)) if text not in self.ended]
        for end in self.session.run(texts) if texts else ():
            self.ended[end.call] = end
            if isinstance(end, Death):
                self.deaths.append(end)
