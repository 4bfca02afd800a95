"""The checks on a unit, and how they are run: an error in one costs only it, and marked lines are passed over.

A check is a function ``(Look) -> Iterator[CodeDefect]``; ``CHECKS`` lists them. See docs/explanation/check-sources.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec

from necropsy.audit.cxx import (
    aborts,
    advice,
    depths,
    destructors,
    done,
    element_types,
    escapes,
    frames,
    lambdas,
    locks,
    loops,
    members,
    nulls,
    outputs,
    recursion,
    sharing,
    stack_allocations,
    statuses,
    strings,
    views,
)
from necropsy.audit.cxx.load import Reader, load
from necropsy.audit.cxx.looking import Look
from necropsy.audit.cxx.model import Unit
from necropsy.audit.cxx.symbolic import kernels
from necropsy.audit.layers import compile_commands
from necropsy.model import CodeDefect, Gap

Check = Callable[[Look], Iterator[CodeDefect]]
CHECKS: tuple[Check, ...] = (
    recursion.look,
    destructors.look,
    frames.look,
    stack_allocations.look,
    strings.look,
    aborts.checks,
    aborts.exceptions,
    element_types.look,
    statuses.look,
    lambdas.look,
    nulls.look,
    views.look,
    escapes.look,
    sharing.look,
    members.look,
    locks.look,
    outputs.look,
    done.look,
    depths.look,
    loops.look,
    advice.look,
    kernels.look,
)
_IGNORED = re.compile(r"//\s*necropsy:\s*ignore\[([\w\-, ]+)\]")
_MOST_GAPS = 12


class CodeReading(msgspec.Struct, frozen=True, kw_only=True):
    """What was found in one source and its headers."""

    defects: tuple[CodeDefect, ...] = ()
    gaps: tuple[Gap, ...] = ()
    headers: dict[str, str] = {}
    """Of each header that was looked for: its SHA-256, empty where there was no file."""
    ops: tuple[str, ...] = ()
    """The ops that it registers or has kernels of."""
    undecided: int = 0
    """How many accesses could neither be proved nor refuted."""


def look(path: str, stack: int, roots: tuple[str, ...] = ()) -> CodeReading:
    """Check the source at ``path``; ``roots`` are folders in which quoted headers are looked for.

    Raises NoInputError where it cannot be read, and InputError where it is no C++ source.
    """
    reader = Reader(roots, compile_commands.flags(path))
    unit = load(path, reader)
    seen = Look(unit=unit, stack=stack)
    found, gaps = _asked(seen)
    names = dict.fromkeys([*(one.name for one in unit.ops), *(one.op_name for one in unit.kernels)])
    return CodeReading(defects=found, gaps=gaps, headers=reader.hashes, ops=tuple(names), undecided=seen.undecided)


def of_unit(unit: Unit, stack: int) -> tuple[tuple[CodeDefect, ...], tuple[Gap, ...]]:
    """What all checks find, in the order of the files, and what could not be looked at."""
    return _asked(Look(unit=unit, stack=stack))


def _asked(seen: Look) -> tuple[tuple[CodeDefect, ...], tuple[Gap, ...]]:
    unit = seen.unit
    found: list[CodeDefect] = []
    gaps = [Gap(part=one.part, why=one.why) for one in unit.troubles]
    for check in CHECKS:
        try:
            found += check(seen)
        except Exception as error:  # noqa: BLE001, PERF203 - the other checks still speak
            gaps.append(Gap(part=f"{check.__module__.rpartition('.')[2]} of {unit.path}", why=_told(error)))
    gaps += [Gap(part=part, why=why) for part, why in seen.failed]
    marks = _Marks(unit)
    kept = {(one.rule, one.place.path, one.place.line, one.place.column): one for one in found if not marks.ignore(one)}
    if len(gaps) > _MOST_GAPS:
        gaps[_MOST_GAPS:] = [Gap(part=unit.path, why=f"{len(gaps) - _MOST_GAPS} more parts were not analysed")]
    return tuple(sorted(kept.values(), key=lambda one: (one.place.path, one.place.line, one.rule))), tuple(gaps)


def _told(error: Exception) -> str:
    return f"an internal error: {type(error).__name__}: {error}"


@dataclass
class _Marks:
    """``// necropsy: ignore[rule] reason`` on the line of a finding, or on the line above it."""

    unit: Unit

    @cached_property
    def _lines(self) -> dict[str, list[str]]:
        return {one.path: one.lines for one in self.unit.files}

    def ignore(self, one: CodeDefect) -> bool:
        lines = self._lines.get(one.place.path, [])
        for number in (one.place.line, one.place.line - 1):
            match = _IGNORED.search(lines[number - 1]) if 0 < number <= len(lines) else None
            if match is not None and one.rule in re.split(r"[,\s]+", match[1]):
                return True
        return False
