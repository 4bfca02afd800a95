"""Which group keeps which id. Pure: no store, no clock, no order of the input."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec


class KeysOfOneBug(Protocol):
    """A group as ``grouping`` makes it."""

    @property
    def id(self) -> str | None:
        """The group that it was before."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Of its fingerprints."""

    @property
    def names(self) -> tuple[str, ...]:
        """What its members have in common."""

    @property
    def why(self) -> tuple[str, ...]:
        """Why they are one, in sentences."""

    @property
    def fit(self) -> Mapping[str, float]:
        """How well each key fits, from 0 to 1."""


class NamedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group with its id, and with the ids of groups that became part of it."""

    id: str
    is_new: bool = False
    absorbed: tuple[str, ...] = ()
    keys: tuple[str, ...]
    names: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    fit: dict[str, float] = {}


BY_HAND = "Two groups were merged by hand."


def united(groups: Sequence[KeysOfOneBug], together: Iterable[tuple[str, str]]) -> list[NamedGroup]:
    """Join the groups of each pair of keys that was merged by hand; their ids are still those from before, or empty."""
    parts = [_plain(one) for one in groups]
    for first, second in together:
        a = next((one for one in parts if first in one.keys), None)
        b = next((one for one in parts if second in one.keys), None)
        if a is None or b is None:
            continue
        if a is b:
            parts[parts.index(a)] = msgspec.structs.replace(a, why=tuple(dict.fromkeys((*a.why, BY_HAND))))
            continue
        whole = NamedGroup(
            id=a.id or b.id,
            keys=tuple(sorted({*a.keys, *b.keys})),
            names=tuple(name for name in a.names if name in b.names) or a.names,
            why=tuple(dict.fromkeys((*a.why, *b.why, BY_HAND))),
            fit={**a.fit, **b.fit},
        )
        parts = [one for one in parts if one is not a and one is not b] + [whole]
    return parts


def _plain(one: KeysOfOneBug) -> NamedGroup:
    return NamedGroup(id=one.id or "", keys=tuple(sorted(one.keys)), names=one.names, why=one.why, fit=dict(one.fit))


def named(
    groups: Sequence[NamedGroup], ages: Mapping[str, tuple[str, str]], taken: Collection[str]
) -> list[NamedGroup]:
    """Give an id to each group that has none, in the order of their oldest members.

    ``ages``: by key, what sorts it by age. ``taken``: ids that mean something already, aliases too.
    """
    used = set(taken)
    found = []
    for one in sorted(groups, key=lambda one: min((*ages.get(key, LAST), key) for key in one.keys)):
        if one.id:
            found.append(one)
            continue
        oldest = min(one.keys, key=lambda key: (*ages.get(key, LAST), key))
        identity = fresh(oldest, used)
        used.add(identity)
        found.append(msgspec.structs.replace(one, id=identity, is_new=True))
    return found


LAST = ("~", "~")
"""Sorts behind every time."""


def fresh(key: str, used: Collection[str]) -> str:
    """``g3fa9c1d2``: the letter tells it from the id of a report. Longer where two groups would share it."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return next(name for name in (f"g{digest[:size]}" for size in range(8, 65)) if name not in used)


def rebuilt(
    groups: Sequence[NamedGroup], before: Mapping[str, str], order: Sequence[str], counts: Mapping[str, int]
) -> list[NamedGroup]:
    """Give the ids from before to groups that were made from scratch.

    Each id goes to the group that has most of its deaths; where two ids meet, the older one stays and the younger leads
    to it. ``before``: the id of each key. ``order``: all ids, oldest first. ``counts``: the deaths of each key.
    """
    holders: dict[str, dict[int, int]] = {}
    for place, one in enumerate(groups):
        for key in one.keys:
            if key in before:
                shares = holders.setdefault(before[key], {})
                shares[place] = shares.get(place, 0) + max(1, counts.get(key, 0))
    ids: dict[int, list[str]] = {}
    for identity in order:
        shares = holders.get(identity, {})
        if shares:
            ids.setdefault(min(shares, key=lambda place: (-shares[place], groups[place].keys)), []).append(identity)
    return [
        msgspec.structs.replace(one, id=(ids.get(place) or [""])[0], absorbed=tuple(ids.get(place, ())[1:]))
        for place, one in enumerate(groups)
    ]
