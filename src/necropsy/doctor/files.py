"""The files of installed distributions: what RECORD lists against what is there, and who owns a file twice."""

from __future__ import annotations

import hashlib
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Mapping

from necropsy.doctor import elf
from necropsy.doctor.distributions import Installed, rows, text_of
from necropsy.doctor.metadata import RecordRow
from necropsy.model import Damage, Overlap

_NATIVE = re.compile(r"\.(?:so(?:\.\w+)*|pyd|dll|dylib)$")
_NOT_OWNED = re.compile(r"(?:^|/)(?:__pycache__/|tests?/|docs?/|examples?/|__init__\.py$)|^\.\.|\.(?:dist|egg)-info/")
_NOT_NEEDED = re.compile(r"\.py[co]$|(?:^|/)__pycache__/|^\.\./|^/|\.(?:dist|egg)-info/")
_CODE = (".py", ".so", ".pyd", ".dll", ".dylib")
_CHUNK = 1 << 20


def is_native(path: str) -> bool:
    """The file's name is that of a library."""
    return _NATIVE.search(path) is not None


def check(one: Installed, *, deep: bool) -> tuple[tuple[str, ...] | None, tuple[Damage, ...] | None]:
    """Missing and damaged files of ``one``; None without a RECORD. ``deep``: compare contents too.

    Compiled Python files, metadata and files outside the folder (scripts, which installers rewrite) do not count.
    """
    listed = rows(one)
    if listed is None:
        return None, None
    missing: list[str] = []
    damaged: list[Damage] = []
    root = one.noun.location + "/"
    for row in listed:
        if _NOT_NEEDED.search(row.path):
            continue
        path = root + row.path
        try:
            size = os.stat(path).st_size
        except OSError:
            missing.append(path)
            continue
        found = _damage(path, row, size, deep=deep and one.noun.installer != "conda")
        if found is not None:
            damaged.append(found)
    return tuple(missing), tuple(damaged)


def _damage(path: str, row: RecordRow, size: int, *, deep: bool) -> Damage | None:
    native = is_native(path)
    if row.size is None or size != row.size:
        # Installers and builders of images may strip a library, which then is shorter and whole.
        if native and elf.is_cut(path):
            return Damage(path=path, kind="truncated", recorded=row.size, size=size, native=True)
        if not native and row.size is not None and size < row.size and path.endswith(".py"):
            return Damage(path=path, kind="size", recorded=row.size, size=size)
    if deep and row.sha256 is not None and _sha256(path) not in {row.sha256, None}:
        kind = "hash" if size == row.size else "size"
        return Damage(path=path, kind="hash" if kind == "hash" else "size", recorded=row.size, size=size, native=native)
    return None


def _sha256(path: str) -> str | None:
    """In RECORD's form; None if the file cannot be read."""
    digest = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:
            while data := file.read(_CHUNK):
                digest.update(data)
    except OSError:
        return None
    return urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def overlaps(found: Mapping[str, Installed], checked: Iterable[str]) -> Iterator[Overlap]:
    """Pairs of distributions in one folder that own the same modules or libraries; one of each pair is checked.

    Files that packages may share do not count: a namespace's ``__init__.py``, tests, documents.
    """
    owners: dict[tuple[str, str], Installed] = {}
    wanted = set(checked)
    shared: dict[tuple[str, str], list[str]] = {}
    for one in sorted(found.values(), key=lambda one: (one.name not in wanted, one.name)):
        for path in _owned(one):
            first = owners.setdefault((one.noun.location, path), one)
            if first is not one and first.name in wanted:
                shared.setdefault((first.name, one.name), []).append(path)
    for (first_name, second_name), paths in sorted(shared.items()):
        yield overlap(found[first_name], found[second_name], paths)


def overlap(first: Installed, second: Installed, paths: list[str]) -> Overlap:
    """The noun of one pair."""
    example = next((path for path in paths if is_native(path)), paths[0] if paths else "")
    return Overlap(
        first=first.name,
        second=second.name,
        first_version=first.noun.version,
        second_version=second.noun.version,
        location=first.noun.location,
        files=len(paths),
        example=example,
    )


def _owned(one: Installed) -> Iterator[str]:
    """Its code, as RECORD lists it."""
    if one.rows is not None:
        paths: Iterable[str] = (row.path for row in one.rows)
    else:
        lines = (text_of(f"{one.folder}/RECORD") or "").splitlines()
        paths = (line.partition(",")[0] for line in lines if not line.startswith('"'))
    return (path for path in paths if _has_code(path) and not _NOT_OWNED.search(path))


def _has_code(path: str) -> bool:
    return path.endswith(_CODE) or ".so." in path
