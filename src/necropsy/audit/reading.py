"""Files -> what was read of each: on all processors, and from a cache where a file has not changed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path

import msgspec

from necropsy import serialize
from necropsy.audit import binaries, python_sources
from necropsy.audit.cxx import load
from necropsy.audit.layers import compile_commands
from necropsy.errors import InputError, NoInputError
from necropsy.model import Binary, CodeDefect, Gap, SourceUse

SOURCES = (".py",)
CODE = load.ENDINGS
_WORTH_PROCESSES = 4 << 20
"""Bytes from which starting processes is worth it."""
_MOST_CACHED = 2000
"""Maximum files in the cache; the oldest are removed."""
_AT_ONCE = 1 << 20


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a file: see ``binaries.look``; ``version`` is necropsy's."""

    stack: int
    top: int
    follow: bool
    version: str
    roots: tuple[str, ...] = ()
    """Folders to search for headers that C++ sources include in quotes."""


class FileReading(msgspec.Struct, frozen=True, kw_only=True):
    """What was read of one file: a library's code, or the places in a source; or why it was not."""

    path: str
    binary: Binary | None = None
    uses: tuple[SourceUse, ...] | None = None
    code: tuple[CodeDefect, ...] | None = None
    """Of a C++ source and its headers."""
    headers: dict[str, str] = {}
    """SHA-256 of each searched header, empty if missing."""
    ops: tuple[str, ...] = ()
    undecided: int = 0
    """Accesses that could neither be proved nor refuted."""
    gaps: tuple[Gap, ...] = ()
    refused: str | None = None
    is_missing: bool = False
    """It was refused because it is missing or unreadable."""


def read_all(
    paths: Sequence[str], options: AuditOptions, *, jobs: int | None, cache: Path | None
) -> Iterator[FileReading]:
    """Each file in order; ``jobs``: processes, None for one per processor; ``cache``: a folder for results."""
    wanted = min(jobs or os.cpu_count() or 1, len(paths))
    if wanted > 1 and (jobs is not None or _size(paths) >= _WORTH_PROCESSES):
        with ProcessPoolExecutor(wanted) as pool:
            yield from pool.map(_read, paths, [options] * len(paths), [cache] * len(paths))
    else:
        yield from (_read(path, options, cache) for path in paths)
    if cache is not None:
        _prune(cache)


def _size(paths: Sequence[str]) -> int:
    total = 0
    for path in paths:
        with contextlib.suppress(OSError):
            total += Path(path).stat().st_size
    return total


def _read(path: str, options: AuditOptions, cache: Path | None) -> FileReading:
    place = _place(path, options, cache)
    if place is not None:
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError):
            found = msgspec.json.decode(place.read_bytes(), type=FileReading, dec_hook=serialize.from_json)
            if found.path == path and all(_hash(one) == digest for one, digest in found.headers.items()):
                with contextlib.suppress(OSError):
                    os.utime(place)
                return found
    found = _fresh(path, options)
    if place is not None and found.refused is None:
        with contextlib.suppress(OSError, UnicodeEncodeError):  # a name that is no UTF-8
            keep(place, msgspec.json.encode(found, enc_hook=serialize.to_json))
    return found


def _fresh(path: str, options: AuditOptions) -> FileReading:
    try:
        if path.endswith(SOURCES):
            return FileReading(path=path, uses=python_sources.look(path, options.stack))
        if path.endswith(CODE):
            from necropsy.audit.cxx import checks
            from necropsy.audit.cxx_repairs.promises import promised

            code = promised(path, options.stack, checks.look(path, options.stack, options.roots))
            return FileReading(
                path=path,
                code=code.defects,
                gaps=code.gaps,
                headers=code.headers,
                ops=code.ops,
                undecided=code.undecided,
            )
        one, gaps = binaries.look(path, options.stack, top=options.top, follow=options.follow)
    except NoInputError as error:
        return FileReading(path=path, refused=str(error), is_missing=True)
    except InputError as error:
        return FileReading(path=path, refused=str(error))
    return FileReading(path=path, binary=one, gaps=gaps)


def _place(path: str, options: AuditOptions, cache: Path | None) -> Path | None:
    """The cache file for these contents; None without a cache or if the file is unreadable."""
    if cache is None:
        return None
    build = compile_commands.flags(path) if path.endswith(CODE) else None
    digest = hashlib.sha256(
        _code()
        + os.fsencode(path)
        + b"\0"
        + repr((options, build, sys.version_info[:2])).encode("utf-8", "backslashreplace")
    )
    try:
        with Path(path).open("rb") as file:
            while part := file.read(_AT_ONCE):
                digest.update(part)
    except OSError:
        return None
    return cache / f"{digest.hexdigest()}.json"


def _hash(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


@lru_cache(maxsize=1)
def _code() -> bytes:
    """Changes with the reader modules, so that their outdated results are not used."""
    here = Path(__file__).parent
    stamps = sorted(
        (str(one.relative_to(here.parent)), one.stat().st_mtime_ns)
        for folder in (here, here.parent / "formats")
        for one in folder.rglob("*.py")
    )
    return repr(stamps).encode()


def keep(place: Path, data: bytes) -> None:
    """Write the whole file or nothing, because other runs may read it; raises ``OSError``."""
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = place.with_suffix(f".{os.getpid()}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    part.replace(place)


def _prune(cache: Path) -> None:
    with contextlib.suppress(OSError):
        files = list(cache.glob("*.json"))
        if len(files) > _MOST_CACHED:
            for one in sorted(files, key=lambda each: each.stat().st_mtime)[:-_MOST_CACHED]:
                one.unlink(missing_ok=True)
