"""A run in which nothing crashed: how much of its stack each thread used, and where that would not have fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.data.stack_sizes import StackSize, stack_sizes
from necropsy.model import Document, Exit, Process, StackUse
from necropsy.reports.terminal import BOLD, DIM, YELLOW, Pen, clean, columns, cut, one_line, size, wrap
from necropsy.reports.wording import ending

CHILDREN = 10
"""Child processes with their own line."""


def draw(document: Document, width: int, pen: Pen) -> list[str]:
    """How the command ended, its stacks and memory, and whether it fits elsewhere; for ``wording.tells_of_stacks``."""
    own, *children = document.processes
    lines = ["", *_head(own, width, pen)]
    if own.stacks is not None:
        lines += _table(own, width, pen)
        lines += _fits(own, width, pen)
    measured = [child for child in children if child.stacks is not None]
    for child in measured[:CHILDREN]:
        lines += _child(child, width, pen)
    if len(measured) > CHILDREN:
        lines.append(f"  and {len(measured) - CHILDREN} more child processes")
    for gap in document.gaps:
        lines += wrap(f"not observed: {gap.part}: {gap.why}", width, first="  ")
    return lines


def _child(process: Process, width: int, pen: Pen) -> list[str]:
    """One line, and more only if its stacks would not fit elsewhere."""
    groups = [group for group in _groups(process) if group.peak is not None]
    most = f", at most {size(max(group.peak or 0 for group in groups))} of a stack" if groups else ""
    text = f"child {process.pid}, {one_line(process.command or ('?',), 60)}: {_ended(process.exit)}{most}"
    lines = wrap(text, width, first="  ", rest="    ")
    for limit in stack_sizes():
        mine = [group for group in groups if limit.holds_for(main=group.main)]
        if mine and max(group.peak or 0 for group in mine) > limit.bytes:
            lines += _fit(limit, mine, width, pen)
    return lines


def _head(process: Process, width: int, pen: Pen) -> list[str]:
    command = process.command or (f"process {process.pid}",)
    text = f"{one_line(command, 100)} {_ended(process.exit)}"
    if process.wall_s is not None:
        text += f" after {process.wall_s:.2g} s" if process.wall_s < 1 else f" after {process.wall_s:.1f} s"
    if process.peak_rss is not None:
        text += f", {size(process.peak_rss)} of memory at its peak"
    first, *rest = wrap(text + ".", width, first="necropsy: ", rest="  ")
    return [pen(first, BOLD), *rest]


def _ended(end: Exit | None) -> str:
    return ending(end) if end is not None else "ended"


@dataclass(frozen=True)
class _Group:
    """Threads of the same name and stack size: a pool."""

    name: str
    count: int
    size: int | None
    peak: int | None
    main: bool


def _groups(process: Process) -> list[_Group]:
    pools: dict[tuple[str, int | None, bool], list[StackUse]] = {}
    for use in process.stacks or ():
        main = use.tid == process.pid
        name = "main thread" if main else clean(use.name or "(no name)").rstrip("0123456789-_") or "(no name)"
        pools.setdefault((name, use.size, main), []).append(use)
    groups = []
    for (name, whole, main), uses in pools.items():
        peaks = [use.peak for use in uses if use.peak is not None]
        groups.append(_Group(name, len(uses), whole, max(peaks, default=None), main))
    return sorted(groups, key=lambda group: (not group.main, -(group.peak or 0), group.name))


def _table(process: Process, width: int, pen: Pen) -> list[str]:
    groups = _groups(process)
    if not groups:
        return ["  no thread was left to measure when it ended"]
    names = max(6, min(max(columns(group.name) for group in groups), width - 44))
    head = f"  {'thread':<{names}}  {'count':>5}  {'stack':>9}  {'used at most':>12}"
    lines = [pen(cut(head, width), DIM)]
    for group in groups:
        whole = size(group.size) if group.size is not None else "unknown"
        peak = size(group.peak) if group.peak is not None else "unknown"
        share = f"{group.peak / group.size:>5.0%}" if group.peak is not None and group.size else ""
        name = cut(group.name, names)
        row = f"  {name}{' ' * (names - columns(name))}  {group.count:>5}  {whole:>9}  {peak:>12} {share}"
        lines.append(cut(row.rstrip(), width))
    return lines


def _fits(process: Process, width: int, pen: Pen) -> list[str]:
    groups = [group for group in _groups(process) if group.peak is not None]
    if not groups:
        return []
    lines = [pen("  Would these stacks fit elsewhere? An estimate: another compiler lays out other frames.", DIM)]
    if width < columns(lines[0]):
        lines = wrap("Would these stacks fit elsewhere? An estimate: other compilers, other frames.", width, first="  ")
    for limit in stack_sizes():
        mine = [group for group in groups if limit.holds_for(main=group.main)]
        if mine:
            lines += _fit(limit, mine, width, pen)
    return lines


def _fit(limit: StackSize, groups: Sequence[_Group], width: int, pen: Pen) -> list[str]:
    worst = max(groups, key=lambda group: group.peak or 0)
    peak = worst.peak or 0
    fits = peak <= limit.bytes
    name = worst.name if worst.main else f"thread {worst.name}"
    which = {"main": "main thread ", "other": "other threads ", "all": ""}[limit.threads]
    said = f"{limit.where}, {which}{limit.bytes:,} bytes: "
    said += f"fits: peak use was {peak:,} ({name})" if fits else f"WOULD NOT FIT, {name} used {peak:,}"
    lines = wrap(f"{said}. {limit.note[0].upper()}{limit.note[1:]}.", width, first="  * ")
    return lines if fits else [pen(line, YELLOW) for line in lines]
