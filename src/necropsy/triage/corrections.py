"""What a person decides about groups: to merge two, to split one, to name it, to close it. Later runs keep to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from necropsy.errors import InputError, OptionError
from necropsy.triage import bugs
from necropsy.triage.deaths import Fingerprint
from necropsy.triage.store import StoreSession, now

SplitBy = Literal["function", "version", "text"]
_LONGEST_NAME = 200


def merge(session: StoreSession, first: str, second: str) -> tuple[str, str]:
    """Make two groups one: the older id stays, and the younger leads to it. Returns the older and the younger id.

    Raises ``NoInputError`` where there is no such group, ``InputError`` where both are the same.
    """
    one, two = bugs.resolved(session, first), bugs.resolved(session, second)
    if one == two:
        raise InputError(f"{first} and {second} are the same group")
    older, younger = sorted((one, two))
    ids = bugs.identity_of(session, older), bugs.identity_of(session, younger)
    parts = [bugs.keys_of(session, number) for number in (older, younger)]
    bugs.absorb(session, younger, older)
    bugs.note(session, "merge", f"{ids[1]} was merged into {ids[0]}", parts)
    return ids


def split(session: StoreSession, identity: str, by: SplitBy) -> tuple[str, ...]:
    """Make groups of a group's parts with different innermost functions, versions or texts. Returns their ids.

    The part with most deaths keeps the id. Raises ``NoInputError`` where there is no such group, ``InputError`` where
    its members do not differ in that.
    """
    number = bugs.resolved(session, identity)
    kept = bugs.identity_of(session, number)
    everything = bugs.fingerprints(session)
    parts: dict[str, list[str]] = {}
    for key in bugs.keys_of(session, number):
        parts.setdefault(_DIFFERENCES[by](everything[key]), []).append(key)
    if len(parts) < 2:
        raise InputError(f"{kept} cannot be split: all its members have the same {by}")
    counts = _counts(session, number)
    ordered = sorted(parts.values(), key=lambda keys: (-sum(counts.get(key, 0) for key in keys), keys))
    ids = [kept]
    for keys in ordered[1:]:
        fresh = bugs.new_identity(session, keys)
        bugs.assign(session, keys, bugs.resolved(session, fresh))
        ids.append(fresh)
    bugs.note(session, "split", f"{kept} was split by {by}; {', '.join(ids[1:])} came of it", ordered)
    return tuple(ids)


def _counts(session: StoreSession, number: int) -> Mapping[str, int]:
    query = """SELECT key, count(*) FROM fingerprint JOIN death ON death.fingerprint = fingerprint.number
               WHERE fingerprint.bug = ? GROUP BY key"""
    return dict(session.connection.execute(query, (number,)).fetchall())


def _function(one: Fingerprint) -> str:
    """The innermost physical one: inlined functions are seen in some builds only."""
    if not one.frames:
        return one.python[0] if one.python else ""
    frame = one.frames[0]
    return frame.names[-1] if frame.names else f"{frame.module}+{frame.offset}"


_DIFFERENCES: dict[SplitBy, Callable[[Fingerprint], str]] = {
    "function": _function,
    "version": lambda one: ", ".join(one.versions),
    "text": lambda one: one.text or "",
}


def name(session: StoreSession, identity: str, text: str) -> str:
    """Give a group a title of its own; an empty one takes it back. Returns the group's id."""
    number = bugs.resolved(session, identity)
    kept = bugs.identity_of(session, number)
    title = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    if len(title) > _LONGEST_NAME:
        raise OptionError(f"a name has at most {_LONGEST_NAME} characters")
    session.connection.execute("UPDATE bug SET name = ? WHERE number = ?", (title or None, number))
    session.connection.execute("DELETE FROM summary WHERE bug = ?", (number,))
    bugs.note(session, "name", f"{kept} was named {title!r}" if title else f"{kept} lost its name")
    return kept


def close(session: StoreSession, identity: str, fixed_in: str | None) -> str:
    """Note that a bug is fixed. It is a regression where it comes back in that version or a later one.

    ``fixed_in``: ``2.1`` or ``PACKAGE 2.1``; None: where it comes back at all. Returns the group's id.
    """
    number = bugs.resolved(session, identity)
    kept = bugs.identity_of(session, number)
    version = " ".join(fixed_in.split()) if fixed_in is not None else None
    if version is not None and not (version and version.isprintable() and len(version) <= _LONGEST_NAME):
        raise OptionError("--fixed-in takes a version such as 2.1, or a package and a version such as 'mylib 2.1'")
    query = "UPDATE bug SET closed_run = ?, closed_at = ?, fixed_in = ? WHERE number = ?"
    session.connection.execute(query, (session.run, now(), version, number))
    session.connection.execute("DELETE FROM summary WHERE bug = ?", (number,))
    bugs.note(session, "close", f"{kept} was closed" + (f", fixed in {version}" if version is not None else ""))
    return kept


def reopen(session: StoreSession, identity: str) -> str:
    """Take ``close`` back. Returns the group's id."""
    number = bugs.resolved(session, identity)
    query = "UPDATE bug SET closed_run = NULL, closed_at = NULL, fixed_in = NULL WHERE number = ?"
    session.connection.execute(query, (number,))
    session.connection.execute("DELETE FROM summary WHERE bug = ?", (number,))
    kept = bugs.identity_of(session, number)
    bugs.note(session, "reopen", f"{kept} was opened again")
    return kept
