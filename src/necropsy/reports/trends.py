"""How often a bug kills over time, by day: since when, and which bugs rise. The last day is that of the last death."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from necropsy.model import BugGroup, Triage

WEEK = 7
_MOST_DAYS = 3_660
"""A wrong clock may place one death decades before the others: earlier days than these are left out."""
_LEAST, _FACTOR = 3, 2.0
"""A bug rises if it killed this often in the last seven days, and this many times as often as in the seven before."""


@dataclass(frozen=True)
class Period:
    """The days from the first death to the last one. Deaths of an unknown time are not in it."""

    first: date
    days: int

    def place(self, day: str | None) -> int | None:
        """Which day it is, from 0; None outside the period and for what is not a date."""
        when = _date(day)
        number = (when - self.first).days if when is not None else -1
        return number if 0 <= number < self.days else None

    def day(self, place: int) -> str:
        """``2026-11-24``."""
        return (self.first + timedelta(days=place)).isoformat()


def period(triage: Triage) -> Period | None:
    """None where no death's day is known."""
    days = [when for one in triage.groups for each in one.trend if (when := _date(each.day)) is not None]
    if not days:
        return None
    last = max(days)
    first = max(min(days), last - timedelta(days=_MOST_DAYS - 1)) if last.toordinal() > _MOST_DAYS else min(days)
    return Period(first, (last - first).days + 1)


def counts(group: BugGroup, whole: Period) -> list[int]:
    """Deaths on each day of the period."""
    found = [0] * whole.days
    for one in group.trend:
        place = whole.place(one.day)
        if place is not None:
            found[place] += max(one.count, 0)
    return found


def rising_on(by_day: Sequence[int]) -> list[int]:
    """The days on which a bug began to rise: whose last seven days have many more deaths than the seven before.

    The first two weeks of a bug are not a rise but its beginning.
    """
    rose = [_rises_at(by_day, place) for place in range(len(by_day))]
    return [place for place, rises_now in enumerate(rose) if rises_now and not (place and rose[place - 1])]


def rises(by_day: Sequence[int]) -> bool:
    """It rises on the last day of the period."""
    return bool(by_day) and _rises_at(by_day, len(by_day) - 1)


def _rises_at(by_day: Sequence[int], place: int) -> bool:
    first = place - 2 * WEEK + 1
    if first < 0 or not any(by_day[: first + 1]):
        return False
    before, recent = sum(by_day[first : first + WEEK]), sum(by_day[first + WEEK : place + 1])
    return recent >= _LEAST and recent >= _FACTOR * max(before, 1)


def rising(triage: Triage) -> list[BugGroup]:
    """The open groups that rise now."""
    whole = period(triage)
    if whole is None:
        return []
    return [one for one in triage.groups if one.status != "closed" and rises(counts(one, whole))]


def _date(day: str | None) -> date | None:
    try:
        return date.fromisoformat((day or "")[:10])
    except ValueError:
        return None
