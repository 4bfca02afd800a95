"""``open`` of a minidump: a process that died on Windows, read on any system."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from necropsy.capture.windows import seen
from necropsy.capture.windows.memory import DumpMemory
from necropsy.capture.windows.stopped import Stopped
from necropsy.errors import InputError, NoInputError
from necropsy.formats import minidump
from necropsy.formats.minidump_records import Minidump
from necropsy.model import Crash, Gap

_PATTERNS = ("*.dmp", "*.mdmp")
_MOST_LOOKED_AT = 50


def is_minidump(path: Path) -> bool:
    """The file is a minidump. Never raises."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(4) == minidump.SIGNATURE
    except OSError:
        return False


def newest(folder: Path | None = None) -> Path | None:
    """The newest minidump in ``folder`` (the current one); on Windows, where Windows Error Reporting puts them too."""
    newest_first = sorted(_candidates(folder or Path()), key=_written, reverse=True)[:_MOST_LOOKED_AT]
    return next((path for path in newest_first if is_minidump(path)), None)


def _candidates(folder: Path) -> Iterator[Path]:
    places = [folder]
    local = os.environ.get("LOCALAPPDATA")
    if sys.platform == "win32" and local:
        places.append(Path(local) / "CrashDumps")
    for place in places:
        for pattern in _PATTERNS:
            with contextlib.suppress(OSError):
                yield from place.glob(pattern)


def _written(path: Path) -> float:
    """When, in seconds since the epoch; 0 where that cannot be seen."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0


def read(path: Path, *, images: Sequence[Path] = (), budget_s: float = 20.0) -> Crash:
    """What the dump shows, in the same words as the death of a supervised process; what it lacks is a gap.

    Args:
        path: the dump.
        images: folders with the programs and libraries of the machine that it comes from, and their PDBs.
        budget_s: seconds that walking the stacks may take.

    Raises:
        NoInputError: the file is missing or may not be read.
        InputError: it is no minidump, or broken beyond use.

    """
    with _mapped(path) as data:
        try:
            dump = minidump.parse(data)
        except InputError as error:
            raise InputError(f"{path.name}: {error}") from None
        return crash_of(dump, images=images, budget_s=budget_s)


@contextlib.contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    try:
        if path.exists() and not path.is_file():
            raise NoInputError(f"{path}: not a regular file")
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data
    except OSError as error:
        raise NoInputError(f"{path}: {error.strerror or error}") from None
    except ValueError:
        raise InputError(f"{path.name} is empty") from None


def crash_of(dump: Minidump, *, images: Sequence[Path] = (), budget_s: float = 20.0) -> Crash:
    """The crash that a parsed dump shows."""
    gaps = [Gap(part="log_tail", why="a dump does not hold what the process wrote")]
    gaps += [Gap(part="dump", why=one) for one in dump.gaps]
    stopped = Stopped(
        pid=dump.misc.pid if dump.misc is not None else None,
        exception=dump.exception,
        threads=tuple(one for one in dump.threads if not one.exited),
        modules=dump.modules,
        memory=DumpMemory(dump.memory),
        system=dump.system,
        regions=dump.memory_infos,
        unloaded=dump.unloaded,
        main_tid=dump.threads[0].tid if dump.threads else None,
        at=_time(dump.written),
        folders=tuple(images),
        gaps=tuple(gaps),
        budget_s=budget_s,
    )
    return seen.crash_of(stopped)


def _time(seconds: int) -> str | None:
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
