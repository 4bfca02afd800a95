"""SQL over the store's views, read only: a query changes nothing, opens no other file and loads no code."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from necropsy.errors import InputError
from necropsy.triage import summaries
from necropsy.triage.store import StoreSession

VIEWS = ("groups", "deaths", "members")
_STEPS = 1_000_000
"""Of SQLite's machine, after which Ctrl-C is heard."""


class QueryResult(msgspec.Struct, frozen=True):
    """Rows, and the names of their columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def query(session: StoreSession, sql: str) -> QueryResult:
    """The result of one SELECT; raises ``InputError`` where it is none, or is wrong.

    It has to be the last use of the session.
    """
    summaries.refresh(session)
    connection = session.connection
    for name in ("json_each", "json_tree"):  # SQLite makes these as tables when they are first used
        connection.execute(f"SELECT 1 FROM {name}('[]')").fetchall()  # noqa: S608 - no input
    connection.set_progress_handler(_go_on, _STEPS)
    connection.set_authorizer(_allowed)
    try:
        cursor = connection.execute(sql)
        columns = tuple(one[0] for one in cursor.description or ())
        rows = tuple(map(tuple, cursor))
    except (sqlite3.Error, sqlite3.Warning, ValueError) as problem:
        error = InputError(f"the query cannot be answered: {_told(problem)}")
        error.hint = (
            f"it is one SELECT of SQLite on the views {', '.join(VIEWS)}; a column has the name that the docs give it"
        )
        raise error from None
    finally:
        connection.set_authorizer(None)
        connection.set_progress_handler(None, 0)
    if not columns:
        raise InputError("the query is empty")
    return QueryResult(columns, rows)


def _told(problem: Exception) -> str:
    said = str(problem)
    if "not authorized" in said or "prohibited" in said:
        return "only SELECT is allowed"
    return "give one statement" if "one statement at a time" in said else said


def _go_on() -> int:
    """That Python runs is enough for it to raise what Ctrl-C asks for."""
    return 0


_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})


def _allowed(action: int, first: str | None, second: str | None, _base: str | None, _view: str | None) -> int:
    """What SQLite asks for each thing that a statement would do (sqlite3_set_authorizer)."""
    if action not in _READING:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and "load_extension" in {first, second}:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK
