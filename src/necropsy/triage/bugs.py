"""The groups in a store: which fingerprints they have, how they change, and what was corrected by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from necropsy.errors import NoInputError
from necropsy.triage.deaths import Fingerprint
from necropsy.triage.identities import LAST, KeysOfOneBug, NamedGroup, fresh, named, rebuilt, united
from necropsy.triage.store import StoreSession, now


class GroupedKeys(Protocol):
    """What ``grouping.group`` returns."""

    @property
    def groups(self) -> Sequence[KeysOfOneBug]:
        """Every key is in one of them."""

    @property
    def suggested(self) -> Sequence[tuple[str, str, str]]:
        """Ids of two groups that look like one, the older first, and the evidence."""


Group = Callable[[Mapping[str, Fingerprint], Mapping[str, str], Collection[frozenset[str]]], GroupedKeys]
"""``grouping.group``."""


class Constraints(msgspec.Struct, frozen=True, kw_only=True):
    """What a person has decided about keys."""

    together: tuple[tuple[str, str], ...] = ()
    apart: frozenset[frozenset[str]] = frozenset()


def fingerprints(session: StoreSession) -> dict[str, Fingerprint]:
    """All of them by their keys."""
    decoder = msgspec.json.Decoder(Fingerprint)
    rows = session.connection.execute("SELECT key, body FROM fingerprint ORDER BY key")
    return {key: decoder.decode(body) for key, body in rows}


def resolved(session: StoreSession, identity: str) -> int:
    """The number of the group with this id, or whose alias it is; raises ``NoInputError``."""
    query = "SELECT number FROM bug WHERE id = ? UNION ALL SELECT bug FROM alias WHERE id = ?"
    found = session.connection.execute(query, (identity, identity)).fetchone()
    if found is None:
        from difflib import get_close_matches

        ids = [name for (name,) in session.connection.execute("SELECT id FROM bug")]
        close = get_close_matches(identity, ids, n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise NoInputError(f"there is no group {identity}{meant}")
    return int(found[0])


def identity_of(session: StoreSession, number: int) -> str:
    """The id of a group."""
    return str(session.connection.execute("SELECT id FROM bug WHERE number = ?", (number,)).fetchone()[0])


def keys_of(session: StoreSession, number: int) -> list[str]:
    """The keys of a group."""
    rows = session.connection.execute("SELECT key FROM fingerprint WHERE bug = ? ORDER BY key", (number,))
    return [key for (key,) in rows]


def taken(session: StoreSession) -> set[str]:
    """Ids that mean a group, aliases too."""
    return {name for (name,) in session.connection.execute("SELECT id FROM bug UNION ALL SELECT id FROM alias")}


def new_identity(session: StoreSession, keys: Sequence[str]) -> str:
    """Make a group for these keys, still without members; its id."""
    known = ages(session)
    identity = fresh(min(keys, key=lambda key: (*known.get(key, LAST), key)), taken(session))
    session.connection.execute("INSERT INTO bug (id, run) VALUES (?, ?)", (identity, session.run))
    return identity


def ages(session: StoreSession) -> dict[str, tuple[str, str]]:
    """What sorts keys by age: when the first of their deaths was, and where it was read."""
    query = """SELECT key, min(coalesce(died_at, '~') || char(10) || path) FROM fingerprint
               JOIN death ON death.fingerprint = fingerprint.number GROUP BY key"""
    return {key: (oldest.partition("\n")[0], "") for key, oldest in session.connection.execute(query)}


def regroup(session: StoreSession, group: Group, *, rebuild: bool = False, anyway: bool = False) -> None:
    """Find the groups of the keys that have none yet; of all keys with ``rebuild``. Ids that exist stay.

    ``anyway``: describe the groups again where there is no new key either.
    """
    query = "SELECT count(*) FROM fingerprint WHERE bug IS NULL"
    if not (rebuild or anyway or session.connection.execute(query).fetchone()[0]):
        return
    everything = fingerprints(session)
    pairs = "SELECT key, id FROM fingerprint JOIN bug ON bug.number = fingerprint.bug"
    before: dict[str, str] = dict(session.connection.execute(pairs).fetchall())
    limits = constraints(session)
    found = group(everything, {} if rebuild else before, limits.apart)
    parts = united(found.groups, limits.together)
    if rebuild:
        order = [name for (name,) in session.connection.execute("SELECT id FROM bug ORDER BY number")]
        counted = """SELECT key, count(*) FROM fingerprint JOIN death ON death.fingerprint = fingerprint.number
                     GROUP BY key"""
        parts = rebuilt(parts, before, order, dict(session.connection.execute(counted).fetchall()))
        session.connection.execute("DELETE FROM suggestion")
    for one in named(parts, ages(session), taken(session)):
        _keep(session, one, before)
    _suggest(session, found.suggested)


def _keep(session: StoreSession, one: NamedGroup, before: Mapping[str, str]) -> None:
    run = session.connection.execute
    if one.is_new:
        run("INSERT INTO bug (id, run) VALUES (?, ?)", (one.id, session.run))
    number = resolved(session, one.id)
    described = (msgspec.json.encode(one.names).decode(), msgspec.json.encode(one.why).decode())
    if run("SELECT names, why FROM bug WHERE number = ?", (number,)).fetchone() != described:
        run("UPDATE bug SET names = ?, why = ? WHERE number = ?", (*described, number))
        run("DELETE FROM summary WHERE bug = ?", (number,))
    known: dict[str, float | None] = dict(run("SELECT key, fit FROM fingerprint WHERE bug = ?", (number,)).fetchall())
    moved = [key for key in one.keys if before.get(key) != one.id or key not in known]
    assign(session, moved, number)
    fits = [(one.fit.get(key), key) for key in one.keys if known.get(key) != one.fit.get(key)]
    session.connection.executemany("UPDATE fingerprint SET fit = ? WHERE key = ?", fits)
    if fits:
        run("DELETE FROM summary WHERE bug = ?", (number,))
    for younger in one.absorbed:
        absorb(session, resolved(session, younger), number)


def assign(session: StoreSession, keys: Iterable[str], number: int) -> None:
    """These keys and their deaths belong to the group from now on."""
    run = session.connection.execute
    for key in keys:
        fingerprint, old = run("SELECT number, bug FROM fingerprint WHERE key = ?", (key,)).fetchone()
        run("UPDATE fingerprint SET bug = ? WHERE number = ?", (number, fingerprint))
        run("UPDATE death SET bug = ? WHERE fingerprint = ?", (number, fingerprint))
        run("DELETE FROM summary WHERE bug IN (?, ?)", (old, number))


def absorb(session: StoreSession, younger: int, older: int) -> None:
    """One group becomes part of another; its id leads there from now on."""
    if younger == older:
        return
    run = session.connection.execute
    assign(session, keys_of(session, younger), older)
    name, fixed, closed_at, closed_run = run(
        "SELECT name, fixed_in, closed_at, closed_run FROM bug WHERE number = ?", (younger,)
    ).fetchone()
    run("UPDATE bug SET name = coalesce(name, ?) WHERE number = ?", (name, older))
    if closed_run is None:  # an open bug is not closed by a closed one
        run("UPDATE bug SET closed_run = NULL, closed_at = NULL, fixed_in = NULL WHERE number = ?", (older,))
    del fixed, closed_at
    run("UPDATE alias SET bug = ? WHERE bug = ?", (older, younger))
    run("INSERT INTO alias VALUES (?, ?)", (identity_of(session, younger), older))
    run("DELETE FROM bug WHERE number = ?", (younger,))
    run("DELETE FROM suggestion WHERE ? IN (older, younger)", (younger,))
    run("DELETE FROM summary WHERE bug IN (?, ?)", (older, younger))


def _suggest(session: StoreSession, suggested: Iterable[tuple[str, str, str]]) -> None:
    for first, second, evidence in suggested:
        older, younger = sorted((resolved(session, first), resolved(session, second)))
        if older != younger:
            values = (older, younger, evidence)
            session.connection.execute("INSERT OR REPLACE INTO suggestion VALUES (?, ?, ?)", values)


def suggestions(session: StoreSession) -> list[tuple[str, str, str]]:
    """Ids of two groups that look like one, the older first, and the evidence."""
    query = """SELECT older.id, younger.id, evidence FROM suggestion
               JOIN bug AS older ON older.number = suggestion.older
               JOIN bug AS younger ON younger.number = suggestion.younger ORDER BY older.number, younger.number"""
    return list(session.connection.execute(query))


# ---------------------------------------------------------------- what a person has decided


class Correction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of a merge: the keys of both groups. Of a split: the keys of each part."""

    parts: tuple[tuple[str, ...], ...] = ()


def note(session: StoreSession, kind: str, text: str, parts: Sequence[Sequence[str]] = ()) -> None:
    """Remember a correction; ``text`` is a sentence."""
    body = msgspec.json.encode(Correction(parts=tuple(tuple(sorted(one)) for one in parts))).decode()
    values = (now(), kind, text, body)
    session.connection.execute("INSERT INTO correction (at, kind, text, body) VALUES (?, ?, ?, ?)", values)


def corrections(session: StoreSession) -> tuple[str, ...]:
    """What was corrected, oldest first: ``2026-11-24T10:00:00Z: g12345678 was merged into g9abcdef0.``."""
    rows = session.connection.execute("SELECT at, text FROM correction ORDER BY number")
    return tuple(f"{at}: {text}" for at, text in rows)


def constraints(session: StoreSession) -> Constraints:
    """Keys that belong together and keys that do not, by what was decided last."""
    together: list[tuple[str, str]] = []
    apart: set[frozenset[str]] = set()
    rows = session.connection.execute(
        "SELECT kind, body FROM correction WHERE kind IN ('merge', 'split') ORDER BY number"
    )
    for kind, body in rows:
        parts = msgspec.json.decode(body, type=Correction).parts
        crossing = {
            frozenset((first, second))
            for place, part in enumerate(parts)
            for other in parts[place + 1 :]
            for first in part
            for second in other
        }
        if kind == "merge":
            apart -= crossing
            together.append((parts[0][0], parts[1][0]))
        else:
            apart |= crossing
            together = [pair for pair in together if frozenset(pair) not in crossing]
    return Constraints(together=tuple(together), apart=frozenset(apart))
