"""The known phrases of ``data/phrases.toml``, and how one line is looked up in them.

Every pattern is anchored, at the start of the message, at its literal, or at the beginning of a word: a line of any
length costs one pass per phrase, and only for the few phrases whose literal it holds.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any, Literal, get_args

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - the backport of the same parser
    import tomli as tomllib

Anchor = Literal["start", "must", "token"]

# A word begins at the line's start or behind white space, a quote or a bracket. Because the words do not overlap, a
# search that may only begin there passes over the line once.
_WORD_BEGINS = r"(?<![^\s'\"(\[`])"


def anchored(row: dict[str, Any], at: str) -> str:
    """The pattern of a table's row, anchored at ``at``. Raises ValueError for an unknown anchor."""
    if at not in get_args(Anchor):
        raise ValueError(f"{row['id']}: at = {at!r}; it is one of {', '.join(get_args(Anchor))}")
    return f"{_WORD_BEGINS}(?:{row['pattern']})" if at == "token" else str(row["pattern"])


@dataclass(frozen=True)
class Phrase:
    """One form of one message; see the head of ``data/phrases.toml`` for the fields."""

    id: str
    must: str
    expression: str
    at: Anchor
    example: str
    source: str
    versions: str | None
    verdicts: tuple[str, ...]
    remark: str | None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when its literal is first seen: a process that is dying waits for its log to be read."""
        return re.compile(self.expression)

    def match(self, message: str) -> re.Match[str] | None:
        """Where the phrase is in ``message`` (one line without its envelope), or None."""
        found = message.find(self.must)
        if found < 0:
            return None
        if self.at == "token":
            return self.pattern.search(message)
        return self.pattern.match(message, found if self.at == "must" else 0)


@lru_cache(maxsize=1)
def phrases() -> tuple[Phrase, ...]:
    """All phrases, in the table's order."""
    return parse(files("necropsy.data").joinpath("phrases.toml").read_text(encoding="utf-8"))


def parse(text: str) -> tuple[Phrase, ...]:
    """The phrases of a table. Raises ValueError for a missing or repeated id, or a phrase that is not anchored."""
    first: dict[str, Phrase] = {}
    found = []
    for row in tomllib.loads(text)["phrase"]:
        phrase = _phrase(row, first.get(row["id"]))
        first.setdefault(phrase.id, phrase)
        found.append(phrase)
    return tuple(found)


def _phrase(row: dict[str, Any], first: Phrase | None) -> Phrase:
    at = row.get("at", "start")
    defines = "verdicts" in row or "remark" in row
    if first is not None and defines:
        raise ValueError(
            f"phrase {row['id']} is defined twice, by {first.example!r} and {row['example']!r}: give the second one an "
            "id of its own, or, if it is another form of the same message, leave out its verdicts and remark"
        )
    if first is None and not defines:
        raise ValueError(
            f"phrase {row['id']}: its first form needs `verdicts`, or a `remark` that says why it has none"
        )
    return Phrase(
        id=row["id"],
        must=row["must"],
        expression=anchored(row, at),
        at=at,
        example=row["example"],
        source=row["source"],
        versions=row.get("versions"),
        verdicts=first.verdicts if first else tuple(row.get("verdicts", ())),
        remark=first.remark if first else row.get("remark"),
    )


@lru_cache(maxsize=1)
def _by_must() -> dict[str, tuple[int, ...]]:
    table: dict[str, tuple[int, ...]] = {}
    for index, phrase in enumerate(phrases()):
        table[phrase.must] = (*table.get(phrase.must, ()), index)
    return table


def found_in(message: str, literals: Iterable[str]) -> Iterator[tuple[Phrase, re.Match[str]]]:
    """Every phrase in ``message`` by the ``literals`` in it, at most one form of each id, in the table's order."""
    seen: set[str] = set()
    table = _by_must()
    for index in sorted(index for literal in literals for index in table.get(literal, ())):
        phrase = phrases()[index]
        if phrase.id not in seen and (match := phrase.match(message)):
            seen.add(phrase.id)
            yield phrase, match
