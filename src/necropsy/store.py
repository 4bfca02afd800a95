"""The reports folder: a run that had something to report is kept as one compressed file, so that it can be seen again.

A kept file is a zip archive, which any system opens::

    20261121T004512Z-9f86d081.rank3.necropsy
      report.json       the document
      report.txt        the same for a reader
      core-4711.gz      a core of process 4711, compressed by gzip, where one was taken

Nothing here may cost the run that is reported on: what fails raises ``OSError``, which becomes a line of text at most.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO

from necropsy import record
from necropsy.errors import InputError, NoInputError, UnreadableReportError
from necropsy.model import Document

if TYPE_CHECKING:
    import gzip
    import zipfile

SUFFIX = ".necropsy"
KEEP = 50
"""So many reports are kept, where NECROPSY_KEEP says nothing else; the oldest go."""
LARGEST = 256 << 20
"""No report of ours is larger when unpacked; an archive that says so is not one."""
_OLD_S = 3600
_DOCUMENT, _TEXT = "report.json", "report.txt"
_CORE = re.compile(r"core-(\d+)(?:\.\d+)?\.gz")
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
        return Path(named).absolute()
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
    """Write a kept file below ``place``, which is made where it is missing, and let the oldest beyond ``most`` go.

    ``cores``: cores compressed by gzip, by the process and the time of its death.

    Raises:
        OSError: the folder cannot be made or written to; nothing is left behind then.

    """
    import zipfile

    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = place / (name_of(document) + SUFFIX)
    handle, temporary = tempfile.mkstemp(prefix=".", suffix=SUFFIX + ".part", dir=place)
    try:
        with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(_DOCUMENT, record.dumps(document))
            archive.writestr(_TEXT, text.encode("utf-8", "backslashreplace"))
            for name, core in _named(cores or {}).items():
                info = zipfile.ZipInfo(name, time.gmtime()[:6])
                with archive.open(info, "w", force_zip64=True) as out:
                    shutil.copyfileobj(core, out)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _prune(place, most)
    return path


def _named(cores: Mapping[tuple[int, str | None], BinaryIO]) -> dict[str, BinaryIO]:
    """A name for each core; a process that died twice in a run (its number came again) has two."""
    named: dict[str, BinaryIO] = {}
    for (pid, _), core in cores.items():
        name = f"core-{pid}.gz"
        again = 1
        while name in named:
            again += 1
            name = f"core-{pid}.{again}.gz"
        named[name] = core
    return named


def _prune(place: Path, most: int) -> None:
    for path in kept(place)[max(1, most) :]:
        path.unlink(missing_ok=True)
    # What a killed writer left.
    for path in place.glob(f".*{SUFFIX}.part"):
        try:
            if time.time() - path.stat().st_mtime > _OLD_S:
                path.unlink()
        except OSError:  # noqa: PERF203 - another writer has renamed or removed it
            continue


# ---------------------------------------------------------------- reading


def kept(place: Path) -> list[Path]:
    """The kept files, newest first; none where there is no such folder.

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
    """The id that a kept file has by its name."""
    return path.name.partition(".")[0]


def worker_of(path: Path) -> str | None:
    """The worker's name in a kept file's name."""
    parts = path.name.removesuffix(SUFFIX).partition(".")
    return parts[2] or None


def find(place: Path, prefix: str | None) -> Path:
    """The newest kept file, or the one whose id, or whose part of it behind the time, begins with ``prefix``.

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


def is_kept(path: Path) -> bool:
    """The file begins as a zip archive does."""
    try:
        with path.open("rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def read(path: Path) -> Document:
    """The document in a kept file.

    Raises:
        NoInputError: the file is missing or may not be read.
        UnreadableReportError: it is damaged, or no kept file.

    """
    with _archive(path) as archive:
        return record.loads(_member(archive, _DOCUMENT, path))


def core_processes(path: Path) -> list[int]:
    """The processes of which there is a core in the file, in the order of their reports.

    Raises:
        NoInputError: the file is missing or may not be read.
        UnreadableReportError: it is damaged, or no kept file.

    """
    with _archive(path) as archive:
        return list(_cores(archive).values())


def write_core(path: Path, target: Path, pid: int | None = None) -> None:
    """Unpack the core of process ``pid``, or the first one, to ``target``, for the owner's eyes only.

    Raises:
        NoInputError: the file may not be read, or it holds no such core.
        UnreadableReportError: it is damaged.
        OSError: ``target`` cannot be written.

    """
    import gzip

    with _archive(path) as archive:
        name = next((name for name, of in _cores(archive).items() if pid in {None, of}), None)
        if name is None:
            whose = "core" if pid is None else f"core of process {pid}"
            raise NoInputError(f"there is no {whose} in {path.name}")
        with _opened(archive, name, path) as packed, gzip.open(packed) as core:
            if target.exists() and not target.is_file():
                with target.open("wb") as out:
                    _copy(core, out, path)
                return
            handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.absolute().parent)
            try:
                with os.fdopen(handle, "wb") as out:
                    _copy(core, out, path)
                Path(temporary).replace(target)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise


def _cores(archive: zipfile.ZipFile) -> dict[str, int]:
    return {name: int(match[1]) for name in archive.namelist() if (match := _CORE.fullmatch(name))}


def _copy(core: gzip.GzipFile, out: BinaryIO, path: Path) -> None:
    while True:
        try:
            piece = core.read(1 << 20)
        except (EOFError, zlib.error, ValueError, OSError) as error:
            raise UnreadableReportError(f"the core in {path.name} is damaged: {error}") from None
        if not piece:
            return
        out.write(piece)


def _archive(path: Path) -> zipfile.ZipFile:
    import zipfile

    try:
        return zipfile.ZipFile(path)
    except OSError as error:
        raise NoInputError(f"cannot read {path}: {error.strerror or error}") from error
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise UnreadableReportError(f"{path} is damaged: {error}") from None


def _member(archive: zipfile.ZipFile, name: str, path: Path) -> bytes:
    import zipfile

    with _opened(archive, name, path) as member:
        try:
            data = member.read(LARGEST + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError) as error:
            raise UnreadableReportError(f"{path} is damaged: {error}") from None
    if len(data) > LARGEST:
        raise UnreadableReportError(f"{path} is damaged: its report is larger than any of ours")
    return data


def _opened(archive: zipfile.ZipFile, name: str, path: Path) -> IO[bytes]:
    import zipfile

    try:
        return archive.open(name)
    except KeyError:
        raise UnreadableReportError(f"there is no {name} in {path}") from None
    except (zipfile.BadZipFile, ValueError, RuntimeError, OSError) as error:
        # RuntimeError: it is encrypted; NotImplementedError, a subclass: in a way that nobody knows.
        raise UnreadableReportError(f"{path} is damaged: {error}") from None
