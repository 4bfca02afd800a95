"""A campaign's findings so far, kept in its folder: a stopped campaign continues from there.

Each completed run is one line of JSON; a truncated line is run again. The folder is locked while a campaign uses it.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast, get_args

import msgspec

from necropsy.confirm import forking, measure
from necropsy.confirm.forking import ForkServer
from necropsy.confirm.runner import NO_REPORT, Runner, TrialRun, filled
from necropsy.errors import NecropsyError
from necropsy.model import Change, Culprit, Diagnosis, Outcome

_Kind = TypeVar("_Kind")
_OUTCOMES = frozenset(get_args(Outcome))


@dataclass(frozen=True)
class Entry:
    """One run that was made."""

    outcome: Outcome
    why: str | None = None
    wall_s: float | None = None
    measures: Mapping[str, float] = field(default_factory=dict)
    rule: str | None = None
    where: str | None = None
    culprit: Culprit | None = None
    seen: Diagnosis | None = None


class Journal:
    """The runs of one campaign in ``folder`` (0700), for ``key``: what is run, and what is looked for.

    Raises ``NecropsyError`` if another campaign uses the folder, and ``OSError`` if it cannot be made or written.
    """

    def __init__(self, folder: Path, key: str) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = folder
        self._handle = os.open(folder / "journal.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._handle)
            raise NecropsyError(f"another campaign works in {folder}") from error
        self._known = _read(folder / "journal.jsonl", key)
        if not self._known:
            os.ftruncate(self._handle, 0)
            self._write({"campaign": key})
        self.resumed = len(self._known)

    def known(self, name: str, number: int) -> Entry | None:
        """The run ``number`` of the experiment ``name``, where it was made before."""
        return self._known.get((name, number))

    def add(self, name: str, number: int, entry: Entry) -> None:
        """Keep a run that has ended."""
        self._known[name, number] = entry
        row = {"name": name, "run": number, "outcome": entry.outcome, "why": entry.why, "wall_s": entry.wall_s}
        row |= {"measures": dict(entry.measures), "rule": entry.rule, "where": entry.where}
        self._write({**row, "culprit": msgspec.to_builtins(entry.culprit), "seen": msgspec.to_builtins(entry.seen)})

    def close(self) -> None:
        """Let others work in the folder."""
        os.close(self._handle)

    def _write(self, row: Mapping[str, object]) -> None:
        os.write(self._handle, (json.dumps(row) + "\n").encode())


def _read(path: Path, key: str) -> dict[tuple[str, int], Entry]:
    """Only runs of the same campaign, without damaged lines."""
    known: dict[tuple[str, int], Entry] = {}
    for place, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines()):
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if not isinstance(row, dict):
            continue
        if place == 0 and row.get("campaign") != key:
            return {}
        name, number, outcome = row.get("name"), row.get("run"), row.get("outcome")
        if isinstance(name, str) and isinstance(number, int) and outcome in _OUTCOMES:
            known[name, number] = Entry(
                cast("Outcome", outcome),
                row.get("why"),
                row.get("wall_s"),
                row.get("measures") or {},
                row.get("rule"),
                row.get("where"),
                _as(Culprit, row.get("culprit")),
                _as(Diagnosis, row.get("seen")),
            )
    return known


def _as(kind: type[_Kind], value: object) -> _Kind | None:
    try:
        return None if value is None else msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return None


def _why(run: TrialRun) -> str | None:
    """Why a checker could not watch the run, or its note."""
    return run.said.note if run.said is not None else None


class Journaled:
    """A bench that makes each run once, and reads it from the journal ever after."""

    def __init__(self, runner: Runner, journal: Journal, signal: str | None = None) -> None:
        """``signal``: the name of the one that the death was by, which a fork has to die by."""
        self._runner, self._journal, self._signal = runner, journal, signal
        self._forks: ForkServer | None = None
        self.why_fresh: str | None = None

    def trial(self, name: str, number: int, change: Change) -> Entry:
        """The run ``number`` of ``name``: from the journal, or made now."""
        known = self._journal.known(name, number)
        if known is not None:
            return known
        run = self._runner.run(change, always=True)
        said, culprit = measure.verdict_of(run), measure.culprit_of(run)
        why, seen = run.why or _why(run), measure.seen_of(run)
        entry = Entry(run.outcome, why, run.wall_s, measure.of_run(run), *said, culprit, seen)
        if run.why != NO_REPORT:
            # Else somebody has ended it, a campaign that is being killed perhaps: it is made again.
            self._journal.add(name, number, entry)
        return entry

    def quick(self, name: str, number: int, change: Change) -> Entry | None:
        """The same in a fork of an interpreter that has the program's imports done; None where that is not safe."""
        known = self._journal.known(name, number)
        if known is not None:
            return known
        if not forking.takes(change) or self.why_fresh is not None:
            return None
        target = self._runner.target
        if target.reads is not None:
            self.why_fresh = "each run reads its input from the beginning"
            return None
        words = [filled(word, {**target.defaults, **change.arguments}) for word in target.command]
        try:
            if self._forks is None:
                self._forks = forking.ForkServer(words, target.folder, target.environment)
            place = words.index(self._forks.script)
        except forking.UnsafeError as error:
            self.why_fresh = str(error)
            return None
        began = time.monotonic()
        answer = self._forks.run(words[place + 1 :], self._runner.timeout_s)
        if answer is None:
            self.why_fresh = "the interpreter that was forked has gone"
            return None
        status, timed_out = answer
        entry = Entry(forking.outcome(status, self._signal, timed_out=timed_out), None, time.monotonic() - began)
        self._journal.add(name, number, entry)
        return entry

    def close(self) -> None:
        """End the processes that are forked."""
        self._runner.close()
        if self._forks is not None:
            self._forks.close()
