"""Which defects ``--fix`` removes: the repairs of each rule are made in memory, as the command would make them."""

from __future__ import annotations

from functools import partial
from operator import eq

import msgspec

from necropsy.audit.cxx.checks import CodeReading
from necropsy.audit.cxx_repairs.known import REPAIRED
from necropsy.audit.cxx_repairs.rounds import Judged, Repairs, SourceRepair, line_of
from necropsy.model import CodeDefect


def promised(path: str, stack: int, reading: CodeReading) -> CodeReading:
    """Add to each repairable defect what ``necropsy check --fix --select RULE PATH`` does about it.

    That command gets the source alone, so it finds headers beside and above it only.
    """
    rules = dict.fromkeys(one.rule for one in reading.defects if one.rule in REPAIRED)
    if not rules:
        return reading
    first = SourceRepair(path, stack, (), lambda rule: rule in rules, Repairs(looked_for=dict(reading.headers)))
    found = first.judged({})
    made: dict[tuple[str, ...], str] = {}
    for rule in rules:
        before = Judged(found.unit, tuple(one for one in found.defects if one.rule == rule))
        result = Repairs(looked_for=first.result.looked_for)
        after = SourceRepair(path, stack, (), partial(eq, rule), result).repair(before)
        if result.made:
            made |= _removed(before, after, result)
    return msgspec.structs.replace(
        reading,
        headers=first.result.looked_for,
        defects=tuple(_with_promise(path, one, made) for one in reading.defects),
    )


def _removed(before: Judged, after: Judged, result: Repairs) -> dict[tuple[str, ...], str]:
    """Repairs by the lines of removed defects."""
    left = {line_of(one) for one in after.defects}
    told = {(where, line): text for where, line, text in reversed(result.made)}
    some = next(iter(told.values()))
    return {
        line_of(one): told.get((one.place.path, one.place.line), some)
        for one in before.defects
        if line_of(one) not in left
    }


def _with_promise(path: str, one: CodeDefect, made: dict[tuple[str, ...], str]) -> CodeDefect:
    told = made.get(line_of(one))
    if told is None:
        return one
    return msgspec.structs.replace(one, repair=told, source=path if one.place.path != path else None)
