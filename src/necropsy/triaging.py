"""``necropsy triage``: a folder of deaths becomes a list of bugs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TypeVar

from necropsy import __version__, ray_cluster
from necropsy.document import new_id
from necropsy.errors import OptionError
from necropsy.gathering import read_part
from necropsy.model import Document, Gap, SkippedInput, Subject, SuggestedMerge, Tool, Triage
from necropsy.triage import bugs, cluster, summaries
from necropsy.triage.grouping import group
from necropsy.triage.parts import UnreadFile, read_parts, wanted_jobs
from necropsy.triage.queries import QueryResult, query
from necropsy.triage.store import FileRead, StoreSession, TriageStore
from necropsy.triage.walk import FoundFile, Walked, walk

__all__ = ["Options", "triage", "triaged"]

_ROWS = "rows"
"""The folder in which machines of a cluster leave what they have read."""
Watch = Callable[[str], None]
"""Told how far it is; an empty text: nothing to tell any more."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is wanted. ``since``: ISO 8601 in UTC. ``jobs``: None for as many processes as are worth their start."""

    store: Path | None = None
    since: str | None = None
    jobs: int | None = None
    rebuild: bool = False
    ray: str | None = None
    query: str | None = None


@dataclass(frozen=True)
class Triaged:
    """The document, and the answer to the query if there was one."""

    document: Document
    answer: QueryResult | None = None


def triage(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    store: str | os.PathLike[str] | None = None,
    since: datetime | None = None,
    jobs: int | None = 1,
    ray: str | None = None,
    rebuild: bool = False,
) -> Document:
    """Read everything below ``paths`` that tells of a death, and group the deaths by their bugs.

    ``paths``: folders and files; reports, cores, dumps, logs and JUnit files are known by their contents. ``store``:
    a folder that keeps what was read, so that a later call reads only what is new and groups keep their ids; with a
    store, ``paths`` may be empty. ``since``: only deaths that happened then or later. ``jobs``: how many processes
    read; None for as many as are worth it (they are spawned, so the program needs a ``__main__`` guard). ``ray``: the
    address of a Ray cluster that reads instead, or ``"local"``; with all its CPUs, if ``jobs`` is 1 or None.
    ``rebuild``: form all groups of the store anew; where two become one, the older id stays.

    Returns the document: ``document.triage.groups`` has a group for each bug, the most frequent first.

    Raises:
        necropsy.errors.NoInputError: there is no such folder.
        necropsy.errors.UnreadableStoreError: the store is damaged, or of a newer version.
        necropsy.errors.StoreBusyError: another process is writing to it.

    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    moment = None
    if since is not None:
        moment = since.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    options = Options(
        store=Path(store) if store is not None else None, since=moment, jobs=jobs, ray=ray, rebuild=rebuild
    )
    return triaged(given, options).document


def triaged(paths: Sequence[str | os.PathLike[str]], options: Options, watch: Watch = lambda _text: None) -> Triaged:
    """The document on everything below ``paths``, and what the store has besides.

    Raises as ``triage``.
    """
    if not paths and options.store is None:
        raise OptionError("nothing to read: give a folder or a file, or a store that has been filled")
    if options.ray not in {None, ray_cluster.LOCAL} and options.store is None:
        raise OptionError("--ray ADDRESS goes with --store, in a folder that all machines have at the same path")
    watch("listing files")
    walked = walk(paths, leave_out=[options.store] if options.store is not None else [])
    store = TriageStore(options.store)
    seen = _Seen(walked, options, store)
    if paths:
        seen.read(watch)
    watch("grouping")
    with store.session() as session:
        bugs.regroup(session, group, rebuild=options.rebuild)
        found = seen.told(session)
        answer = query(session, options.query) if options.query is not None else None
    watch("")
    where = [str(Path(one).absolute()) for one in paths] or [str(options.store)]
    document = Document(
        kind="triage",
        id=new_id(),
        tool=Tool(name="necropsy", version=__version__),
        complete=True,
        subject=Subject(kind="folders", path=where[0] if len(where) == 1 else None, text=None),
        triage=found,
        gaps=seen.gaps,
    )
    return Triaged(document, answer)


_Corrected = TypeVar("_Corrected")


def corrected(store: Path, change: Callable[[StoreSession], _Corrected]) -> _Corrected:
    """Change groups of a store by hand; what ``change`` returns. Raises as ``triage``, and what ``change`` raises."""
    with TriageStore(store).session() as session:
        result = change(session)
        bugs.regroup(session, group, anyway=True)
        summaries.refresh(session)
    return result


class _Seen:
    """What a run has read, and what it has not."""

    def __init__(self, walked: Walked, options: Options, store: TriageStore) -> None:
        self._walked, self._options, self._store = walked, options, store
        self._skipped = list(walked.skipped)
        self._gaps: list[Gap] = []
        self._files = self._unchanged = self._without_death = 0

    def read(self, watch: Watch) -> None:
        """Read what is new, and keep it part by part, so that a run that is killed goes on where it was."""
        with self._store.session(create=True) as session:
            session.begin_run()
            work = self._work(session)
        done = 0
        for part in self._parts(work):
            with self._store.session() as session:
                session.add(part)
            done += len(part)
            for one in part:
                if one.why is not None:
                    self._skipped.append(SkippedInput(path=one.path, why=one.why))
                elif one.same:
                    self._unchanged += 1
                else:
                    self._files += 1
                    self._without_death += not one.deaths
                    self._note_gaps(one.path, one.gaps)
            watch(f"{done:,} of {len(work):,} files read")

    def _parts(self, work: Sequence[UnreadFile]) -> Iterator[tuple[FileRead, ...]]:
        options = self._options
        at_a_time = options.jobs if options.jobs is not None and options.jobs > 1 else None
        if options.ray is None:
            yield from read_parts(work, read_part, options.jobs or wanted_jobs(len(work)))
        elif options.store is not None:
            yield from cluster.read_parts(work, read_part, options.ray, options.store / _ROWS, at_a_time)
        else:
            with tempfile.TemporaryDirectory(prefix="necropsy-triage-") as folder:
                yield from cluster.read_parts(work, read_part, options.ray, Path(folder) / _ROWS, at_a_time)

    def _work(self, session: StoreSession) -> list[UnreadFile]:
        known = session.files()
        work = []
        for file in self._walked.files:
            before = known.get(file.name)
            if before is not None and (before.size, before.mtime_ns) == (file.size, file.mtime_ns):
                self._unchanged += 1
                self._without_death += not before.has_death
                self._note_gaps(file.name, before.gaps)
            elif before is not None or not self._is_too_old(file):
                work.append(UnreadFile(file, before.hash, before.size) if before is not None else UnreadFile(file))
        return work

    def _note_gaps(self, path: str, gaps: Iterable[str]) -> None:
        self._gaps += [Gap(part="file", why=f"{path}: {why}") for why in gaps]

    def _is_too_old(self, file: FoundFile) -> bool:
        """It was written before what is asked for has happened."""
        if self._options.since is None:
            return False
        written = datetime.fromtimestamp(file.mtime_ns / 1e9, timezone.utc)
        return written.strftime("%Y-%m-%dT%H:%M:%SZ") < self._options.since

    @property
    def gaps(self) -> tuple[Gap, ...]:
        return tuple(sorted(self._gaps, key=lambda one: one.why))

    def told(self, session: StoreSession) -> Triage:
        groups = tuple(summaries.groups(session, self._options.since))
        return Triage(
            groups=groups,
            deaths=sum(one.count for one in groups),
            files=self._files,
            unchanged=self._unchanged,
            without_death=self._without_death,
            skipped=tuple(sorted(self._skipped, key=lambda one: one.path)),
            suggested_merges=tuple(
                SuggestedMerge(groups=(older, younger), evidence=evidence)
                for older, younger, evidence in bugs.suggestions(session)
            ),
            corrections=bugs.corrections(session),
        )
