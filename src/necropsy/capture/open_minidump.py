"""``open`` of a minidump: a process that died on Windows, read on any system."""

from __future__ import annotations

import contextlib
import mmap
import os
import re
import sys
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

from necropsy.capture import breakpad_exit
from necropsy.capture.windows import crash_builder, exception_records
from necropsy.capture.windows.target import MinidumpMemory, ProcessSnapshot
from necropsy.errors import InputError, NoInputError
from necropsy.formats import log, minidump
from necropsy.formats.minidump_records import ExceptionRecord, Minidump
from necropsy.model import Crash, Exit, Gap, Message
from necropsy.secrets.names import is_harmless

_PATTERNS = ("*.dmp", "*.mdmp")
_MOST_LOOKED_AT = 50
_LONGEST = 1 << 16
_FIRST_CHANCE = "First chance exception"
"""``*** First chance exception: ...`` (procdump -e 1)."""
_UNHANDLED = re.compile(r"Unhandled exception: ([0-9A-F]{8})\b")
"""``*** Unhandled exception: C0000005.ACCESS_VIOLATION`` (procdump)."""


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
    try:
        return path.stat().st_mtime
    except OSError:
        return 0


def read(path: Path, *, images: Sequence[Path] = (), budget_s: float = 20.0) -> Crash:
    """The crash in a dump; what it lacks is a gap.

    ``images``: folders with the programs, libraries and PDBs of its machine; ``budget_s``: limit for unwinding, in
    seconds. Raises NoInputError where it cannot be read, and InputError where it is not a usable minidump.
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
    """The crash that a parsed dump shows. Never raises: what could not be read is a gap."""
    gaps = [Gap(part="log_tail", why="a dump does not hold what the process wrote")]
    gaps += [Gap(part="dump", why=one) for one in dump.gaps]
    if any(_FIRST_CHANCE in one for one in dump.comments):
        why = "the dump was written at the first chance of the exception: whether the program survived it is not known"
        gaps.append(Gap(part="exit", why=why))
    on_windows = dump.system is None or dump.system.is_windows
    ended, fault = (None, None) if on_windows else breakpad_exit.ended(dump)
    if dump.exception_lost and ended is None:
        ended = Exit(kind="unknown", text="the dump was cut off before its exception")
    unix = dump.unix
    stopped = ProcessSnapshot(
        pid=_process(dump),
        exception=dump.exception or _told(dump),
        threads=tuple(one for one in dump.threads if not one.exited),
        modules=dump.modules,
        memory=MinidumpMemory(dump.memory),
        system=dump.system,
        regions=dump.memory_infos,
        maps=breakpad_exit.CopiedMaps(unix.maps) if unix is not None and unix.maps else None,
        unloaded=dump.unloaded,
        main_tid=_first(dump),
        at=_time(dump.written),
        messages=tuple(_messages(dump)),
        variables=_harmless(unix.variables) if unix is not None and unix.variables is not None else None,
        cpu=(unix.cpu if unix is not None else None) or (dump.system.cpu if dump.system is not None else None),
        ended=ended,
        fault=fault,
        folders=tuple(images),
        gaps=tuple(gaps),
        budget_s=budget_s,
    )
    return crash_builder.crash_of(stopped)


def _process(dump: Minidump) -> int | None:
    if dump.misc is not None and dump.misc.pid is not None:
        return dump.misc.pid
    match = re.search(r"^Pid:\s+(\d{1,10})$", dump.unix.status or "", re.MULTILINE) if dump.unix is not None else None
    return int(match[1]) if match is not None else None


def _first(dump: Minidump) -> int | None:
    """The main thread: the oldest, else the first that the system lists."""
    if not dump.threads:
        return None
    if dump.system is not None and not dump.system.is_windows:
        return _process(dump)
    born = [one for one in dump.threads if one.created]
    return min(born, key=lambda one: one.created or 0).tid if born else dump.threads[0].tid


def _told(dump: Minidump) -> ExceptionRecord | None:
    """The exception that procdump writes into its comment, where the dump has no record of it."""
    match = next((found for one in dump.comments if (found := _UNHANDLED.search(one))), None)
    if match is None or not dump.threads:
        return None
    tid = dump.requesting_tid or dump.threads[0].tid
    return ExceptionRecord(int(match[1], 16), 0, 0, (), tid, b"")


def _messages(dump: Minidump) -> Iterator[Message]:
    """Texts in the dump: of the runtime's handlers, of the program for Crashpad, of procdump."""
    said = exception_records.of_assertion(dump.assertion) if dump.assertion is not None else None
    if said is not None:
        yield said
    for name, text in dump.annotations.items():
        yield from log.scan(text[:_LONGEST], where=f"annotation {name} of the dump")
    for text in dump.comments:
        yield from log.scan(text[:_LONGEST], where="comment of the dump")


def _harmless(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in sorted(variables.items()) if is_harmless(name)}


def _time(seconds: int) -> str | None:
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat()
