"""The threads of a process as a table: what each does, which lock it waits for, who holds it, and its line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.model import Thread
from necropsy.reports import call_lines, listing, stack, wording
from necropsy.reports.call_lines import CallLine
from necropsy.reports.deadlock import group_names, grouped
from necropsy.reports.terminal import file_name

MOST = 1000
STACKS, _LINES = 40, 30
"""Groups of threads whose stacks are shown, and lines for each; others are in the table only."""
_NAMED, _ALONE = 3, 4
"""Threads of a group that are named; threads in groups of this size or smaller have their own row."""


@dataclass(frozen=True)
class ThreadRow:
    """Threads doing the same in one place. ``stack``: their stack's anchor; ``anchors``: threads without a stack."""

    name: str
    state: str
    lock: str
    line: str
    code: str | None
    stack: str | None
    anchors: tuple[str, ...]
    shown: bool = False


@dataclass(frozen=True)
class Stacks:
    """Threads that did not crash, all of them at the same place: the anchor and the name of each."""

    names: tuple[tuple[str, str], ...]
    title: str
    note: str
    lines: tuple[CallLine, ...]


@dataclass(frozen=True)
class ThreadTable:
    """All threads but those that are too many (``more``), and the stacks of some; ``count``: the other threads."""

    rows: tuple[ThreadRow, ...]
    stacks: tuple[Stacks, ...]
    count: int
    more: int


def table(threads: Sequence[Thread], shown: Thread | None, key: str) -> ThreadTable:
    """The table; the thread whose stack the report shows comes first. Anchors begin with ``key``."""
    others = [one for one in threads if one is not shown]
    groups = grouped(others[:MOST])
    rows = [_row((shown,), f"{key}calls", shown=True)] if shown is not None else []
    for place, group in enumerate(groups):
        seen = place < STACKS
        for part in [group] if len(group) > _ALONE else [(one,) for one in group]:
            anchors = () if seen else tuple(f"{key}t{one.tid}" for one in part)
            rows.append(_row(part, f"{key}t{part[0].tid}" if seen else None, anchors=anchors))
    stacks = tuple(_stacks(group, key) for group in groups[:STACKS])
    return ThreadTable(tuple(rows), stacks, len(others), max(0, len(others) - MOST))


def _row(
    group: Sequence[Thread], anchor: str | None, *, shown: bool = False, anchors: tuple[str, ...] = ()
) -> ThreadRow:
    first = group[0]
    name = wording.thread_name(first)
    if len(group) > 1:
        names = group_names(group)
        more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
        name = f"{len(group):,} threads: {', '.join(names[:_NAMED])}{more}"
    place, code = line(first)
    return ThreadRow(name, state(first), _lock(group), place, code, anchor, anchors, shown)


def state(thread: Thread) -> str:
    """What the thread did when it was read."""
    waits = thread.waits
    if thread.crashed:
        said = "crashed"
    elif waits is None:
        said = "running" if thread.frames else ""
    elif waits.on is not None and re.search(r"\b(?:R?[Ll]ock|mutex|GIL)\b", waits.on):
        said = "was waiting for a lock" if waits.ended else "waits for a lock"
    else:
        said = f"{'was' if waits.ended else 'waits'} in {waits.call}"
    return ", ".join(part for part in (said, "holds the GIL" if thread.holds_gil else "") if part)


def _lock(group: Sequence[Thread]) -> str:
    on = list(dict.fromkeys(one.waits.on for one in group if one.waits is not None and one.waits.on))
    if not on:
        return ""
    if len(on) > 1:
        return f"{len(on):,} different ones"
    waits = group[0].waits
    named = waits is not None and waits.owner is not None and waits.owner_by != "join"
    held = f", held by thread {waits.owner}" if waits is not None and named else ""
    return on[0] + held


def line(thread: Thread) -> tuple[str, str | None]:
    """The innermost line of the user's own Python, else of any; else the native function, without code."""
    python = [one for one in thread.python or () if one.source and one.line]
    own = next((one for one in python if one.owner == "script"), next(iter(python), None))
    if own is not None and own.source is not None:
        named = f" in {own.function}" if own.function and own.function != "<module>" else ""
        return f"{file_name(own.source)}:{own.line}{named}", own.code
    return _function(call_lines.lines(thread, None)), None


def _function(lines: Sequence[CallLine]) -> str:
    top = next((line.name for line in lines if line.kind == "native" and not line.name.startswith("0x")), "")
    return listing.short_function(top) if top else ""


def _stacks(group: Sequence[Thread], key: str) -> Stacks:
    first, lines = group[0], call_lines.lines(group[0], None)
    title = wording.thread_name(first) if len(group) == 1 else f"{len(group)} threads at the same place"
    names = tuple(zip((f"{key}t{one.tid}" for one in group), group_names(group), strict=True))
    waits = wording.thread_title(first).removeprefix(wording.thread_name(first)).removeprefix(", ")
    function = _function(lines)
    place, _ = line(first)
    where = [waits or (f"in {function}" if function else "")]
    where.append(f"at {place}" if place and place != function else "")
    where.append(stack.estimated(first.frames_estimate) if first.frames_estimate is not None else "")
    return Stacks(names, title, ", ".join(part for part in where if part), lines[:_LINES])
