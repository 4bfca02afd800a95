"""The memory of a triage: a folder with one SQLite file, or nothing but memory for a single run.

Each change is one transaction under the lock of the folder (``store_lock``), which is held only that long. A process
that is killed leaves a journal beside the file, and the next one rolls it back. SQLite's own locks are off, because
they do not work on every network folder.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import get_args

import msgspec

from necropsy.errors import NecropsyError, NoInputError, UnreadableStoreError
from necropsy.model import DeathSource
from necropsy.triage import store_lock, store_schema
from necropsy.triage.deaths import DeathRow, Fingerprint, storable

FILE = "triage.sqlite"
RANKS: Mapping[str, int] = {source: rank for rank, source in enumerate(get_args(DeathSource))}
"""How informative a death's source is: 0 is the best."""
_COLUMNS = (
    *("path", "place", "document", "pid", "died_at", "source", "host", "rule", "confidence", "ended", "signature"),
    *("summary", "function", "module", "source_line", "python_file", "python_line", "python_function", "op"),
    *("versions", "fingerprint", "run", "line"),
)
_INSERT = f"INSERT INTO death ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"  # noqa: S608 - no input


class FileState(msgspec.Struct, frozen=True, gc=False):
    """A file as it was when it was read."""

    size: int
    mtime_ns: int
    hash: str | None
    has_death: bool
    gaps: tuple[str, ...] = ()


class FileRead(msgspec.Struct, frozen=True, gc=False):
    """A file that has just been read, and the deaths in it."""

    path: str
    size: int
    mtime_ns: int
    hash: str | None
    deaths: tuple[tuple[DeathRow, Fingerprint], ...]
    why: str | None = None
    """Why it could not be read."""
    same: bool = False
    """Its contents are what they were when it was read before; ``deaths`` is empty."""
    grown: bool = False
    """It begins with what it was when it was read before, so its first deaths are those that were read then."""
    gaps: tuple[str, ...] = ()
    """What of it was not read."""


class TriageStore:
    """The store in ``folder``, or in memory where that is None."""

    def __init__(self, folder: Path | None, *, wait_s: float | None = None) -> None:
        self.folder = folder
        self._wait_s = store_lock.WAIT_S if wait_s is None else wait_s
        self._memory: sqlite3.Connection | None = None
        self.run: int | None = None
        """The number of the run that this object has begun."""

    @contextlib.contextmanager
    def session(self, *, create: bool = False) -> Iterator[StoreSession]:
        """One transaction: committed at the end, rolled back where an error ends it.

        ``create``: make the store where there is none.

        Raises:
            NoInputError: there is no store.
            StoreBusyError: another process is writing to it.
            UnreadableStoreError: it is damaged, not a store, or of a newer version.
            NecropsyError: it cannot be written.

        """
        if self.folder is None or self._memory is not None:
            self._memory = self._memory or _connected(":memory:")
            yield from self._transaction(self._memory, None)
            return
        path = self.folder / FILE
        if create:
            _make(self.folder)
        elif not path.exists():
            error = NoInputError(f"there is no store in {self.folder}")
            error.hint = "`necropsy triage PATH --store DIR` makes one"
            raise error
        with store_lock.held(self.folder, self._wait_s):
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            try:
                connection = _connected(f"{path.absolute().as_uri()}?nolock=1")
            except sqlite3.Error as problem:
                raise _damaged(path, problem) from problem
            try:
                yield from self._transaction(connection, path)
            finally:
                connection.close()

    def _transaction(self, connection: sqlite3.Connection, path: Path | None) -> Iterator[StoreSession]:
        try:
            connection.execute("BEGIN IMMEDIATE")
            _check(connection, path)
            yield StoreSession(connection, self)
            connection.execute("COMMIT")
        except BaseException as error:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.DatabaseError):
                raise _damaged(path, error) from error
            raise


def _make(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise NecropsyError(f"cannot make the store {folder}: {error.strerror or error}") from error


def _connected(name: str) -> sqlite3.Connection:
    connection = sqlite3.connect(name, uri=True, isolation_level=None)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.execute("PRAGMA cache_size=-65536")
    return connection


def _check(connection: sqlite3.Connection, path: Path | None) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > store_schema.VERSION:
        error = UnreadableStoreError(f"{path} is of a newer version of necropsy ({version})")
        error.hint = "upgrade necropsy, or name another folder by --store"
        raise error
    if version == store_schema.VERSION:
        return
    if version:
        for statement in (store_schema.UPGRADES[version] + store_schema.VIEWS).split(";"):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {store_schema.VERSION:d}")
        return
    if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise UnreadableStoreError(f"{path} is not a store of necropsy")
    for statement in (store_schema.TABLES + store_schema.VIEWS).split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {store_schema.VERSION:d}")


def _damaged(path: Path | None, problem: sqlite3.Error) -> NecropsyError:
    said = str(problem)
    if isinstance(problem, sqlite3.OperationalError) and "malformed" not in said:
        return NecropsyError(f"cannot use the store {path}: {said}")
    error = UnreadableStoreError(f"the store {path} is damaged: {said}")
    error.hint = "move it away and run the triage again; its groups then get new ids"
    return error


class StoreSession:
    """One transaction on a store."""

    def __init__(self, connection: sqlite3.Connection, store: TriageStore) -> None:
        self.connection = connection
        self._store = store

    # ---------------------------------------------------------------- files and deaths

    def begin_run(self) -> int:
        """Count a run; its number."""
        self._store.run = self.connection.execute("INSERT INTO run (at) VALUES (?)", (now(),)).lastrowid
        return self.run

    @property
    def run(self) -> int:
        """The number of the store object's own run, or of the last one; 0 before the first."""
        if self._store.run is not None:
            return self._store.run
        found: int | None = self.connection.execute("SELECT max(number) FROM run").fetchone()[0]
        return found or 0

    def files(self) -> dict[str, FileState]:
        """The files that were read, by path."""
        rows = self.connection.execute("SELECT path, size, mtime_ns, hash, has_death, gaps FROM file")
        return {
            path: FileState(size, mtime_ns, digest, bool(has), tuple(msgspec.json.decode(gaps, type=list[str])))
            for path, size, mtime_ns, digest, has, gaps in rows
        }

    def touch(self, path: str, mtime_ns: int) -> None:
        """The file has another time and the same contents."""
        self.connection.execute("UPDATE file SET mtime_ns = ? WHERE path = ?", (mtime_ns, path))

    def add(self, files: Iterable[FileRead]) -> int:
        """Keep what was read; the number of deaths that were not known. Files that could not be read are left out.

        A file that was read before loses the deaths that it no longer has, except those of documents: where a document
        was overwritten by that of another run, both are deaths.
        """
        run, added = self.run, 0
        for one in files:
            if one.why is not None:
                continue
            if one.same:
                self.touch(one.path, one.mtime_ns)
                continue
            known = self._forget_texts(one.path)
            for row, fingerprint in one.deaths:
                # Of a log that was written anew, the same text is another death.
                first = known.get((row.number, row.line)) if one.grown and row.document is None else None
                is_new = self._add(row, self._fingerprint(fingerprint), run if first is None else first)
                added += is_new and first is None
            gaps = msgspec.json.encode(one.gaps).decode()
            self.connection.execute(
                "INSERT OR REPLACE INTO file (path, size, mtime_ns, hash, has_death, gaps) VALUES (?, ?, ?, ?, ?, ?)",
                (one.path, one.size, one.mtime_ns, one.hash, bool(one.deaths), gaps),
            )
        return added

    def _forget_texts(self, path: str) -> dict[tuple[int, int | None], int]:
        """The run in which each of the texts was first seen, by its place and line."""
        query = "SELECT place, line, run, bug FROM death WHERE path = ? AND document IS NULL"
        known: dict[tuple[int, int | None], int] = {}
        for place, line, run, bug in self.connection.execute(query, (path,)).fetchall():
            known[place, line] = run
            self.connection.execute("DELETE FROM summary WHERE bug = ?", (bug,))
        self.connection.execute("DELETE FROM death WHERE path = ? AND document IS NULL", (path,))
        return known

    def _fingerprint(self, one: Fingerprint) -> int:
        found = self.connection.execute("SELECT number FROM fingerprint WHERE key = ?", (one.key,)).fetchone()
        if found is not None:
            return int(found[0])
        values = (one.key, msgspec.json.encode(one))
        return int(self.connection.execute("INSERT INTO fingerprint (key, body) VALUES (?, ?)", values).lastrowid or 0)

    def _add(self, row: DeathRow, fingerprint: int, run: int) -> int:
        """1 for a death that was not known. The same document under two names is one death, of the better source."""
        known = None
        if row.document is not None:
            query = "SELECT number, path, source, run FROM death WHERE document = ? AND place = ?"
            known = self.connection.execute(query, (row.document, row.number)).fetchone()
        if known is not None:
            number, path, source, run = known  # it was first seen then
            better = (RANKS[row.source], row.path) < (RANKS[source], path)
            if path == row.path or not (better or not os.path.lexists(path)):
                return 0
            self.connection.execute("DELETE FROM death WHERE number = ?", (number,))
        bug = self.connection.execute("SELECT bug FROM fingerprint WHERE number = ?", (fingerprint,)).fetchone()[0]
        values = (
            *(row.path, row.number, row.document, row.pid, row.died_at, row.source, row.host, row.rule),
            *(row.confidence, row.end, row.signature, row.summary, row.function, row.module, row.source_line),
            *(row.python_file, row.python_line, row.python_function, row.op),
            *(msgspec.json.encode(dict(sorted(row.versions.items()))).decode(), fingerprint, run, row.line),
        )
        death = self.connection.execute(_INSERT, tuple(map(_storable, values))).lastrowid
        self.connection.execute("UPDATE death SET bug = ? WHERE number = ?", (bug, death))
        if bug is not None:
            self.connection.execute("DELETE FROM summary WHERE bug = ?", (bug,))
        return int(known is None)

    # ---------------------------------------------------------------- what was sent

    def unsent(self, receiver: str, items: Iterable[str]) -> tuple[str, ...]:
        """Of ``items`` (ids of groups or of documents) those that ``receiver`` has not got yet, in their order."""
        rows = self.connection.execute("SELECT item FROM sent WHERE receiver = ?", (receiver,))
        known = {item for (item,) in rows}
        return tuple(one for one in items if one not in known)

    def sent(self, receiver: str, items: Iterable[str]) -> None:
        """``receiver`` has got these."""
        rows = [(receiver, item, now()) for item in items]
        self.connection.executemany("INSERT OR IGNORE INTO sent VALUES (?, ?, ?)", rows)


def _storable(value: object) -> object:
    return storable(value) if isinstance(value, str) else value


def now() -> str:
    """ISO 8601 in UTC, to the second."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
