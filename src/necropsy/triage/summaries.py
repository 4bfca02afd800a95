"""What the document says of a group, made from its rows and kept until one of them changes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from necropsy.frame_filter import file_name
from necropsy.model import BugGroup, Culprit, DayCount, GroupMember, MergedStack, PythonPlace
from necropsy.triage.deaths import Fingerprint
from necropsy.triage.merged_stacks import merged
from necropsy.triage.store import RANKS, StoreSession
from necropsy.triage.titles import title

MOST_MEMBERS = 1000
_MOST_SIGNATURES = 50
_SINCE = """ AND coalesce(died_at, (SELECT strftime('%Y-%m-%dT%H:%M:%SZ', mtime_ns / 1000000000, 'unixepoch')
             FROM file WHERE file.path = death.path)) >= ?"""
"""Of a text that does not say when the process died, its file's time counts."""
_RANK = "CASE source " + " ".join(f"WHEN '{source}' THEN {rank}" for source, rank in RANKS.items()) + " END"
_FINGERPRINTS = msgspec.json.Decoder(Fingerprint)
_CULPRIT = "function, module, source_line, python_file, python_line, python_function, op"
_MEMBER = "path, line, document, pid, died_at, source, fit"


def groups(session: StoreSession, since: str | None = None) -> list[BugGroup]:
    """All groups with a death, by count, then by the last death; the latest first.

    ``since``: only what happened then or later counts, ISO 8601 in UTC.
    """
    refresh(session)
    found = _stored(session) if since is None else _filtered(session, since)
    statuses = dict(session.connection.execute("SELECT id, status FROM groups"))
    aliases: dict[int, list[str]] = {}
    for name, bug in session.connection.execute("SELECT id, bug FROM alias ORDER BY id"):
        aliases.setdefault(bug, []).append(name)
    numbers = dict(session.connection.execute("SELECT id, number FROM bug"))
    made = [
        msgspec.structs.replace(one, status=statuses[one.id], aliases=tuple(aliases.get(numbers[one.id], ())))
        for one in found
    ]
    made.sort(key=lambda one: one.id)
    made.sort(key=lambda one: (one.count, one.last or ""), reverse=True)
    return made


def _stored(session: StoreSession) -> list[BugGroup]:
    decoder = msgspec.json.Decoder(BugGroup)
    return [decoder.decode(body) for (body,) in session.connection.execute("SELECT body FROM summary")]


def _filtered(session: StoreSession, since: str) -> list[BugGroup]:
    made = (
        _Summary(session, number, since).group() for (number,) in session.connection.execute("SELECT number FROM bug")
    )
    return [one for one in made if one is not None]


def refresh(session: StoreSession) -> None:
    """Make the summaries that are missing."""
    run = session.connection.execute
    missing = run("SELECT number FROM bug WHERE number NOT IN (SELECT bug FROM summary)").fetchall()
    for (number,) in missing:
        summary = _Summary(session, number, None)
        one = summary.group()
        if one is None:
            continue
        python = one.culprit.python if one.culprit is not None else None
        values = (
            *(number, one.title, one.count, one.first, one.last, one.rule, one.confidence, one.end),
            one.culprit.function if one.culprit is not None else None,
            one.culprit.module if one.culprit is not None else None,
            python.file if python is not None else None,
            python.line if python is not None else None,
            *(summary.is_back(), len(one.hosts), one.texts_only, msgspec.json.encode(one)),
        )
        run(f"INSERT OR REPLACE INTO summary VALUES ({', '.join('?' * len(values))})", values)  # noqa: S608 - no input


class _Summary:
    def __init__(self, session: StoreSession, number: int, since: str | None) -> None:
        self._run = session.connection.execute
        self._number, self._since = number, since
        self._where = f"bug = ?{_SINCE if since is not None else ''}"
        self._values: tuple[Any, ...] = (number,) if since is None else (number, since)

    def _ask(self, what: str, rest: str = "") -> list[Any]:
        return self._run(f"SELECT {what} FROM death WHERE {self._where} {rest}", self._values).fetchall()  # noqa: S608 - no input

    def group(self) -> BugGroup | None:
        """None where no death is left."""
        count, first, last = self._ask("count(*), min(died_at), max(died_at)")[0]
        if not count:
            return None
        identity, name, fixed_in, closed_at, names, why = self._run(
            "SELECT id, name, fixed_in, closed_at, names, why FROM bug WHERE number = ?", (self._number,)
        ).fetchone()
        example = self._example()
        said = self._ask("rule, confidence, count(*)", "GROUP BY rule, confidence ORDER BY 1 IS NULL, 3 DESC, 1, 2")[0]
        end = self._ask("ended, count(*)", "GROUP BY ended ORDER BY 2 DESC, 1")[0][0]
        hosts = self._ask("host, count(*)", "AND host IS NOT NULL GROUP BY host ORDER BY 2 DESC, 1")
        days = self._ask("substr(died_at, 1, 10), count(*)", "AND died_at IS NOT NULL GROUP BY 1 ORDER BY 1")
        signatures = self._ask(
            "signature", f"AND signature IS NOT NULL GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT {_MOST_SIGNATURES}"
        )
        sources = {source for (source,) in self._ask("DISTINCT source")}
        rule, confidence = said[:2]
        made = BugGroup(
            id=identity,
            title="",
            count=count,
            first=first,
            last=last,
            rule=rule,
            confidence=confidence,
            end=end,
            culprit=_culprit(example),
            names=tuple(msgspec.json.decode(names)),
            signatures=tuple(one for (one,) in signatures),
            versions=self._versions(),
            hosts=dict(hosts),
            trend=tuple(DayCount(day=day, count=many) for day, many in days),
            fixed_in=fixed_in,
            closed_at=closed_at,
            why=tuple(msgspec.json.decode(why)),
            worst=self._worst(),
            texts_only=sources == {"log"},
            members=tuple(reversed(self._members(f"ORDER BY died_at DESC, path, place LIMIT {MOST_MEMBERS}"))),
            example=_member(example[: len(_MEMBER.split(", "))]),
            stacks=self._stacks(),
        )
        return msgspec.structs.replace(
            made, title=name or title(made, text=_FINGERPRINTS.decode(example[-2]).text, summary=example[-1])
        )

    def _members(self, rest: str) -> list[GroupMember]:
        rows = self._run(
            f"SELECT {_MEMBER} FROM death JOIN fingerprint ON fingerprint.number = death.fingerprint"  # noqa: S608 - no input
            f" WHERE death.{self._where} {rest}",
            self._values,
        )
        return [_member(row) for row in rows]

    def _example(self) -> tuple[Any, ...]:
        """The most informative: a live capture before a core, a core before a log; then the one with a sure verdict."""
        rows = self._run(
            f"SELECT {_MEMBER}, {_CULPRIT}, body, summary"  # noqa: S608 - no input
            f" FROM death JOIN fingerprint ON fingerprint.number = death.fingerprint WHERE death.{self._where}"
            f" ORDER BY {_RANK}, rule IS NULL, {_SURE}, function IS NULL, source_line IS NULL, died_at DESC, path"
            " LIMIT 1",
            self._values,
        )
        found: tuple[Any, ...] = rows.fetchone()
        return found

    def _stacks(self) -> tuple[MergedStack, ...]:
        counts = dict(self._ask("fingerprint, count(*)", "GROUP BY fingerprint"))
        rows = self._run("SELECT number, body FROM fingerprint WHERE bug = ?", (self._number,))
        return merged((_FINGERPRINTS.decode(body), counts[number]) for number, body in rows if number in counts)

    def _worst(self) -> GroupMember | None:
        """None of a group whose members are all alike."""
        found = self._members("AND fit IS NOT NULL AND fit < 1 ORDER BY fit, died_at DESC, path LIMIT 1")
        return found[0] if found else None

    def _versions(self) -> dict[str, dict[str, int]]:
        return counted_versions(self._ask("versions, count(*)", "GROUP BY versions"))

    def is_back(self) -> bool:
        """It was closed, and has died since in a version that should have the fix."""
        closed_run, fixed_in = self._run(
            "SELECT closed_run, fixed_in FROM bug WHERE number = ?", (self._number,)
        ).fetchone()
        if closed_run is None:
            return False
        query = "SELECT DISTINCT versions FROM death WHERE bug = ? AND run > ?"
        since = self._run(query, (self._number, closed_run)).fetchall()
        if fixed_in is None:
            return bool(since)
        package, wanted = parted(fixed_in)
        return any(
            has_fix(msgspec.json.decode(versions, type=dict[str, str]), package, wanted) for (versions,) in since
        )


_SURE = "CASE confidence WHEN 'certain' THEN 0 WHEN 'likely' THEN 1 ELSE 2 END"


def counted_versions(rows: Iterable[tuple[str, int]]) -> dict[str, dict[str, int]]:
    """By library: how many deaths each of its versions had; the most frequent first."""
    found: dict[str, dict[str, int]] = {}
    for versions, count in rows:
        for library, version in msgspec.json.decode(versions, type=dict[str, str]).items():
            counts = found.setdefault(library, {})
            counts[version] = counts.get(version, 0) + count
    return {
        library: dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))
        for library, counts in sorted(found.items())
    }


def _member(row: tuple[Any, ...]) -> GroupMember:
    path, line, document, pid, died_at, source, fit = row
    return GroupMember(path=path, line=line, id=document, pid=pid, at=died_at, source=source, fit=fit)


def _culprit(example: tuple[Any, ...]) -> Culprit | None:
    function, module, source_line, python_file, python_line, python_function, op = example[7:14]
    python = None
    if python_file is not None or python_function is not None:
        python = PythonPlace(function=python_function, file=python_file, line=python_line)
    if (function, module, python, op) == (None, None, None, None):
        return None
    source, _, line = (source_line or "").rpartition(":")
    numbered = bool(source) and line.isdecimal()
    return Culprit(
        function=function,
        module=file_name(module) if module is not None else None,
        source=source if numbered else source_line,
        line=int(line) if numbered else None,
        python=python,
        op=op,
    )


# ---------------------------------------------------------------- versions


def parted(fixed_in: str) -> tuple[str | None, str]:
    """``tensorflow 2.21``, ``tensorflow==2.21`` or ``2.21``: the library, where it is named, and the version."""
    match = re.fullmatch(r"\s*(?:(?P<library>[A-Za-z][\w.+-]*?)(?:\s+|\s*=+\s*))?v?(?P<version>\S+)\s*", fixed_in)
    return (match["library"], match["version"]) if match is not None else (None, fixed_in.strip())


def has_fix(versions: dict[str, str], library: str | None, wanted: str) -> bool:
    """A death with these versions should have had the fix. False where its version is not known, or cannot be compared.

    Without ``library``, the death has to name one only.
    """
    if library is None and len(versions) != 1:
        return False
    found = next(iter(versions.values())) if library is None else versions.get(library)
    if found is None:
        return False
    from packaging.version import InvalidVersion, Version

    try:
        return Version(found) >= Version(wanted)
    except InvalidVersion:
        return found == wanted
