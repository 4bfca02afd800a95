"""The reports folder: each run with something to report is kept as a capsule.

A capsule's name is ``20261121T004512Z-9f86d081.rank3.necropsy``: the document's id, which begins with the time, and
the worker's name if there are several. A failure must not affect the run: an ``OSError`` becomes a line of text.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import BinaryIO

from necropsy import report_archive
from necropsy.errors import InputError, NoInputError
from necropsy.model import Document

SUFFIX = ".necropsy"
KEEP = 50
"""Reports to keep unless NECROPSY_KEEP is set; the oldest are removed."""
_OLD_S = 3600
_WORKERS = (
    ("RANK", "rank"),
    ("SLURM_PROCID", "rank"),
    ("OMPI_COMM_WORLD_RANK", "rank"),
    ("LOCAL_RANK", "local-rank"),
    ("PYTEST_XDIST_WORKER", ""),
)


def folder(variables: Mapping[str, str] = os.environ) -> Path | None:
    """The reports folder: NECROPSY_OUTPUT, or the user's state folder; None if the user has no home folder."""
    named = variables.get("NECROPSY_OUTPUT")
    if named:
        try:
            return Path(named).absolute()
        except OSError:  # it is meant from here, and the working directory has been removed
            return None
    import platformdirs

    try:
        place = platformdirs.user_state_path("necropsy", appauthor=False)
    except (OSError, RuntimeError, KeyError):
        return None
    # Without a home, "~" stays what it is, and a folder of that name would be made where the user stands.
    return place / "reports" if place.is_absolute() else None


def limit(variables: Mapping[str, str] = os.environ) -> int:
    """How many reports are kept; 0 keeps none. What is no number counts as not set: see ``limit_problem``."""
    try:
        return max(0, int(variables.get("NECROPSY_KEEP", KEEP)))
    except ValueError:
        return KEEP


def limit_problem(variables: Mapping[str, str] = os.environ) -> str | None:
    """What is wrong with NECROPSY_KEEP, in a line; None where it is not set or a number."""
    value = variables.get("NECROPSY_KEEP", "0")
    try:
        int(value)
    except ValueError:
        return f"NECROPSY_KEEP={value[:20]!r} is not a number: {KEEP} reports are kept"
    return None


def worker(document: Document, variables: Mapping[str, str] = os.environ) -> str | None:
    """The worker (``rank3``, ``gw0``), from the dead process's variables or our own; None if no launcher set one."""
    environment = document.reports[0].crash.environment if document.reports else None
    for source in ((environment.variables if environment else None) or {}, variables):
        for name, prefix in _WORKERS:
            value = source.get(name, "")
            if re.fullmatch(r"[A-Za-z0-9_-]{1,32}", value):
                return prefix + value
    return None


def name_of(document: Document) -> str:
    """The document's id, with the worker's name where it has one: ``20261121T004512Z-9f86d081.rank3``."""
    name = worker(document)
    return f"{document.id}.{name}" if name else document.id


def short(identity: str) -> str:
    """The part of an id behind the time, by which a report is named on the command line."""
    return identity.partition("-")[2] or identity


def keep(
    document: Document,
    text: str,
    place: Path,
    *,
    cores: Mapping[tuple[int, str | None], BinaryIO] | None = None,
    most: int = KEEP,
) -> Path:
    """Write a capsule in ``place`` and remove the oldest beyond ``most``.

    ``cores``: gzip data by process and time of death. Raises ``OSError`` and leaves nothing behind if that fails.
    """
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = place / (name_of(document) + SUFFIX)
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=SUFFIX + ".part", dir=place)
    try:
        with os.fdopen(handle, "wb") as file:
            report_archive.write(file, document, text, cores)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _prune(place, most)
    return path


def _prune(place: Path, most: int) -> None:
    """Failures are ignored: the new report is written, and other users' files are theirs."""
    try:
        old = kept(place)[max(1, most) :]
    except NoInputError:
        old = []  # a folder that may be written to, and not read
    for path in old:
        with contextlib.suppress(OSError):
            path.unlink()
    # What a killed writer left.
    for path in place.glob(f".*{SUFFIX}.part"):
        try:
            if time.time() - path.stat().st_mtime > _OLD_S:
                path.unlink()
        except OSError:  # noqa: PERF203 - another writer has renamed or removed it
            continue


# ---------------------------------------------------------------- reading


def kept(place: Path) -> list[Path]:
    """The capsules, newest first; empty if there is no folder. Raises ``NoInputError`` if it may not be read."""
    try:
        names = [path for path in place.iterdir() if path.suffix == SUFFIX and not path.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise NoInputError(f"cannot read {place}: {error.strerror or error}") from error
    return sorted(names, key=_age, reverse=True)


def _age(path: Path) -> tuple[str, int, str]:
    """The second in its name, then the time of writing: one second can have two crashes."""
    try:
        written = path.stat().st_mtime_ns
    except OSError:
        written = 0
    return path.name[: len("20260101T000000Z")], written, path.name


def identity_of(path: Path) -> str:
    """The id that a capsule has by its name."""
    return path.name.partition(".")[0]


def worker_of(path: Path) -> str | None:
    """The worker's name in a capsule's name."""
    parts = path.name.removesuffix(SUFFIX).partition(".")
    return parts[2] or None


_NEWEST = frozenset({"last", "latest", "newest", "-1"})
_PLACE = re.compile(r"[1-9]\d{0,2}")
_FULL = re.compile(r"\d{8}T")
"""A whole id begins with the day."""


def find(place: Path, wanted: str | None) -> Path:
    """Find the newest capsule, or the one that ``wanted`` names; raises ``NoInputError`` or ``InputError`` (ambiguous).

    ``last`` is the newest; a number counts back from it (1 is the newest); anything else begins an id, with
    or without the time in front.
    """
    paths = kept(place)
    if not paths:
        raise NoInputError(f"no reports are kept in {place} yet: `necropsy run COMMAND` keeps one of each crash")
    if wanted is None or wanted.lower() in _NEWEST:
        return paths[0]
    beginning = wanted.lower()
    found = [path for path in paths if beginning and _begins(identity_of(path), beginning)]
    if _PLACE.fullmatch(wanted):
        # An id is eight digits long, so a short number is a place in the list; a longer one may be either.
        if int(wanted) <= len(paths):
            return paths[int(wanted) - 1]
        if not found:
            raise NoInputError(f"no report {wanted} was found: {len(paths)} are kept (`necropsy list` shows them)")
    if not found:
        from difflib import get_close_matches

        close = get_close_matches(beginning, [short(identity_of(path)) for path in paths], n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise NoInputError(f"no report {wanted} is kept in {place}{meant} (`necropsy list` shows them)")
    if len(found) > 1:
        names = ", ".join(short(identity_of(path)) for path in found[:3])
        raise InputError(f"{len(found)} reports begin with {wanted}: {names}{', ...' if len(found) > 3 else ''}")
    return found[0]


def _begins(identity: str, beginning: str) -> bool:
    if _FULL.match(beginning.upper()):
        return identity.lower().startswith(beginning)
    return short(identity).startswith(beginning)


def remove(paths: Iterable[Path]) -> int:
    """Delete capsules and return how many are gone, also by other processes; raises ``OSError`` if one is protected."""
    count = 0
    for path in paths:
        path.unlink(missing_ok=True)
        count += 1
    return count


def seen_before(place: Path, signature: str, *, most: int = 1000) -> int:
    """How many of the newest ``most`` reports have this signature; files of older versions do not say theirs."""
    try:
        paths = kept(place)[:most]
    except NoInputError:
        return 0
    return sum(report_archive.signature_of(path) == signature for path in paths)
