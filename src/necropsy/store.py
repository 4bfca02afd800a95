"""The reports folder: a run that had something to report is kept as a capsule, so that it can be seen again.

A capsule's name is ``20261121T004512Z-9f86d081.rank3.necropsy``: the document's id, which begins with the time, and
the worker's name where there are several. Nothing here may cost the run that is reported on: what fails raises
``OSError``, which becomes a line of text at most.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from necropsy import capsule
from necropsy.errors import InputError, NoInputError
from necropsy.model import Document

SUFFIX = ".necropsy"
KEEP = 50
"""So many reports are kept, where NECROPSY_KEEP says nothing else; the oldest go."""
_OLD_S = 3600
_WORKERS = (
    ("RANK", "rank"),
    ("SLURM_PROCID", "rank"),
    ("OMPI_COMM_WORLD_RANK", "rank"),
    ("LOCAL_RANK", "local-rank"),
    ("PYTEST_XDIST_WORKER", ""),
)


def folder(variables: Mapping[str, str] = os.environ) -> Path | None:
    """Where reports are kept: NECROPSY_OUTPUT, or the state folder of the system's user.

    None where there is no such place: a user without a home folder.
    """
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
    """How many reports are kept; 0 keeps none."""
    try:
        return max(0, int(variables.get("NECROPSY_KEEP", KEEP)))
    except ValueError:
        return KEEP


def worker(document: Document, variables: Mapping[str, str] = os.environ) -> str | None:
    """``rank3``, ``gw0``: which of many workers this is, by the variables of the dead process, or else by our own.

    None where no launcher has numbered it.
    """
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
    """Write a capsule below ``place``, which is made where it is missing, and let the oldest beyond ``most`` go.

    ``cores``: cores compressed by gzip, by the process and the time of its death.

    Raises:
        OSError: the folder cannot be made or written to; nothing is left behind then.

    """
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = place / (name_of(document) + SUFFIX)
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=SUFFIX + ".part", dir=place)
    try:
        with os.fdopen(handle, "wb") as file:
            capsule.write(file, document, text, cores)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _prune(place, most)
    return path


def _prune(place: Path, most: int) -> None:
    """Let the oldest go, where they may be removed: the new one is written, and what others keep is theirs."""
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
    """The capsules, newest first; none where there is no such folder.

    Raises:
        NoInputError: the folder may not be read.

    """
    try:
        names = [path for path in place.iterdir() if path.suffix == SUFFIX and not path.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise NoInputError(f"cannot read {place}: {error.strerror or error}") from error
    return sorted(names, key=lambda path: path.name, reverse=True)


def identity_of(path: Path) -> str:
    """The id that a capsule has by its name."""
    return path.name.partition(".")[0]


def worker_of(path: Path) -> str | None:
    """The worker's name in a capsule's name."""
    parts = path.name.removesuffix(SUFFIX).partition(".")
    return parts[2] or None


def find(place: Path, prefix: str | None) -> Path:
    """The newest capsule, or the one whose id, or whose part of it behind the time, begins with ``prefix``.

    Raises:
        NoInputError: there is none.
        InputError: there are several.

    """
    paths = kept(place)
    if prefix is None:
        if not paths:
            raise NoInputError(f"no reports are kept in {place}")
        return paths[0]
    wanted = prefix.lower()
    found = [
        path
        for path in paths
        if (identity := identity_of(path).lower()).startswith(wanted) or short(identity).startswith(wanted)
    ]
    if not found:
        raise NoInputError(f"no report {prefix} is kept in {place} (`necropsy list` shows them)")
    if len(found) > 1:
        names = ", ".join(short(identity_of(path)) for path in found[:3])
        raise InputError(f"{len(found)} reports begin with {prefix}: {names}{', ...' if len(found) > 3 else ''}")
    return found[0]
