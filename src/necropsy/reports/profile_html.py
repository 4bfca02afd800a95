"""What a run took of its stacks and memory, as a page and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from necropsy.model import Document, HeapFrame, HeapStack, HeapUse, Process
from necropsy.reports import comparison, icicle, memory_timeline, stack_bars
from necropsy.reports import heap as heap_text
from necropsy.reports import profile as profile_text
from necropsy.reports import text as reports_text
from necropsy.reports.icicle import Icicle
from necropsy.reports.markdown import fence, prose, shortened
from necropsy.reports.memory_timeline import Timeline
from necropsy.reports.rule_page import Source
from necropsy.reports.stack_bars import StackBar
from necropsy.reports.terminal import one_line, size, without_commands
from necropsy.reports.wording import ending

LIMIT = 60_000
"""Characters of Markdown; an issue's text has room for 65,536."""
_BARS, _ROWS, _CHILDREN = 8, 100, 10
"""Stacks that are drawn for a process, rows of its table, and child processes; the rest is counted."""
_HEAP_ROWS, _CALLS = 30, 4
"""Rows of a table of allocations, and calls that one of them names."""
_SUBSTANTIAL = 0.02
"""The share of a stack from which on it is drawn; the first one always is."""


@dataclass(frozen=True)
class ProcessView:
    """Everything that is shown of a process. ``most``: the most that it used."""

    key: str
    title: str
    most: str
    timeline: Timeline | None
    heap: HeapView | None
    bars: tuple[StackBar, ...]
    rows: tuple[StackBar, ...]
    more: int


@dataclass(frozen=True)
class HeapRow:
    """What was allocated at one place; ``arrays``: what the program's function there held as memory rose."""

    bytes: int
    count: int | None
    where: str
    arrays: str


@dataclass(frozen=True)
class HeapView:
    """Who allocated the memory of a process."""

    summary: str
    icicle: Icicle | None
    tables: tuple[tuple[str, tuple[HeapRow, ...]], ...]


def render(document: Document, pages: Source | None = None) -> str:
    """A page that loads nothing from anywhere, with the page of each finding's rule that ``pages`` has."""
    from necropsy.reports import page, rule_page

    own, *children = document.processes or (Process(pid=0),)
    measured = sorted((one for one in children if one.stacks or one.memory), key=_closest, reverse=True)
    return page.render(
        "profile.html.j2",
        {
            "document": document,
            "own": _view(own, 0),
            "children": [_view(one, place) for place, one in enumerate(measured[:_CHILDREN], start=1)],
            "more_children": max(len(measured) - _CHILDREN, 0),
            "compared": comparison.summary(document),
            "regressions": comparison.rows(document),
            "died": _deaths(document),
            "pages": rule_page.pages((one.rule for one in document.findings), pages),
        },
        title=headline(document),
        identity=document.id,
        tool=document.tool,
        markdown=markdown(document),
    )


def markdown(document: Document) -> str:
    """To paste into an issue, in at most ``LIMIT`` characters."""
    parts = [f"### {prose(headline(document))}"]
    parts += [f"- {one.severity}: {prose(one.summary)}" for one in document.findings]
    parts.append(fence(profile_text.render(document, width=100).strip("\n").splitlines()))
    if document.reports:
        parts.append(fence(_deaths(document)))
    return shortened(without_commands("\n\n".join(parts) + "\n"), LIMIT)


def headline(document: Document) -> str:
    """The command, how it ended, and which thread came closest to the end of its stack."""
    if not document.processes:
        return "No process was measured"
    own = document.processes[0]
    said = f"{one_line(own.command or (f'process {own.pid}',), 100)} "
    said += ending(own.exit) if own.exit is not None else "ended"
    stacks = [one for process in document.processes for one in process.stacks or () if one.peak and one.size]
    if stacks:
        one = max(stacks, key=stack_bars.share_of)
        left = max((one.size or 0) - (one.peak or 0), 0)
        name = stack_bars.name_of(one)
        said += f"; {name} came closest to the end of its stack: {size(left)} of {size(one.size or 0)} left"
    return said


def _view(process: Process, place: int) -> ProcessView:
    bars = stack_bars.draw(process)
    drawn = [one for one in bars[:_BARS] if (one.share or 0) >= _SUBSTANTIAL] or bars[:1]
    end = ending(process.exit) if process.exit is not None else "ended"
    return ProcessView(
        key=f"p{place}",
        title=f"child {process.pid}, {one_line(process.command or ('?',), 100)}: {end}",
        most=profile_text.at_most(process),
        timeline=memory_timeline.draw(process),
        heap=_heap(process, process.heap) if process.heap is not None else None,
        bars=tuple(drawn),
        rows=tuple(bars[:_ROWS]),
        more=sum(one.count for one in bars[_ROWS:]),
    )


def _heap(process: Process, heap: HeapUse) -> HeapView:
    exact = heap.how == "memray"
    said = []
    if heap.peak is not None:
        at = f", at {heap.peak_at:.1f} s" if heap.peak_at is not None else ""
        said.append(
            f"At most {size(heap.peak)} were allocated and not freed at one time{at}."
            if exact
            else f"Memory grew by {size(heap.peak)} in all. What is shown was running while it grew: an estimate."
        )
    if heap.allocated is not None and heap.count is not None:
        said.append(f"In all, {heap.count:,} allocations took {size(heap.allocated)}.")
    if heap.left_out:
        said.append(f"{size(heap.left_out)} of the peak are left out, in many small allocations.")
    if not heap.complete:
        said.append("The recording ended before the process did.")
    peak = "Allocated at the peak" if exact else "What was running while memory grew"
    tables = {
        f"{peak}, by calls": _heap_rows(process, heap.stacks),
        "Allocated during the run, by lines": _heap_rows(process, heap.lines),
        "Temporaries: freed before the next allocation": _heap_rows(process, heap.temporaries),
    }
    return HeapView(
        " ".join(said), icicle.draw(heap.stacks), tuple((name, rows) for name, rows in tables.items() if rows)
    )


def _heap_rows(process: Process, stacks: Sequence[HeapStack]) -> tuple[HeapRow, ...]:
    """Innermost call first."""
    return tuple(
        HeapRow(
            one.bytes,
            one.count,
            " < ".join(icicle.label(frame) for frame in _named(one.frames)),
            heap_text.held_in_words(heap_text.held_at(process, heap_text.own_line(one.frames))),
        )
        for one in stacks[:_HEAP_ROWS]
    )


def _named(frames: Sequence[HeapFrame]) -> Sequence[HeapFrame]:
    """Innermost first; beyond native functions also the line of the program, however far out it is."""
    innermost, own = frames[: -_CALLS - 1 : -1], heap_text.own_line(frames)
    return (*innermost, own) if own is not None and own not in innermost else innermost


def _deaths(document: Document) -> Sequence[str]:
    if not document.reports:
        return ()
    return reports_text.render(document, width=100).strip("\n").split("\n")


def _closest(process: Process) -> float:
    return max(map(stack_bars.share_of, process.stacks or ()), default=0.0)
