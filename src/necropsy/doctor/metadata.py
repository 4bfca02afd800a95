"""Distributions' metadata files as values (packaging.python.org: *Core metadata*, *Recording installed projects*)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed

from necropsy.model import Requirement


def normalised(name: str) -> str:
    """The name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def headers(text: str) -> dict[str, list[str]]:
    """The header fields of METADATA, PKG-INFO or WHEEL, names in lower case, each value in one line."""
    found: dict[str, list[str]] = {}
    last: list[str] = []
    for line in text.splitlines():
        if not line:  # one of blanks only goes on with the field before it, such as a licence's text
            break
        if line[0] in " \t":
            if last:
                last[-1] += " " + line.strip()
            continue
        name, colon, value = line.partition(":")
        if colon:
            last = found.setdefault(name.strip().lower(), [])
            last.append(value.strip())
    return found


def is_requirement(text: str) -> bool:
    """It is spelled as pip wants it."""
    try:
        Parsed(text)
    except InvalidRequirement:
        return False
    return True


def requirements(lines: list[str], markers: Mapping[str, str], extras: tuple[str, ...]) -> Iterator[Requirement]:
    """What ``Requires-Dist`` lines ask for; lines that nobody can read are left out, as pip does."""
    for line in lines:
        found = requirement(line, markers, extras)
        if found is not None:
            yield found


def requirement(line: str, markers: Mapping[str, str], extras: tuple[str, ...] = ()) -> Requirement | None:
    """One requirement, its marker evaluated for the interpreter of ``markers``; None where it cannot be read."""
    try:
        parsed = Parsed(line)
        applies = parsed.marker is None or any(
            parsed.marker.evaluate({**markers, "extra": extra}) for extra in ("", *extras)
        )
    except (InvalidRequirement, ValueError, KeyError):
        return None
    return Requirement(
        text=line,
        name=normalised(parsed.name),
        specifier=str(parsed.specifier),
        extras=tuple(sorted(parsed.extras)),
        applies=applies,
    )


def egg_requirements(text: str) -> Iterator[str]:
    """The lines of an egg's ``requires.txt`` as ``Requires-Dist`` writes them."""
    extra = marker = ""
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            extra, _, marker = line.strip("[]").partition(":")
            continue
        wanted = [f"({marker})"] if marker else []
        wanted += [f'extra == "{extra}"'] if extra else []
        yield f"{line} ; {' and '.join(wanted)}" if wanted else line


@dataclass(frozen=True)
class RecordRow:
    """One file of a RECORD; ``path`` as it stands there, relative to the folder that holds the metadata."""

    path: str
    sha256: str | None
    size: int | None


def record(text: str) -> Iterator[RecordRow]:
    """The rows of a RECORD."""
    for fields in csv.reader(text.splitlines()):
        if not fields or not fields[0]:
            continue
        kind, _, value = (fields[1] if len(fields) > 1 else "").partition("=")
        size = fields[2] if len(fields) > 2 else ""
        yield RecordRow(fields[0], value if kind == "sha256" and value else None, int(size) if size.isdigit() else None)
