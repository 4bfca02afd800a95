"""Sources -> repaired sources: repairs are made, the analysis runs again, and what has not helped is taken back."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from necropsy.audit.cxx import checks
from necropsy.audit.cxx.load import LARGEST, Reader, load, of_text
from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Unit
from necropsy.audit.cxx_repairs.edits import Repair, applied, compatible, unified
from necropsy.audit.cxx_repairs.known import candidates
from necropsy.audit.layers import compile_commands
from necropsy.errors import InputError, NoInputError
from necropsy.model import CodeDefect

_MOST_ROUNDS = 10
_MOST_ANALYSES = 60
"""Per source; then no more repairs are tried."""
Key = tuple[str, str, str]
"""A defect regardless of its line: its rule, function and line's text."""


@dataclass
class Overlay(Reader):
    """Finds headers as ``Reader`` does, and reads what has been repaired already from ``changed``."""

    changed: dict[str, bytes] = field(default_factory=dict)

    def find(self, name: str, including: str) -> tuple[str, str] | None:
        """As in ``Reader``."""
        found = super().find(name, including)
        if found is None or found[0] not in self.changed:
            return found
        return found[0], self.changed[found[0]].decode("latin-1")


@dataclass
class Repairs:
    """What ``repaired`` did: the new contents of the files that change, what was there, and the repairs in words."""

    before: dict[str, bytes] = field(default_factory=dict)
    after: dict[str, bytes] = field(default_factory=dict)
    made: list[tuple[str, int, str]] = field(default_factory=list)
    """Path and line of the defect, and the repair."""
    looked_for: dict[str, str] = field(default_factory=dict)
    """Hashes of all searched headers."""
    failed: list[tuple[str, str]] = field(default_factory=list)

    def diff(self) -> bytes:
        """All changes as one unified diff."""
        return b"".join(unified(path, self.before[path], data) for path, data in sorted(self.after.items()))


@dataclass(frozen=True)
class Judged:
    """A unit with what is wrong with it."""

    unit: Unit
    defects: tuple[CodeDefect, ...]


def repaired(
    paths: Sequence[str],
    stack: int,
    roots: Sequence[str],
    wanted: Callable[[str], bool],
    watch: Callable[[int, int, str], None] | None = None,
) -> Repairs:
    """Repair sources and headers in memory; ``wanted`` selects rules, ``watch`` gets number, total and path."""
    result = Repairs()
    for number, path in enumerate(paths, 1):
        if watch is not None:
            watch(number, len(paths), path)
        with contextlib.suppress(InputError, NoInputError):  # the check itself says why
            SourceRepair(path, stack, tuple(roots), wanted, result).repair()
    result.after = {path: data for path, data in result.after.items() if data != result.before[path]}
    return result


@dataclass
class SourceRepair:
    """Of one source and its headers, until nothing changes."""

    path: str
    stack: int
    roots: tuple[str, ...]
    wanted: Callable[[str], bool]
    result: Repairs
    refused: set[tuple[Key, str]] = field(default_factory=set)
    """Repairs that did not help."""

    left: int = _MOST_ANALYSES

    def repair(self, now: Judged | None = None) -> Judged:
        """What is still wrong after all repairs; ``now``: what is wrong before, if that is known."""
        now = now or self.judged(self.result.after)
        for _ in range(_MOST_ROUNDS):
            after = self._round(now)
            if after is None:
                break
            now = after
        return now

    def judged(self, changed: dict[str, bytes]) -> Judged:
        """The source and its headers with these contents."""
        self.left -= 1
        reader = Overlay(self.roots, compile_commands.flags(self.path), changed=changed)
        reader.hashes = self.result.looked_for
        text = changed.get(self.path)
        unit = of_text(self.path, text, reader) if text is not None else load(self.path, reader)
        found, _ = checks.of_unit(unit, self.stack)
        return Judged(unit, tuple(one for one in found if self.wanted(one.rule)))

    def _round(self, now: Judged) -> Judged | None:
        if self.left <= 0 or any(len(one.original) >= LARGEST for one in now.unit.files):
            return None  # the end of a file that is too large was not read
        look = Look(unit=now.unit, stack=self.stack)
        offered = [
            (defect, repair)
            for defect in now.defects
            for repair in [one for one in candidates(look, defect) if (_key(defect), one.told) not in self.refused][:1]
        ]
        kept = compatible(repair for _, repair in offered)
        chosen = [(defect, repair) for defect, repair in offered if repair in kept]
        if not chosen:
            return None
        return self._tried(now, chosen) or self._halved(now, chosen)

    def _halved(self, now: Judged, chosen: list[tuple[CodeDefect, Repair]]) -> Judged | None:
        """Keep the useful ones of several repairs that fail together; one that fails alone is refused."""
        if len(chosen) == 1:
            self.refused.add((_key(chosen[0][0]), chosen[0][1].told))
            return self._round(now)
        middle = len(chosen) // 2
        for part in (chosen[:middle], chosen[middle:]):
            after = self._tried(now, part)
            if after is not None:
                return after
        return self._halved(now, chosen[:middle])

    def _tried(self, now: Judged, chosen: list[tuple[CodeDefect, Repair]]) -> Judged | None:
        if self.left <= 0:
            return None
        contents = {one.path: one.original for one in now.unit.files}
        new = applied(contents, [repair for _, repair in chosen])
        after = self.judged(self.result.after | new)
        if not _is_better(now, after, [defect for defect, _ in chosen]):
            return None
        for path in new:
            self.result.before.setdefault(path, contents[path])
        self.result.after |= new
        self.result.made += [(defect.place.path, defect.place.line, repair.told) for defect, repair in chosen]
        return after


def _is_better(before: Judged, after: Judged, repaired_: Collection[CodeDefect]) -> bool:
    """Each repaired defect is gone, none is new, and the parser understands as much as before.

    Only the first defect of a line is reported, so the next one may appear in its place.
    """
    old, new = Counter(map(_kind, before.defects)), Counter(map(_kind, after.defects))
    gone = Counter(map(_kind, repaired_))
    left = set(map(_identity, after.defects))
    lines = {line_of(one) for one in repaired_}
    follow = Counter(_kind(one) for one in after.defects if line_of(one) in lines)
    if any(_identity(one) in left for one in repaired_):
        return False
    if any(new[one] > old[one] - max(0, gone[one] - follow[one]) for one in old | new):
        return False
    broken = {one.path for one in before.unit.files if one.tree.root_node.has_error}
    return all(not one.tree.root_node.has_error or one.path in broken for one in after.unit.files)


def _kind(one: CodeDefect) -> tuple[str, str, str]:
    return one.rule, one.place.path, one.function or ""


def line_of(one: CodeDefect) -> tuple[str, ...]:
    """Its rule, its function and its line's text, wherever the line is."""
    return (*_kind(one), one.place.text)


def _identity(one: CodeDefect) -> tuple[str, ...]:
    told = (one.names.get(each, "") for each in ("tensor", "buffer", "index", "divisor", "pointer", "size"))
    return (*line_of(one), str(one.place.column), *told)


def _key(one: CodeDefect) -> Key:
    return one.rule, one.function or "", one.place.text


def write(result: Repairs) -> None:
    """Put the new contents into the files, each as a whole and with its permissions. Errors go to ``failed``."""
    for path, data in list(result.after.items()):
        why = _not_replaced(Path(path).resolve(), result.before[path], data)
        if why is not None:
            result.failed.append((path, why))
            result.made = [one for one in result.made if one[0] != path]
            del result.after[path]


def _not_replaced(path: Path, before: bytes, after: bytes) -> str | None:
    """The reason why it could not be written, or None."""
    try:
        _replaced(path, before, after)
    except OSError as error:
        return error.strerror or str(error)
    return None


def _replaced(path: Path, before: bytes, after: bytes) -> None:
    """Raises ``OSError`` if it cannot be written, or has changed since it was read."""
    if path.read_bytes() != before:
        raise OSError("it has changed since it was read")
    if not os.access(path, os.W_OK):
        raise OSError("it is read-only")
    mode = path.stat().st_mode
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(after)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode & 0o7777)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise
