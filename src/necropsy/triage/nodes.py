"""Fingerprints that compare alike are one node, so that the work does not grow with the number of deaths."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from necropsy.triage.deaths import Fingerprint, FramePlace

_COMPARED = 4
"""How many frames of a stack are compared at most."""
UNKNOWN = ("?", "")
"""A function that has no name, in a library without a build ID."""
Code = tuple[str, str]
"""Build ID and offset."""


@dataclass(eq=False)
class Node:
    """Deaths with the same end, words, innermost function and caller: they are one bug without comparison."""

    number: int
    before: str | None
    """The id of the group that it is in already."""
    family: str
    end: str
    text: str | None
    verdict: str | None
    """Of deaths without frames of the program."""
    chain: tuple[tuple[str, str], ...]
    """Last component and full name of every function, inlined ones too, innermost first; nameless code by its place.
    Beyond the caller, of one of its deaths."""
    period: frozenset[str]
    has_lines: bool
    """Debug information was there: functions that are missing were not inlined."""
    line: tuple[str, int] | None
    """Of the innermost function: file and line."""
    keys: list[str] = field(default_factory=list)
    routes: set[tuple[str, ...]] = field(default_factory=set)
    """The Python functions that led there."""
    python_lines: set[str] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)
    """The callers of the caller."""
    builds: set[str] = field(default_factory=set)
    codes: set[Code] = field(default_factory=set)
    """Of the innermost frame."""


class Book:
    """What other reports of a build call its code: build ID and offset -> the frame with most names."""

    def __init__(self, everything: Iterable[Fingerprint]) -> None:
        self._known: dict[Code, FramePlace] = {}
        for one in everything:
            for place in (*one.frames, *one.period):
                code = code_of(place)
                if code is None or not place.qualified:
                    continue
                known = self._known.get(code)
                if known is None or _richness(place) > _richness(known):
                    self._known[code] = place

    def named(self, place: FramePlace) -> FramePlace:
        """The frame with the names, and the lines, that are known of its code."""
        code = code_of(place)
        known = self._known.get(code) if code is not None else None
        if known is None or _richness(known) <= _richness(place) or not set(place.names) <= set(known.names):
            return place
        return msgspec.structs.replace(place, names=known.names, qualified=known.qualified, lines=known.lines)


def _richness(place: FramePlace) -> tuple[int, int, int, tuple[str, ...], tuple[str, ...]]:
    return (len(place.names), len(place.lines), len(place.qualified), place.qualified, place.lines)


def code_of(place: FramePlace) -> Code | None:
    """None where the library has no build ID."""
    return (place.build_id, place.offset) if place.build_id and place.offset else None


def nodes(
    everything: Mapping[str, Fingerprint], before: Mapping[str, str], single: Collection[str], book: Book
) -> list[Node]:
    """All deaths as nodes, in an order that depends on nothing but themselves; keys in ``single`` are one each."""
    found: dict[object, Node] = {}
    for key in sorted(everything):
        one = everything[key]
        frames = _informative([book.named(place) for place in one.frames])[:_COMPARED]
        period = _period(one, book)
        lines = frames[0].lines if frames else ()
        native = bool(frames or period)
        chain = _chain(frames)
        identity: object = (
            before.get(key),
            key if key in single else None,
            *(one.family, one.end, one.text, period),
            chain[:2] if not period else None,
            key if chain[:1] == (UNKNOWN,) and not period else None,
            _line(lines),
            None if native else (one.python, one.python_line, one.verdict),
        )
        node = found.get(identity)
        if node is None:
            node = found[identity] = Node(
                number=len(found),
                before=before.get(key),
                family=one.family,
                end=one.end,
                text=one.text,
                verdict=one.verdict if not native else None,
                chain=chain,
                period=period,
                has_lines=bool(lines),
                line=_line(lines),
            )
        node.keys.append(key)
        node.chain = min(node.chain, chain)
        node.outer |= {name for name, _ in chain[2:3]}
        if one.python:
            node.routes.add(one.python)
        if one.python_line is not None:
            node.python_lines.add(one.python_line)
        if frames and frames[0].build_id:
            node.builds.add(frames[0].build_id)
        if frames and (code := code_of(frames[0])) is not None:
            node.codes.add(code)
    return list(found.values())


def _informative(frames: list[FramePlace]) -> tuple[FramePlace, ...]:
    """Without code of the C++ library's templates that has no better name."""
    telling = tuple(place for place in frames if place.names or not place.qualified)
    return telling if any(place.names for place in telling) else tuple(frames)


def _chain(frames: Iterable[FramePlace]) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    for place in frames:
        code = code_of(place)
        nameless = (f"{code}", "") if code is not None else UNKNOWN
        names = list(zip(place.names, place.qualified, strict=True)) if place.names else [nameless]
        for name in names:
            if not found or found[-1][0] != name[0]:
                found.append(name)
    return tuple(found)


def _period(one: Fingerprint, book: Book) -> frozenset[str]:
    named = [book.named(place) for place in one.period]
    names = {name for place in named for name in place.names}
    return frozenset(names or {f"{code}" for place in named if (code := code_of(place)) is not None})


def _line(lines: tuple[str, ...]) -> tuple[str, int] | None:
    if not lines:
        return None
    file, _, number = lines[0].rpartition(":")
    return file, int(number)
