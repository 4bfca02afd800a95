"""Changes of a file's bytes: which fit together, and the bytes after them."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Edit:
    """``start`` and ``end`` are offsets in the file as it is; equal ones insert."""

    path: str
    start: int
    end: int
    text: bytes


@dataclass(frozen=True)
class Repair:
    """All edits of one defect: they are made together or not at all."""

    edits: tuple[Edit, ...]
    told: str
    """What it does, in words: ``declares `row` as a std::vector``."""


def compatible(repairs: Iterable[Repair]) -> list[Repair]:
    """Those that do not overlap an earlier one. An edit that two of them share is made once."""
    kept: list[Repair] = []
    taken: set[Edit] = set()
    for one in repairs:
        new = [each for each in one.edits if each not in taken]
        if new and not any(_overlap(each, other) for each in new for other in taken):
            kept.append(one)
            taken.update(new)
    return kept


def _overlap(one: Edit, other: Edit) -> bool:
    if one.path != other.path:
        return False
    if one.start == one.end and other.start == other.end:
        return False
    return one.start < other.end and other.start < one.end


def applied(contents: Mapping[str, bytes], repairs: Iterable[Repair]) -> dict[str, bytes]:
    """The new contents of each file that changes."""
    edits = list(dict.fromkeys(each for one in repairs for each in one.edits))
    changed: dict[str, bytes] = {}
    for path in dict.fromkeys(each.path for each in edits):
        data = contents[path]
        # From the end on, so that offsets stay valid. Of insertions at one offset, the first stays first.
        own = [(number, each) for number, each in enumerate(edits) if each.path == path]
        for _, each in sorted(own, key=lambda one: (-one[1].start, -one[1].end, -one[0])):
            data = data[: each.start] + each.text + data[each.end :]
        changed[path] = data
    return changed


def unified(path: str, before: bytes, after: bytes) -> bytes:
    """A unified diff that ``patch`` and ``git apply -p0`` take; line ends as in the file."""
    name = os.fsencode(path)
    old, new = (re.findall(rb"[^\n]*\n|[^\n]+", data) for data in (before, after))
    lines = difflib.diff_bytes(difflib.unified_diff, old, new, name, name, lineterm=b"\n")
    return b"".join(line if line.endswith(b"\n") else line + b"\n\\ No newline at end of file\n" for line in lines)
